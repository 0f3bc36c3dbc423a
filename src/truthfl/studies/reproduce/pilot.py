"""What the server does before it announces anything, on data of its own: finds a step size, fits the loss model.

Looks at `paper`, `cells`, `work` and `learning`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truthfl.learning.calibration import Calibration, calibrate
from truthfl.learning.gradients import Gradients
from truthfl.learning.pilot_design import RunKind
from truthfl.learning.pilot_runs import Pilot, strategies_of
from truthfl.learning.step_size import StepSearch
from truthfl.studies.cells import Cell, Seen, scene_of
from truthfl.studies.reproduce.paper import Paper
from truthfl.studies.work import Result, WorkItem


def search_task(paper: Paper) -> WorkItem:
    """The search for the step size that serves all rounds best."""
    design = paper.pilot
    low, high = design.step_range
    settings = {
        "rounds": paper.rounds,
        "batch_size": design.lie_batch_size,
        "low": low,
        "high": high,
        "seeds": design.search_seeds or design.seeds,
    }
    return WorkItem("studies.cells:tune_step", paper.place.said() | settings)


def found_step(result: Result) -> float:
    """The step size that a plan would take, three digits of it: more are chance."""
    search = StepSearch(float(result["best"]), result["tried"], result["loss"], result["error"])
    return float(f"{search.bottom:.3g}")


def gradients_task(paper: Paper, step_size: float) -> WorkItem:
    """How gradients vary, at this step size."""
    settings = {"rounds": paper.rounds, "step_size": step_size, "batch_size": paper.pilot.lie_batch_size}
    return WorkItem("studies.cells:sample_gradients", paper.place.said() | settings)


def pilot_cell(paper: Paper, step_size: float, kind: RunKind) -> Cell:
    """Runs of this kind as a cell, on the server's own data."""
    return Cell(
        paper.place,
        paper.rounds,
        step_size,
        batch_size=tuple(kind.batch_size.tolist()),
        labeling_effort=tuple(kind.labeling_effort.tolist()),
        report_scale=tuple(kind.report_scale.tolist()),
        every=paper.every,
        pilot=True,
    )


def calibration_at(
    paper: Paper, rounds: int, kinds: Sequence[RunKind], seen: Sequence[Seen], gradients: Result
) -> Calibration:
    """The loss model that fits what the pilot had reached after so many rounds."""
    loss = np.concatenate([one.test_loss_at(rounds) for one in seen])
    sampled = Gradients(
        gradients["gradient_variance"], float(gradients["label_shift"]), float(gradients["gradient_bound"])
    )
    return calibrate(scene_of(**paper.place.said()).pilot, Pilot(strategies_of(kinds), loss), sampled)


def shows_work(found: Calibration) -> bool:
    """Whether batches and labels have a price in this loss model, without which there is no contract on it."""
    return bool(found.model.sampling.min() > 0 and found.model.labeling.min() > 0)
