"""Where trainings are computed: by threads of this process, unless a study has them computed elsewhere.

`train`, `honest_runs` and `losses_of_groups` ask here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numpy.typing import NDArray

Elsewhere = Callable[[str, object, Sequence[object]], list[Mapping[str, NDArray[Any]]]]
"""From "module:function", what all calls have in common and what each has of its own: function(common, own) of each."""

MOST_THREADS = 64
MOST_BLOCKS = 64  # into which the runs of one call are divided
_elsewhere: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)
_most_threads = MOST_THREADS


@contextmanager
def computed_by(other: Elsewhere) -> Iterator[None]:
    """Have trainings that may use all cores computed by `other`."""
    before = _elsewhere.set(other)
    try:
        yield
    finally:
        _elsewhere.reset(before)


def elsewhere(threads: int | None) -> Elsewhere | None:
    """Who else computes a training with this number of threads; None: this process, as always if it is stated."""
    return None if threads is not None else _elsewhere.get()


def usual_threads() -> int:
    """The number of threads of a training that states none."""
    return min(os.cpu_count() or 1, _most_threads)


def limit_threads(most: int) -> None:
    """Let trainings of this process that state no number of threads have at most so many."""
    global _most_threads
    _most_threads = most
