"""`Observation`: the data from which a mechanism computes pay.

Effort, batches and labels are not observed. Observed are the final test loss, the delivered reports, the clients'
claims, the models that they train alone and, for some mechanisms, contributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike


class Evidence(Enum):
    """A kind of evidence that a mechanism can need. Jobs collect those in `COLLECTED_BY_JOBS`."""

    TEST_LOSS = "the test loss"
    DELIVERED_ROUNDS = "delivered rounds"
    CLAIMED_BATCH = "claimed batch sizes"
    LEAVE_ONE_OUT = "leave-one-out contributions"
    SHAPLEY = "shapley contributions"
    SOLO_LOSS = "solo models"


ALWAYS_COLLECTED = frozenset({Evidence.TEST_LOSS, Evidence.DELIVERED_ROUNDS})
COLLECTED_BY_JOBS = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}  # solo models if the mechanism needs them
CONTRIBUTIONS = frozenset({Evidence.LEAVE_ONE_OUT, Evidence.SHAPLEY})


@dataclass(frozen=True)
class Observation:
    """The observation from which client i is paid, at position i of each field; fields broadcast to (…, N).

    In a job all positions hold the same observation. To compute the pay of each client if she alone deviated, position
    i holds the observation of the scenario in which client i deviates.

    test_loss           loss of the final model on the test sample
    claimed_batch_size  the batch size that the client claims to have used
    contribution        loss drop credited to her, by the `Evidence` that the mechanism needs
    total_contribution  sum of all positive contributions
    contribution_error  standard error of her contribution; 0 where it is exact
    delivered, asked    number of rounds in which her report was accepted and in which she was asked; None: all rounds
    solo_loss           loss of the model that she trained alone; NaN if there is none, None for the expected one
    level_shift         shift of the expected solo loss, in standard deviations, by `peer_level.peer_shifts`
    present_labels      her labels and those of the others who took part, each times the share of rounds delivered;
                        None for all labels
    loss_rise           by how much the expected joint loss is higher because rounds did not change the model
    """

    test_loss: ArrayLike
    claimed_batch_size: ArrayLike = np.nan
    contribution: ArrayLike = np.nan
    total_contribution: ArrayLike = np.nan
    contribution_error: ArrayLike = 0.0
    delivered: ArrayLike | None = None
    asked: ArrayLike | None = None
    solo_loss: ArrayLike | None = None
    level_shift: ArrayLike = 0.0
    present_labels: ArrayLike | None = None
    loss_rise: ArrayLike = 0.0
