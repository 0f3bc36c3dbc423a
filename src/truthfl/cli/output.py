"""Prints results, tables, progress, QR codes and messages."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truthfl.errors import FAILED, INTERRUPTED
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.privacy_promise import PromisedPrivacy, promised_privacy
from truthfl.texts import plain, plain_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from truthfl.contracts.planning import Plan


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
    """Return a table; `text` has the positions of left-aligned columns. A line separates a row of totals.

    Names and other texts in it may come from strangers. `lines` says whether a cell may have several lines; use it only
    for tables without strangers' names.
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


ActivityProgress = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished steps and the number of all steps, 0 if unknown."""


@contextmanager
def progress_bar() -> Iterator[ActivityProgress | None]:
    """Show a progress bar on standard error; yield the function that updates it, or None without a terminal."""
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
    """Exit with one sentence if the work is interrupted or fails; partial results stay in the folder."""
    from truthfl.studies.work import WorkError

    try:
        yield
    except KeyboardInterrupt:
        print(f"truthfl: interrupted; what was done is kept in {folder}, and the same call goes on.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except WorkError as error:
        print(f"truthfl: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None


QUIET = 4  # light modules that must surround the code
LIGHT_ON_DARK = "\x1b[38;5;231;48;5;16m"  # white and black that no colour scheme changes
RESET = "\x1b[0m"
HALVES = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # of upper and lower module: 1 is dark


def qr_matrix(text: str) -> list[list[int]]:
    """The modules of the code with its light border, row by row: 1 is dark."""
    import segno

    return [list(map(int, row)) for row in segno.make_qr(text, error="l").matrix_iter(border=QUIET)]


def qr_lines(text: str, *, colours: bool) -> list[str]:
    """The code with two modules in each character, light ones drawn.

    colours  sets white and black by escape codes; without them, the terminal's background must be dark
    """
    rows = qr_matrix(text)
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    lines = [
        "".join(HALVES[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]
    return [f"{LIGHT_ON_DARK}{line}{RESET}" for line in lines] if colours else lines


def promises(plan: Plan) -> list[PromisedPrivacy]:
    """The promise to each client; empty if gradients are not clipped."""
    model, training = plan.side.pilot.model, plan.training
    if not isinstance(model, PrivateModel):
        return []
    return [
        promised_privacy(
            model.clip,
            model.noise,
            samples=int(samples),
            batch_size=float(batch),
            steps=training.rounds * training.local_steps,
            recipe=plan.recipe,
        )
        for samples, batch in zip(plan.clients.dataset_size, plan.contract.batch_size, strict=True)
    ]


def privacy_json(plan: Plan) -> dict[str, object]:
    """ε of each client and δ; empty without noise."""
    found = promises(plan)
    if not found or not found[0].noise:
        return {}
    return {"privacy": {"epsilon": [one.epsilon for one in found], "delta": found[0].delta}}


def privacy_sentence(plan: Plan) -> str | None:
    """What the noise promises; None if gradients are not clipped."""
    found = promises(plan)
    if not found:
        return None
    if not found[0].noise:
        return "Gradients are clipped; without noise that promises nothing of what can be learned from them."
    least, most = min(one.epsilon for one in found), max(one.epsilon for one in found)
    return (
        f"Noise of {found[0].noise:g} times clip: each client's epsilon, for all that they send in this job, is "
        f"{least:.1f} to {most:.1f} at a delta of {found[0].delta:g}."
    )
