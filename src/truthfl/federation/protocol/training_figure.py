"""Loss and accuracy of a job's model by round, as data and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truthfl.files import write_file
from truthfl.ledger.job_view import JobView
from truthfl.reporting.figure import Figure, Panel, Series, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Plot

FILES = ("training.png", "training.svg", "training.csv")


def evaluations(view: JobView) -> list[dict[str, Any]]:
    """Rounds after which the model was evaluated; without rounds, the test of the model from which training starts."""
    assert view.test is not None
    evaluated = [entry.document for entry in view.rounds if "loss" in entry.document]
    return evaluated or [{"round": 0} | view.test.document]


def training_figure(view: JobView) -> Figure:
    """A figure of test loss and accuracy by round."""
    evaluated = evaluations(view)
    rounds = tuple(float(one["round"]) for one in evaluated)

    def line(title: str, label: str, values: tuple[float, ...]) -> Panel:
        return Panel(title, "round", label, (Series("this job", rounds, values, values, values),))

    return Figure(
        number=1,
        title="Training",
        caption="Loss and accuracy of the common model on the test set, round by round.",
        panels=(
            line("Test loss", "loss (nats per sample)", tuple(one["loss"] for one in evaluated)),
            line("Accuracy", "share of test samples", tuple(one["accuracy"] for one in evaluated)),
        ),
    )


def write_training_plot(view: JobView, folder: Path, *more_files: str) -> Plot:
    """Write the figure to files in this folder; return it as a part of a report that links them and `more_files`."""
    figure = training_figure(view)
    png, svg = figure_pictures(figure)
    for name, content in zip(FILES, (png, svg.encode(), figure_csv(figure).encode()), strict=True):
        write_file(folder / name, content)
    panels = [panel_svg(panel, f"run{number}") for number, panel in enumerate(figure.panels)]
    return Plot(panels, figure.caption, (*FILES, *more_files))
