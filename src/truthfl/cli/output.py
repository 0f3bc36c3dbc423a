"""Printing of results, as tables or JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truthfl.texts import plain, plain_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 100

JobFile = Annotated[
    Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; without it, the built-in example of ten clients.")
]


def console() -> Console:
    """Return a console for standard output, with a fixed width if that is not a terminal."""
    from rich.console import Console

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
    """Return a table; `text` has the positions of columns aligned to the left. A line separates a row of totals.

    Names and other texts in it may be of strangers. `lines`: whether a cell may have several lines, which only a table
    without names of strangers should.
    """
    from rich import box
    from rich.table import Table

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
