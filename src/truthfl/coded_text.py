"""English sentences that a page can translate: each also has a key and values.

A `CodedText` is an ordinary text for code that only prints it. The participant's page looks up its `form` (JSON values)
in the catalogues (`page/strings/`), which have the same English sentence under the same key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truthfl.amounts import number_text


class CodedText(str):
    """An English text with a form that can be translated.

    form   {"key", "values"}: a sentence of the catalogues; {"quoted"}: a person's own words, in any language;
           {"english"}: words without a translation; {"time"}: seconds since 1970; {"list"}: several forms;
           {"amount", "minor_units", "currency"}: money; {"number", "places"}: a number with this many decimal places
    """

    __slots__ = ("form",)
    form: dict[str, Any]

    def __new__(cls, text: str, form: dict[str, Any]) -> CodedText:
        made = super().__new__(cls, text)
        made.form = form
        return made

    def __getnewargs__(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]  # for copies
        return str(self), self.form


def coded(key: str, template: str, **values: Any) -> CodedText:
    """The sentence from this template, in which {name} stands for a value; `key` is its key in the catalogues."""
    return CodedText(
        template.format(**values), {"key": key, "values": {name: form_of(value) for name, value in values.items()}}
    )


def form_of(value: object) -> Any:
    """A value as a page gets it: its form, a number, or a text that no language changes, such as a name."""
    if isinstance(value, CodedText):
        return value.form
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def quoted(words: str) -> CodedText:
    """A person's own words, in an unknown language."""
    return CodedText(words, {"quoted": words})


def untranslated(words: str) -> CodedText:
    """The form of English words; words without a form have no translation."""
    return words if isinstance(words, CodedText) else CodedText(words, {"english": words})


def moment(words: str, seconds: float) -> CodedText:
    """A time in seconds since 1970, and its words in English."""
    return CodedText(words, {"time": seconds})


def amount(words: str, value: float, minor_units: int, currency: str) -> CodedText:
    """Money, and its words in English."""
    return CodedText(words, {"amount": value, "minor_units": minor_units, "currency": currency})


def decimal(value: float, places: int) -> CodedText:
    """A number with this many decimal places."""
    return CodedText(number_text(value, places), {"number": value, "places": places})


def listed(parts: Iterable[str], separator: str = "; ") -> CodedText:
    """Several texts in a row."""
    texts = list(parts)
    return CodedText(separator.join(texts), {"list": [form_of(text) for text in texts], "separator": separator})


def sentence_of(error: BaseException) -> str:
    """The sentence of an error, with its form if it has one."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, CodedText) else str(error)


def from_form(words: str, form: object) -> str:
    """A text from its stored words and its stored form; None for no form."""
    return CodedText(words, form) if isinstance(form, dict) else words
