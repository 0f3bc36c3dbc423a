"""Formatting of numbers and money in English, as `static/format.js` does in the browser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from truthfl.ledger.money import decimal_places


@contextmanager
def overflow_allowed() -> Iterator[None]:
    """Untrusted numbers may overflow without a warning; what comes out is not finite, and is refused."""
    import numpy as np

    with np.errstate(all="ignore"):
        yield


def number(value: float, places: int) -> str:
    """With commas between thousands, a real minus sign, and no minus before 0."""
    rounded = 0.0 if abs(value) < 0.5 * 10**-places else value
    return f"{rounded:,.{places}f}".replace("-", "−")


def money(amount: float, minor_units: int, currency: str) -> str:
    """An amount with the decimal places of its currency; with one place if it would otherwise be rounded too much."""
    places = decimal_places(minor_units)
    if places == 0 and amount != 0 and abs(amount) < 10 and amount != math.floor(amount):
        places = 1
    return f"{number(amount, places)} {currency}"
