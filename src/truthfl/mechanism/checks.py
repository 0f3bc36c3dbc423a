"""Converts inputs to checked numbers and arrays; raises `InputError` with the name of the client and the field."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.texts import LONGEST_NAME, plain_name

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

NUMBER_OF_NAMED_OFFENDERS = 3

# Within these limits, no formula of the mechanism overflows or underflows.
SMALLEST, LARGEST, LARGEST_COUNT = 1e-30, 1e30, 10**15


def number(field: str, value: object, *, positive: bool = False, at_least: float | None = None) -> float:
    """The value as a float; `InputError` unless it is a finite number within its range."""
    if isinstance(value, bool | str | bytes):
        raise InputError(f"{field} is {_short(value)}; it must be a number.")
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{field} is {_short(value)}; it must be a number.") from None
    low = SMALLEST if positive else -LARGEST if at_least is None else at_least
    if not low <= result <= LARGEST:
        raise InputError(f"{field} is {result:g}; it must be {_wanted(result, positive, at_least, None)}.")
    return result


def whole_number(field: str, value: object, *, at_least: int) -> int:
    """The value as an int; `InputError` unless it is a whole number within its range."""
    try:
        result = operator.index(value) if not isinstance(value, bool) else None  # type: ignore[arg-type]
    except TypeError:
        result = None
    if result is None:
        raise InputError(f"{field} is {_short(value)}; it must be a whole number.")
    if result < at_least:
        raise InputError(f"{field} is {_short(result)}; it must be at least {at_least}.")
    if result > LARGEST_COUNT:
        raise InputError(f"{field} is {_short(result)}; it must be at most {LARGEST_COUNT:g}.")
    return result


def client_array(
    field: str,
    value: ArrayLike,
    count: int,
    label: Callable[[int], str],
    *,
    positive: bool = False,
    at_least: float | None = None,
    at_most: float | None = None,
) -> FloatArray:
    """A read-only array with one finite number per client; a single number stands for every client."""
    array = _as_floats(field, value)
    if array.shape not in ((), (count,)):
        raise InputError(f"{field} has shape {array.shape}; it must be one number, or {count} numbers, one per client.")
    low = SMALLEST if positive else -LARGEST if at_least is None else at_least
    high = LARGEST if at_most is None else at_most
    if not is_within(array, low, high):
        bad = ~((array >= low) & (array <= high))
        first = float(array[np.argmax(bad)] if array.ndim else array)
        _refuse(field, array, bad, _wanted(first, positive, at_least, at_most), label)
    return _read_only(array, count)


def client_whole_numbers(
    field: str, value: ArrayLike, count: int, label: Callable[[int], str], *, at_least: int
) -> IntArray:
    """A read-only array with one whole number per client; a single number stands for every client."""
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic | int) else None
    is_whole = array is not None and array.dtype.kind in "iu" and array.dtype != np.uint64 and array.size > 0
    whole = array if is_whole and array is not None else _as_floats(field, value)
    if whole.shape not in ((), (count,)):
        raise InputError(f"{field} has shape {whole.shape}; it must be one number, or {count} numbers, one per client.")
    if not is_within(whole, at_least, LARGEST_COUNT):
        bad = ~((whole >= at_least) & (whole <= LARGEST_COUNT))
        above = not whole.max() <= LARGEST_COUNT
        _refuse(
            field, whole, bad, f"a whole number, at least {at_least}" + above * f" and at most {LARGEST_COUNT:g}", label
        )
    if not is_whole and (whole != np.floor(whole)).any():
        _refuse(field, whole, whole != np.floor(whole), "a whole number", label)
    return _read_only(whole.astype(np.int64, copy=False), count)


def client_count(field: str, value: ArrayLike) -> int:
    """How many clients there are, from the field that must have one number for each."""
    array = _as_floats(field, value)
    if array.ndim != 1:
        raise InputError(f"{field} has shape {array.shape}; it must be a list with one number per client.")
    return len(array)


def names(value: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """One distinct name per client, or none at all."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(n, str) for n in value):
        raise InputError(f"name is {_short(value)}; it must be a list of {count} names.")
    result = tuple(value)
    if len(result) != count:
        raise InputError(f"name has {len(result)} entries; it must have {count}, one per client.")
    if not "".join(result).isprintable() or not all(map(str.strip, result)) or max(map(len, result)) > LONGEST_NAME:
        for one in result:
            plain_name("a name", one)
    if len(set(result)) != count:
        twice = Counter(result).most_common(1)[0][0]
        raise InputError(f"name {twice!r} is given to more than one client; names must be distinct.")
    return result


def list_clients(positions: Sequence[int], describe: Callable[[int], str]) -> str:
    """A few of them by name, and how many more there are."""
    shown = [describe(position) for position in positions[:NUMBER_OF_NAMED_OFFENDERS]]
    more = len(positions) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def is_within(array: NDArray[np.generic], low: float, high: float) -> bool:
    """Whether all numbers are from `low` to `high`; NaN is not."""
    return not array.size or (bool(array.min() >= low) and bool(array.max() <= high))


def inner(first: FloatArray, second: FloatArray | IntArray) -> float:
    """Σ first_i second_i, the same on every machine and for any number of threads (BLAS does not promise that)."""
    return float(np.multiply(first, second).sum())


def rounded_down(value: float, digits: int = 6) -> float:
    """A positive value rounded down to this number of significant digits."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale * (1.0 + 1e-13)) / scale


def rounded_up(value: float, digits: int = 8) -> float:
    """A positive value rounded up to this number of significant digits."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale * (1.0 - 1e-13)) / scale


def _as_floats(field: str, value: ArrayLike) -> FloatArray:
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iuf" and raw.size:
            raise InputError(f"{field} is {_short(value)}; it must be one number or one number per client.")
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{field} is {_short(value)}; it must be one number or one number per client.") from None
    if array.size == 0:
        raise InputError(f"{field} is empty; there must be at least one client.")
    return array


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else f"a number of {len(hex(value))} digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _wanted(value: float, positive: bool, at_least: float | None, at_most: float | None) -> str:
    if np.isfinite(value) and (value > LARGEST or (positive and 0 < value < SMALLEST)):
        low = SMALLEST if positive else -LARGEST if at_least is None else at_least
        return f"a number from {low:g} to {LARGEST:g}"
    if at_most is not None:
        return f"a number {'above 0' if positive else f'from {at_least:g}'} up to {at_most:g}"
    if positive:
        return "a positive finite number"
    return "a finite number" if at_least is None else f"a finite number, at least {at_least:g}"


def _refuse(
    field: str, array: NDArray[np.generic], bad: NDArray[np.bool_], wanted: str, label: Callable[[int], str]
) -> None:
    if array.ndim == 0:
        raise InputError(f"{field} is {array.item():g} for every client; it must be {wanted}.")
    positions = np.flatnonzero(bad)
    first = int(positions[0])
    others = f" ({len(positions) - 1} more clients likewise)" if len(positions) > 1 else ""
    raise InputError(f"{field} of {label(first)} is {array[first].item():g}; it must be {wanted}{others}.")


def _read_only(array: NDArray[Scalar], count: int) -> NDArray[Scalar]:
    view = np.broadcast_to(array, (count,)).view()
    view.flags.writeable = False
    return view
