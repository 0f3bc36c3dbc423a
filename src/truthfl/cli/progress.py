"""How long work shows that it goes on: a bar on standard error where that is a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

FAILED, INTERRUPTED = 1, 130

Watch = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""


@contextmanager
def progress() -> Iterator[Watch | None]:
    """A bar, as long as this lasts."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = Console(stderr=True)
    if not shown.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=shown, transient=True) as bars:
        bar = bars.add_task("starting", total=None)

        def watch(what: str, done: int, number: int) -> None:
            bars.update(bar, description=what, completed=done, total=number or None)

        yield watch


@contextmanager
def kept_work(folder: Path) -> Iterator[None]:
    """Work whose results are kept in a folder: an interruption, or a piece that fails, leaves as one sentence."""
    from truthfl.studies.work import WorkError

    try:
        yield
    except KeyboardInterrupt:
        print(f"truthfl: interrupted; what was done is kept in {folder}, and the same call goes on.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except WorkError as error:
        print(f"truthfl: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
