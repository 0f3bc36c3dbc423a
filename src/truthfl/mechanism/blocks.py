"""Elementwise functions of arrays over clients, computed for some thousand clients at a time.

What such a function computes on the way then stays in the processor's cache instead of going to memory and back, and
needs no memory of its own. Each result is that of one client, so blocks change no bit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CLIENTS_PER_BLOCK = 16_384  # 128 kB of each array

Value = TypeVar("Value", bound="DataclassInstance")


def blocks(count: int, size: int = CLIENTS_PER_BLOCK) -> Iterator[slice]:
    """Slices of at most `size` that cover so many clients."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def in_blocks(function: Callable[..., Any], *arrays: Any) -> Any:
    """function(*arrays), an array or a tuple of arrays over clients, of a function that works elementwise.

    arrays  (N,) each
    """
    count = len(arrays[0])
    if count <= CLIENTS_PER_BLOCK:
        return function(*arrays)
    results: list[np.ndarray] = []
    several = False
    for block in blocks(count):
        found = function(*(array[block] for array in arrays))
        if not results:
            several = isinstance(found, tuple)
            results = _empty([part.dtype for part in (found if several else (found,))], count)
        for result, part in zip(results, found if several else (found,), strict=True):
            result[block] = part
    return tuple(results) if several else results[0]


def _empty(kinds: list[np.dtype[Any]], count: int) -> list[np.ndarray]:
    """An array over clients of each kind; those of one kind lie side by side: one request for memory is faster."""
    rows = {kind: iter(np.empty((kinds.count(kind), count), dtype=kind)) for kind in set(kinds)}
    return [next(rows[kind]) for kind in kinds]


def of_block(value: Value, block: slice, count: int) -> Value:
    """A frozen dataclass with this block of each of its fields that is an array (N,) over these clients."""
    own = {field.name: getattr(value, field.name) for field in fields(value)}
    return replace(
        value, **{name: array[block] for name, array in own.items() if getattr(array, "shape", None) == (count,)}
    )
