"""Figure 5: the accuracy by round, of the trainings of Figure 4. Looks at `figure_4`, `paper`, `figure`, `claims`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure
from truthfl.studies.cells import Seen
from truthfl.studies.reproduce.claims import Claim, sampled_claim
from truthfl.studies.reproduce.figure_4 import cells, panels, said_caption, steps, untruthful
from truthfl.studies.reproduce.paper import Key, Paper, Prepared, Study


def figure(paper: Paper, prepared: Prepared, seen: Mapping[Key, Seen]) -> Figure:
    return Figure(
        5,
        "Scaled reports and the accuracy",
        said_caption(paper, prepared) + " Accuracy: share of the test set that the model gets right.",
        panels(paper, prepared, seen, "accuracy", "test accuracy (share)"),
    )


def claims(paper: Paper, prepared: Prepared, seen: Mapping[Key, Seen]) -> list[Claim]:
    def wrong(step: str, scale: float) -> NDArray[np.float64]:
        return 100.0 * (1.0 - seen[step, scale].accuracy[:, -1])

    return [
        sampled_claim(
            "5",
            f"The accuracy is highest when all report what they computed ({step}, {size:g}).",
            "percentage points lost:",
            untruthful(paper, partial(wrong, step)),
            reason="A larger report acts like a larger step, which helps while the step is smaller than the best one.",
        )
        for step, size in steps(paper, prepared).items()
    ]


STUDY = Study("5", lambda _: (), cells, figure, claims)
