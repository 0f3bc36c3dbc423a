"""What the browser gets of a sentence: its form, if the catalogues have it, otherwise its words in English.

Forms may come from a server and are untrusted: one that does not fit the catalogues is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.coded_text import CodedText
from truthfl.page.catalogue import ENGLISH, PLACEHOLDER, strings

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
    """Whether the catalogues have what this form says, with just these values."""
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
