"""What the server does before it announces anything, on data of its own: finds a step size, fits the loss model.

Looks at `paper`, `cells`, `work`, `learning` and the mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truthfl.learning.calibration import Calibration, Pilot, calibrate
from truthfl.learning.gradients import Gradients
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.cells import Cell, Seen, scene_of, with_client
from truthfl.studies.reproduce.paper import Paper
from truthfl.studies.work import Result, WorkItem


def search_task(paper: Paper) -> WorkItem:
    """The search for the step size that serves all rounds best."""
    low, high = paper.step_range
    settings = {
        "rounds": paper.rounds,
        "batch_size": paper.batch_size,
        "low": low,
        "high": high,
        "seeds": paper.search_seeds,
    }
    return WorkItem("studies.cells:tune_step", paper.place.said() | settings)


def found_step(result: Result) -> float:
    """Three digits of it: more are chance."""
    return float(f"{float(result['best']):.3g}")


def gradients_task(paper: Paper, step_size: float) -> WorkItem:
    """How gradients vary, at this step size."""
    settings = {"rounds": paper.rounds, "step_size": step_size, "batch_size": paper.batch_size}
    return WorkItem("studies.cells:sample_gradients", paper.place.said() | settings)


def pilot_cells(paper: Paper, step_size: float) -> list[Cell]:
    """Honest at several batch sizes; then one client after the other does not label, or scales her report."""

    def cell(size: int, effort: tuple[float, ...] | float = 1.0, scale: tuple[float, ...] | float = 1.0) -> Cell:
        return Cell(paper.place, paper.rounds, step_size, size, effort, scale, every=paper.every, pilot=True)

    count = paper.clients
    honest = [cell(size) for size in paper.pilot_batch_sizes]
    idle = [cell(paper.batch_size, effort=with_client(1.0, count, 0.0, (i,))) for i in range(count)]
    scaled = [
        cell(paper.batch_size, scale=with_client(1.0, count, scale, (i,)))
        for scale in paper.pilot_report_scales
        for i in range(count)
    ]
    return [*honest, *idle, *scaled]


def calibration_at(
    paper: Paper, rounds: int, cells: Sequence[Cell], seen: Sequence[Seen], gradients: Result
) -> Calibration:
    """The loss model that fits what the pilot had reached after so many rounds."""
    seeds = paper.pilot_seeds
    profiles = [
        np.repeat([cell.each(getattr(cell, field)) for cell in cells], seeds, axis=0)
        for field in ("labeling_effort", "batch_size", "report_scale")
    ]
    loss = np.concatenate([one.test_loss_at(rounds) for one in seen])
    sampled = Gradients(
        gradients["gradient_variance"], float(gradients["label_shift"]), float(gradients["gradient_bound"])
    )
    return calibrate(scene_of(**paper.place.said()).pilot, Pilot(Strategies(*profiles), loss), sampled)


def shows_work(found: Calibration) -> bool:
    """Whether batches and labels have a price in this loss model, without which there is no contract on it."""
    return bool(found.model.sampling.min() > 0 and found.model.labeling.min() > 0)
