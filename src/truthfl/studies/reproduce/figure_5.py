"""Figure 5: accuracy by round of the cells of Figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure
from truthfl.studies.cells import CellResult
from truthfl.studies.reproduce.claims import Claim, sampled_claim
from truthfl.studies.reproduce.figure_4 import cells, panels, scaling_caption, steps, untruthful
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study


def figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        5,
        "Scaled reports and the accuracy",
        scaling_caption(paper, pilot_result) + " Accuracy: share of the test set that the model gets right.",
        panels(paper, pilot_result, results, "accuracy", "test accuracy (share)"),
    )


def claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def wrong(step: str, scale: float) -> NDArray[np.float64]:
        return 100.0 * (1.0 - results[step, scale].accuracy[:, -1])

    return [
        sampled_claim(
            "5",
            f"The accuracy is highest when all report what they computed ({step}, {size:g}).",
            "percentage points lost:",
            untruthful(paper, partial(wrong, step)),
            reason="A larger report acts like a larger step, which helps while the step is smaller than the best one.",
        )
        for step, size in steps(paper, pilot_result).items()
    ]


STUDY = Study("5", lambda _: (), cells, figure, claims)
