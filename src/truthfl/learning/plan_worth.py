"""What the work of a plan is worth to the server: that of each client, and all of it together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl.learning.planning import Plan
from truthfl.mechanism.checks import FloatArray

START_SEEDS = range(4)  # of initial models, over which their loss is averaged


@dataclass(frozen=True, eq=False)
class PlanWorth:
    """In the job's money.

    untrained_loss  the test loss of a model that nobody trained
    all_work        loss_value times (untrained_loss − the expected loss)
    own             (clients,) loss_value times the rise of the loss without one client's work; of an audition by its
                    joint curve, of other contracts as measured in pilot runs without her
    """

    untrained_loss: float
    all_work: float
    own: FloatArray


def plan_worth(plan: Plan, loss_value: float, absence: FloatArray) -> PlanWorth:
    """The worth of the plan's work; `absence`: the measured rise of the loss without each client."""
    model, test = plan.side.pilot.model, plan.side.test
    untrained = float(np.mean([model.loss(model.init(seed), test.features, test.labels) for seed in START_SEEDS]))
    all_work = loss_value * (untrained - plan.expected_loss)
    if plan.audition is None:
        return PlanWorth(untrained, all_work, loss_value * absence)
    # The curve A / N has no value where nobody is left: one client's work is worth no more than all.
    return PlanWorth(untrained, all_work, np.minimum(plan.audition.worth, max(all_work, 0.0)))
