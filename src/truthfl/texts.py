"""Makes strangers' texts safe for a ledger, a terminal and a spreadsheet: bounded, in one line, without codes."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable
from typing import Literal

from truthfl.errors import InputError

LONGEST_SENTENCE = 300  # letters of a reason or another sentence
LONGEST_NAME = 200
LONGEST_PAYMENT_NOTE = 300  # letters about how an operator pays
FORMULA_PREFIXES = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: the same, full width


def plain(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """The text with control characters, line breaks and the like as escapes, cut off after this many letters.

    This includes terminal escape codes, characters that reverse the direction of writing, and halves of surrogate
    pairs; all kinds of spaces stay.
    """
    whole = str(text)
    if len(whole) <= longest and whole.isprintable():
        return whole
    escaped = "".join(letter if _is_plain(letter) else _escape(letter) for letter in whole[: longest + 1])
    return escaped if len(whole) <= longest and len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def plain_lines(text: object, longest: int = 1000) -> str:
    """The text with each line made plain; its line breaks stay."""
    return "\n".join(plain(line, longest) for line in str(text).splitlines())


def is_plain(text: object, longest: int) -> bool:
    """Whether it is a text with at most this many letters, and none that `plain` escapes."""
    return isinstance(text, str) and len(text) <= longest and (text.isprintable() or all(map(_is_plain, text)))


def plain_name(field: str, value: object) -> str:
    """The value if it is a name in plain letters; `InputError` otherwise."""
    if not isinstance(value, str) or not value.strip() or not is_plain(value, LONGEST_NAME):
        raise InputError(
            f"{field} is {plain(repr(value), 60)}; it must be a text of 1 to {LONGEST_NAME} letters, without control "
            "characters."
        )
    return value


def csv_text(rows: Iterable[Iterable[object]], quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL) -> str:
    """Rows of texts and numbers as CSV, safe to open in a spreadsheet.

    A participant or a class may be named "=HYPERLINK(…)", which a spreadsheet would execute. A text that begins with
    one of = + - @ (after white space), a tab or a line break therefore gets a leading apostrophe.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n", quoting=quoting)
    writer.writerows([_cell(value) if isinstance(value, str) else value for value in row] for row in rows)
    return target.getvalue()


def text_of_cell(cell: str) -> str:
    """The text that `csv_text` wrote as this cell."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell.lstrip("'")) else cell


def _cell(text: str) -> str:
    return f"'{text}" if _is_formula(text.lstrip("'")) else text


def _is_formula(text: str) -> bool:
    return text.lstrip().startswith(FORMULA_PREFIXES) or text.startswith(("\t", "\r", "\n"))


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
