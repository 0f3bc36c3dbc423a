"""The page's sentences in all languages, and the form in which numbers and sentences go to the browser.

A sentence is a `Message`: a key and values. The browser writes it in its own language (`static/text.js`); `in_english`
writes it for the terminal. Where a catalogue lacks a key, the English sentence is used.

Forms may come from a server and are untrusted. A form that does not fit the catalogues is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from truthfl.amounts import decimal_places, number_text
from truthfl.coded_text import CodedText
from truthfl.errors import InputError


@contextmanager
def overflow_allowed() -> Iterator[None]:
    """Let untrusted numbers overflow without a warning; the result is not finite and is refused."""
    import numpy as np

    with np.errstate(all="ignore"):
        yield


def number(value: float, places: int) -> str:
    """As `number_text`, with a real minus sign, as in the browser."""
    return number_text(value, places).replace("-", "−")


def money(amount: float, minor_units: int, currency: str) -> str:
    """An amount with its currency's decimal places; with one place if it would otherwise be rounded too much."""
    places = decimal_places(minor_units)
    if places == 0 and amount != 0 and abs(amount) < 10 and amount != math.floor(amount):
        places = 1
    return f"{number(amount, places)} {currency}"


ENGLISH = "en"
PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")
ACCEPTED = re.compile(r"\s*([A-Za-z]{1,8})(?:-[A-Za-z0-9-]*)?\s*(?:;\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?")


@dataclass(frozen=True)
class Message:
    """A sentence of the catalogues.

    values   by placeholder: texts, numbers, other messages, `amount_of`, `rounded` and other forms of `coded_text`;
             `count` chooses between key.one and key.other, `noun` (picture, text or row) fills {noun} and {nouns}
    """

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


class MessageError(InputError):
    """An error whose sentence is in the catalogues; as text it is in English."""

    def __init__(self, key: str, **values: Any) -> None:
        self.message = Message(key, values)
        super().__init__(in_english(self.message))


def amount_of(amount: float, minor_units: int, currency: str) -> dict[str, Any]:
    """A value of a message: money."""
    return {"amount": amount, "minor_units": minor_units, "currency": currency}


def rounded(value: float, places: int) -> dict[str, Any]:
    """A value of a message: a number with this many decimal places."""
    return {"number": value, "places": places}


@cache
def languages() -> frozenset[str]:
    """All languages that have a catalogue."""
    return frozenset(file.name.removesuffix(".json") for file in _folder().iterdir() if file.name.endswith(".json"))


@cache
def strings(language: str) -> Mapping[str, str]:
    """The catalogue of a language, with English for what it lacks."""
    own: dict[str, str] = json.loads(_folder().joinpath(f"{language}.json").read_text(encoding="utf-8"))
    return own if language == ENGLISH else {**strings(ENGLISH), **own}


def chosen_language(accepted: str) -> str:
    """The best language for an Accept-Language header; English if there is none."""
    wishes = [match for match in map(ACCEPTED.fullmatch, accepted.split(",")) if match]
    for wish in sorted(wishes, key=lambda match: -float(match[2] or 1)):
        if wish[1].lower() in languages() and float(wish[2] or 1) > 0:
            return wish[1].lower()
    return ENGLISH


def in_english(message: Message) -> str:
    """The sentence in English."""
    texts, values = strings(ENGLISH), message.values
    form = "one" if values.get("count") == 1 else "other"
    template = texts.get(message.key) or texts[f"{message.key}.{form}"]
    return PLACEHOLDER.sub(lambda match: _written(match[1], values), template)


def _written(name: str, values: Mapping[str, Any]) -> str:
    """The text of a placeholder."""
    if name in ("noun", "nouns"):
        return strings(ENGLISH)[f"noun.{values['noun']}.{'one' if name == 'noun' else 'other'}"]
    value = values[name]
    if isinstance(value, Message):
        return in_english(value)
    if isinstance(value, Mapping):
        return _written_form(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written_form(value: Mapping[str, Any]) -> str:
    """The text of a value that is neither a number nor a text: see `coded_text`."""

    if "key" in value:
        return in_english(Message(value["key"], value["values"]))
    if "list" in value:
        return str(value["separator"]).join(_written("one", {"one": part}) for part in value["list"])
    if "places" in value:
        return number(value["number"], value["places"])
    if "currency" in value:
        return money(**value)
    return str(next(iter(value.values())))


def _folder() -> Path:
    return Path(__file__).parent / "strings"


DEEPEST, MOST_VALUES, LONGEST = 4, 50, 1000
FORMS: tuple[Mapping[str, type | tuple[type, ...]], ...] = (  # by the fields of a value: their types
    {"quoted": str},
    {"english": str},
    {"time": (int, float)},
    {"number": (int, float), "places": int},
    {"amount": (int, float), "minor_units": int, "currency": str},
)


def shown(text: str) -> dict[str, Any]:
    """The form of a sentence for the browser."""
    if isinstance(text, CodedText) and is_known(text.form):
        return text.form
    return {"english": str(text)}


def is_known(form: object, depth: int = 0) -> bool:
    """Whether the catalogues have the form's sentence, with exactly these values."""
    if depth > DEEPEST or not isinstance(form, Mapping):
        return False
    if set(form) == {"key", "values"}:
        key, values = form["key"], form["values"]
        templates = _templates(key) if isinstance(key, str) else []
        fits = isinstance(values, Mapping) and any(set(values) == names for names in templates)
        return fits and all(_is_value(value, depth + 1) for value in values.values())
    if set(form) == {"list", "separator"}:
        parts = form["list"]
        counted = isinstance(parts, list) and len(parts) <= MOST_VALUES and form["separator"] in ("; ", ", ")
        return counted and all(_is_value(value, depth + 1) for value in parts)
    return any(
        set(form) == set(types) and all(_has_type(form[name], kind) for name, kind in types.items()) for types in FORMS
    )


def _templates(key: str) -> list[set[str]]:
    """The names of the values of a key's sentences."""
    texts = strings(ENGLISH)
    return [set(PLACEHOLDER.findall(texts[name])) for name in (key, f"{key}.one", f"{key}.other") if name in texts]


def _is_value(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    return _has_type(value, (int, float)) or is_known(value, depth)


def _has_type(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and len(str(value)) <= LONGEST
