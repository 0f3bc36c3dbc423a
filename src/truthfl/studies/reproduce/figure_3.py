"""Figure 3: accuracy by round of the cells of Figure 2."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure
from truthfl.studies.cells import CellResult
from truthfl.studies.reproduce.claims import Claim, comparison, sampled_claim
from truthfl.studies.reproduce.figure_2 import cells, idle_steps, panels, setting_caption
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study


def figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        3,
        "Effort and the accuracy",
        setting_caption(paper, pilot_result) + " Accuracy: share of the test set that the model gets right.",
        panels(paper, results, "accuracy", "test accuracy (share)"),
    )


def claims(paper: Paper, _pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def right(key: Key) -> NDArray[np.float64]:
        return 100.0 * results[key].accuracy[:, -1]

    return [
        sampled_claim(
            "3",
            "The accuracy rises as batches grow.",
            "percentage points gained:",
            [comparison(f"D {a} → {b}", right((b, 0)), right((a, 0))) for a, b in pairwise(paper.batch_sizes)],
        ),
        sampled_claim(
            "3",
            "Clients who do not label lower the accuracy.",
            "percentage points lost:",
            [comparison(what, right(fewer), right(more)) for what, fewer, more in idle_steps(paper)],
        ),
    ]


STUDY = Study("3", lambda _: (), cells, figure, claims)
