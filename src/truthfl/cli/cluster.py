"""The option `--on` of commands that train much: a Ray cluster does it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.studies.work import Workers

On = Annotated[
    str | None,
    typer.Option(
        metavar="ray[://HOST:PORT]",
        help="Have a Ray cluster train: ray for one on this machine, ray://HOST:PORT for one elsewhere.",
    ),
]


@contextmanager
def workers_on(on: str | None, workers: int | None = None) -> Iterator[int | Workers | None]:
    """The workers of a study: the cluster that is named, or else so many processes."""
    if on is None:
        yield workers
        return
    if workers is not None:
        raise InputError("--workers is a number of processes on this machine; with --on the cluster has its own.")
    from truthfl.studies.cluster.ray_workers import RayWorkers

    with RayWorkers(on) as cluster:
        yield cluster
    if cluster.repeated:
        tasks = "1 task was" if cluster.repeated == 1 else f"{cluster.repeated:,} tasks were"
        print(f"truthfl: {tasks} computed again, because a process or node was lost.", file=sys.stderr)
