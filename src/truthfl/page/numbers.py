"""Numbers as people read them, as `static/format.js` writes them in the browser. Imports nothing."""

from __future__ import annotations

import math


def number(value: float, places: int) -> str:
    """With commas between thousands, a real minus sign, and no minus before 0."""
    shown = 0.0 if abs(value) < 0.5 * 10**-places else value
    return f"{shown:,.{places}f}".replace("-", "−")


def money(amount: float, minor_units: int, currency: str) -> str:
    """An amount with as many places as the currency has; one more where a small amount would vanish."""
    places = max(0, math.ceil(math.log10(minor_units)))
    if places == 0 and amount != 0 and abs(amount) < 10 and amount != math.floor(amount):
        places = 1
    return f"{number(amount, places)} {currency}"


def in_calculation(part: float | int | str) -> str:
    """A part of a calculation: with more places than are ever paid, so that one can follow it."""
    if isinstance(part, str):
        return part
    if isinstance(part, int):
        return f"{part:,}"
    return number(part, 7 if abs(part) < 10 else 4)
