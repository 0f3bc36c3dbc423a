"""Texts from strangers, made fit for a ledger and a terminal: of bounded length, in one line, without control codes.

Imports `errors`.
"""

from __future__ import annotations

import unicodedata

from truthfl.errors import InputError

LONGEST_SENTENCE = 300  # letters of a reason or another sentence
LONGEST_NAME = 200
LONGEST_PAYMENT_NOTE = 300  # letters of how an operator pays


def plain(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """The text with control characters, line breaks and the like written as escapes, cut off after so many letters.

    Terminal escape codes, characters that reverse the direction of writing and halves of surrogate pairs are among
    these; all kinds of spaces stay.
    """
    whole = str(text)
    if len(whole) <= longest and whole.isprintable():
        return whole
    escaped = "".join(letter if _is_plain(letter) else _escape(letter) for letter in whole[: longest + 1])
    return escaped if len(whole) <= longest and len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def plain_lines(text: object, longest: int = 1000) -> str:
    """The text with each of its lines made plain; its line breaks stay."""
    return "\n".join(plain(line, longest) for line in str(text).splitlines())


def is_plain(text: object, longest: int) -> bool:
    """Whether it is a text with at most so many letters, and none that `plain` escapes."""
    return isinstance(text, str) and len(text) <= longest and (text.isprintable() or all(map(_is_plain, text)))


def plain_name(field: str, value: object) -> str:
    """The value if it is a name in plain letters; `InputError` otherwise."""
    if not isinstance(value, str) or not value.strip() or not is_plain(value, LONGEST_NAME):
        raise InputError(
            f"{field} is {plain(repr(value), 60)}; it must be a text of 1 to {LONGEST_NAME} letters, without control "
            "characters."
        )
    return value


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
