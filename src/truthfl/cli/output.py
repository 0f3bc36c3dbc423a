"""Prints results, tables, progress and messages."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from truthfl.errors import FAILED, INTERRUPTED
from truthfl.studies.work import WorkError
from truthfl.texts import plain, plain_lines

PIPE_WIDTH = 100

JobFile = Annotated[
    Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; without it, the built-in example of ten clients.")
]


def console() -> Console:
    """Return a console for standard output, with a fixed width if that is not a terminal."""
    screen = Console(highlight=False, markup=False)
    return screen if screen.is_terminal else Console(highlight=False, markup=False, width=PIPE_WIDTH)


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: Sequence[int] = (0,),
    lines: bool = False,
) -> Table:
    """Return a table; `text` has the positions of left-aligned columns. A line separates a row of totals.

    Names and other texts in it may come from strangers. `lines` says whether a cell may have several lines; use it only
    for tables without strangers' names.
    """
    result = Table(title=plain(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        result.add_column(column, justify="left" if position in text else "right", overflow="fold")
    for row in rows:
        if row[0] == "total":
            result.add_section()
        result.add_row(*map(plain_lines if lines else plain, row))
    return result


def print_json(value: Any) -> None:
    """Print a value as JSON; dataclasses become objects, arrays lists, and numbers that are not finite null."""
    print(json.dumps(_json_value(value), indent=2, ensure_ascii=False, allow_nan=False))


def _json_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return _json_value(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


ActivityProgress = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished steps and the number of all steps, 0 if unknown."""


@contextmanager
def progress_bar() -> Iterator[ActivityProgress | None]:
    """Show a progress bar on standard error; yield the function that updates it, or None without a terminal."""
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
    """Exit with one sentence if the work is interrupted or fails; partial results stay in the folder."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"truthfl: interrupted; what was done is kept in {folder}, and the same call goes on.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except WorkError as error:
        print(f"truthfl: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
