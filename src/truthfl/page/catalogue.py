"""The page's sentences in all languages, one JSON file of `strings/` each.

A sentence has a key and values: `Message`. The browser writes it in its own language (`static/text.js`); `english` does
for the terminal. Where a catalogue lacks a key, English is taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from truthfl.errors import InputError

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
        super().__init__(english(self.message))


def amount_of(amount: float, minor_units: int, currency: str) -> dict[str, Any]:
    """A value of a message: money."""
    return {"amount": amount, "minor_units": minor_units, "currency": currency}


def rounded(value: float, places: int) -> dict[str, Any]:
    """A value of a message: a number with this many decimal places."""
    return {"number": value, "places": places}


@cache
def languages() -> frozenset[str]:
    """The languages that have a catalogue."""
    return frozenset(file.name.removesuffix(".json") for file in _folder().iterdir() if file.name.endswith(".json"))


@cache
def strings(language: str) -> Mapping[str, str]:
    """The catalogue of a language, with English for what it lacks."""
    own: dict[str, str] = json.loads(_folder().joinpath(f"{language}.json").read_text(encoding="utf-8"))
    return own if language == ENGLISH else {**strings(ENGLISH), **own}


def chosen_language(accepted: str) -> str:
    """The best language for a header Accept-Language; English if there is none."""
    wishes = [match for match in map(ACCEPTED.fullmatch, accepted.split(",")) if match]
    for wish in sorted(wishes, key=lambda match: -float(match[2] or 1)):
        if wish[1].lower() in languages() and float(wish[2] or 1) > 0:
            return wish[1].lower()
    return ENGLISH


def english(message: Message) -> str:
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
        return english(value)
    if isinstance(value, Mapping):
        return _written_form(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written_form(value: Mapping[str, Any]) -> str:
    """The text of a value that is no number and no text: see `coded_text`."""
    from truthfl.page.numbers import money, number

    if "key" in value:
        return english(Message(value["key"], value["values"]))
    if "list" in value:
        return str(value["separator"]).join(_written("one", {"one": part}) for part in value["list"])
    if "places" in value:
        return number(value["number"], value["places"])
    if "currency" in value:
        return money(**value)
    return str(next(iter(value.values())))


def _folder() -> Path:
    return Path(__file__).parent / "strings"
