"""A progress bar, and messages when long work is interrupted or fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from truthfl.cli.exit_codes import FAILED, INTERRUPTED

ActivityProgress = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished steps and the number of all steps, 0 if unknown."""


@contextmanager
def progress_bar() -> Iterator[ActivityProgress | None]:
    """Show a progress bar on standard error; yield the function that updates it, or None if that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("starting", total=None)

        def progress(activity: str, finished: int, total: int) -> None:
            bars.update(bar, description=activity, completed=finished, total=total or None)

        yield progress


@contextmanager
def exit_on_failure(folder: Path) -> Iterator[None]:
    """Exit with one sentence if the work is interrupted or fails; its partial results are in the folder."""
    from truthfl.studies.work import WorkError

    try:
        yield
    except KeyboardInterrupt:
        print(f"truthfl: interrupted; what was done is kept in {folder}, and the same call goes on.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except WorkError as error:
        print(f"truthfl: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
