"""Numbers and amounts of money as texts.

The ledger has whole minor units, such as cents. A job's terms say how many make one unit of its currency.
"""

from __future__ import annotations


def number_text(value: float, places: int) -> str:
    """With commas between thousands, and no minus before 0."""
    return f"{0.0 if abs(value) < 0.5 * 10**-places else value:,.{places}f}"


def decimal_places(minor_units: int) -> int:
    """How many decimal places show every minor unit: 2 for 100, 0 for 1."""
    return len(str(minor_units - 1)) if minor_units > 1 else 0


def amount_text(amount: float, minor_units: int) -> str:
    """An amount in units of the currency, which need not be whole minor units."""
    return number_text(amount, decimal_places(minor_units))


def minor_amount_text(minor: int, minor_units: int) -> str:
    """A number of minor units, in units of the currency; exact also if a float would not be."""
    places = decimal_places(minor_units)
    if 10**places != minor_units:  # a unit is not a power of ten
        return amount_text(minor / minor_units, minor_units)
    whole, rest = divmod(abs(minor), minor_units)
    sign, decimals = "-" if minor < 0 else "", f".{rest:0{places}d}" if places else ""
    return f"{sign}{whole:,}{decimals}"


def minor_money(minor: int, minor_units: int, currency: str) -> str:
    """A number of minor units with the currency: 23009 minor units of which 100 are one EUR are "230.09 EUR"."""
    return f"{minor_amount_text(minor, minor_units)} {currency}"
