"""How results are printed: plain tables that fit a terminal, or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_IN_A_PIPE = 100

JobFile = Annotated[
    Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; without it, the built-in example of ten clients.")
]


def console() -> Console:
    """Standard output; of a fixed width where it is not a terminal."""
    from rich.console import Console

    made = Console(highlight=False, markup=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, width=WIDTH_IN_A_PIPE)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int] = (0,)) -> Table:
    """Columns aligned to the right, except those that hold text; the last row set off if its first cell is "total"."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position in text else "right", overflow="fold")
    for row in rows:
        if row[0] == "total":
            made.add_section()
        made.add_row(*row)
    return made


def print_json(value: Any) -> None:
    """One JSON document, arrays as lists."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # NumPy's
