"""Turning what a caller gives into arrays, or into one sentence that names the client and the field.

Looks only at `errors`. Nothing here knows what a field means.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

NUMBER_OF_NAMED_OFFENDERS = 3


def number(field: str, value: object, *, positive: bool = False, at_least: float | None = None) -> float:
    """One finite number within its range."""
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{field} is {value!r}; it must be a number.") from None
    wanted = _wanted(positive, at_least, None)
    if not np.isfinite(result) or (positive and result <= 0) or (at_least is not None and result < at_least):
        raise InputError(f"{field} is {result:g}; it must be {wanted}.")
    return result


def whole_number(field: str, value: object, *, at_least: int) -> int:
    """One whole number within its range."""
    try:
        result = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{field} is {value!r}; it must be a whole number.") from None
    if result < at_least:
        raise InputError(f"{field} is {result}; it must be at least {at_least}.")
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
    lowest, highest = array.min(), array.max()  # NaN makes every comparison below false
    within = lowest > 0 if positive else lowest >= (-np.inf if at_least is None else at_least)
    if not (within and highest <= (np.finfo(float).max if at_most is None else at_most) and lowest > -np.inf):
        wanted = _wanted(positive, at_least, at_most)
        good = np.isfinite(array) & (array > 0 if positive else True)
        good &= (array >= at_least) if at_least is not None else True
        good &= (array <= at_most) if at_most is not None else True
        _refuse(field, array, ~good, wanted, label)
    return _read_only(array, count)


def client_whole_numbers(
    field: str, value: ArrayLike, count: int, label: Callable[[int], str], *, at_least: int
) -> IntArray:
    """A read-only array with one whole number per client; a single number stands for every client."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        floats = client_array(field, value, count, label, at_least=at_least, at_most=2.0**62)
        if (floats != np.floor(floats)).any():
            _refuse(field, floats, floats != np.floor(floats), "a whole number", label)
        array = floats.astype(np.int64)
    if array.shape not in ((), (count,)):
        raise InputError(f"{field} has shape {array.shape}; it must be one number, or {count} numbers, one per client.")
    if array.min() < at_least:
        _refuse(field, array, array < at_least, f"a whole number, at least {at_least}", label)
    result = np.broadcast_to(array.astype(np.int64, copy=False), (count,))
    return result if not result.flags.writeable else _read_only_view(result)


def names(value: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """One distinct name per client, or none at all."""
    if value is None:
        return None
    result = tuple(str(name) for name in value)
    if len(result) != count:
        raise InputError(f"name has {len(result)} entries; it must have {count}, one per client.")
    if len(set(result)) != count:
        twice = next(name for name in result if result.count(name) > 1)
        raise InputError(f"name {twice!r} is given to more than one client; names must be distinct.")
    return result


def list_clients(positions: Sequence[int], describe: Callable[[int], str]) -> str:
    """A few of them by name, and how many more there are."""
    shown = [describe(position) for position in positions[:NUMBER_OF_NAMED_OFFENDERS]]
    more = len(positions) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def inner(first: FloatArray, second: FloatArray | IntArray) -> float:
    """Σ first_i second_i, the same on every machine and for any number of threads (BLAS does not promise that)."""
    return float(np.multiply(first, second).sum())


def _as_floats(field: str, value: ArrayLike) -> FloatArray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{field} is {value!r}; it must be one number or one number per client.") from None
    if array.size == 0:
        raise InputError(f"{field} is empty; there must be at least one client.")
    return array


def _wanted(positive: bool, at_least: float | None, at_most: float | None) -> str:
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


def _read_only(array: FloatArray, count: int) -> FloatArray:
    return _read_only_view(np.broadcast_to(array, (count,)))


def _read_only_view(array: NDArray[Scalar]) -> NDArray[Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view
