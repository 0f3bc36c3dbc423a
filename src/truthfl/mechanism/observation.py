"""What a mechanism may see when it pays. Imports `checks` only.

A mechanism never sees effort, batches or labels: it sees the final test loss, whose reports were taken, what clients
claim, and how much worse the model would be without a client's reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike


class Evidence(Enum):
    """A kind of evidence that a mechanism can ask for. What a job collects is in `COLLECTED_BY_JOBS`."""

    TEST_LOSS = "the test loss"
    DELIVERED_ROUNDS = "delivered rounds"
    CLAIMED_BATCH = "claimed batch sizes"
    LEAVE_ONE_OUT = "leave-one-out contributions"
    SHAPLEY = "shapley contributions"


COLLECTED_BY_JOBS = frozenset({Evidence.TEST_LOSS, Evidence.DELIVERED_ROUNDS})
CONTRIBUTIONS = frozenset({Evidence.LEAVE_ONE_OUT, Evidence.SHAPLEY})


@dataclass(frozen=True)
class Observation:
    """What is seen when client i is paid, at position i of each field; fields broadcast to (…, N).

    In one job every position sees the same world. To ask what each client would be paid had she alone behaved
    otherwise, position i holds what would be seen in that world.

    test_loss           loss of the final model on the test sample
    claimed_batch_size  what the client says she used
    contribution        loss drop credited to her, by the `Evidence` that the mechanism asks for
    total_contribution  sum of everybody's contributions, counting none below 0
    contribution_error  standard error of her contribution; 0 where it is exact
    delivered, asked    in how many rounds her report was taken, of those in which she was asked; None: in all
    """

    test_loss: ArrayLike
    claimed_batch_size: ArrayLike = np.nan
    contribution: ArrayLike = np.nan
    total_contribution: ArrayLike = np.nan
    contribution_error: ArrayLike = 0.0
    delivered: ArrayLike | None = None
    asked: ArrayLike | None = None
