"""`one_blas_thread`: matrix products in one thread each, while runs are distributed over the cores.

Sums are then the same for any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limits the BLAS libraries that were loaded when this was first called; those with one thread are left alone."""
    several = [(library, count) for library in _libraries() if (count := library.get_num_threads()) != 1]
    for library, _ in several:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in several:
            library.set_num_threads(count)


@cache
def _libraries() -> list[Any]:
    """Looks through all loaded libraries, which takes milliseconds."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
