"""The pilot on the server's own data: work items for the step search and the calibration runs, and their evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truthfl.learning.calibration import Calibration, calibrate
from truthfl.learning.gradients import Gradients
from truthfl.learning.pilot_design import RunKind
from truthfl.learning.pilot_runs import Pilot, strategies_of
from truthfl.learning.step_size import StepSearch
from truthfl.studies.cells import Cell, CellResult, federation_of
from truthfl.studies.reproduce.paper import Paper
from truthfl.studies.work import Result, WorkItem


def search_task(paper: Paper) -> WorkItem:
    """The work item of the step search."""
    design = paper.pilot
    low, high = design.step_range
    settings = {
        "rounds": paper.rounds,
        "batch_size": design.lie_batch_size,
        "low": low,
        "high": high,
        "seeds": design.search_seeds or design.seeds,
    }
    return WorkItem("studies.cells:tune_step", paper.federation.settings() | settings)


def step_size_of(result: Result) -> float:
    """The best step size by the result of the step search, rounded to three digits."""
    search = StepSearch(float(result["best"]), result["tried"], result["loss"], result["error"])
    return float(f"{search.parabola_minimum:.3g}")


def gradients_task(paper: Paper, step_size: float) -> WorkItem:
    """The work item that measures gradients at this step size."""
    settings = {"rounds": paper.rounds, "step_size": step_size, "batch_size": paper.pilot.lie_batch_size}
    return WorkItem("studies.cells:sample_gradients", paper.federation.settings() | settings)


def pilot_cell(paper: Paper, step_size: float, kind: RunKind) -> Cell:
    """The cell of one kind of pilot run."""
    return Cell(
        paper.federation,
        paper.rounds,
        step_size,
        batch_size=tuple(kind.batch_size.tolist()),
        labeling_effort=tuple(kind.labeling_effort.tolist()),
        report_scale=tuple(kind.report_scale.tolist()),
        every=paper.every,
        pilot=True,
    )


def calibration_at(
    paper: Paper, rounds: int, kinds: Sequence[RunKind], results: Sequence[CellResult], gradients: Result
) -> Calibration:
    """The loss model fitted to the test losses of the pilot runs after this number of rounds."""
    loss = np.concatenate([result.test_loss_at(rounds) for result in results])
    measured = Gradients(
        gradients["gradient_variance"], float(gradients["label_shift"]), float(gradients["gradient_bound"])
    )
    return calibrate(federation_of(**paper.federation.settings()).pilot, Pilot(strategies_of(kinds), loss), measured)


def has_work_prices(calibration: Calibration) -> bool:
    """Whether batches and labels affect the loss in this loss model; without that there is no contract on it."""
    return bool(calibration.model.sampling.min() > 0 and calibration.model.labeling.min() > 0)
