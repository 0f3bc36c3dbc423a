"""Types of audition planning: the operator's settings, how a plan came about, and its result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl.learning.audition_pilot import JointCurve
from truthfl.learning.federations import ServerSide
from truthfl.learning.pilot_measurement import PilotMeasurement
from truthfl.learning.recipe import Recipe
from truthfl.mechanism.audition_plan import AuditionMeasurement, AuditionPlan, label_task, require_measured
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.setting import Clients
from truthfl.mechanism.solo_curve import SoloCurve


@dataclass(frozen=True, eq=False)
class AuditionDetails:
    """How an audition plan came about.

    asked         positions, in the job, of the clients who are asked; the others are left out
    labels        numbers of labels asked of them
    recipe        of solo training
    solo          the solo curve
    joint         the joint curve
    inputs        from which the contract was computed
    plan          the contract's plan
    worth         (clients,) of those asked: what her labels are worth to the server, κ (A / (N − n_i) − A / N)
    loss_by_rounds  rise of the joint loss if training ends after 0, 1/k, 2/k, … of the rounds
    """

    asked: IntArray
    labels: IntArray
    recipe: Recipe
    solo: SoloCurve
    joint: JointCurve
    inputs: PlanInputs
    plan: AuditionPlan
    worth: FloatArray
    loss_by_rounds: tuple[float, ...]

    @property
    def measurement(self) -> AuditionMeasurement:
        """What the pilot measured for the contract."""
        return require_measured(self.inputs)

    def at_labels(self, factor: float) -> tuple[float, float, float]:
        """Joint loss, cost of labels and label pay of all, if this factor of the labels were asked of everybody."""
        task = label_task(self.inputs)
        labels = np.clip(np.rint(self.labels * factor), task.numbers[0], task.numbers[-1])
        noise = float((self.measurement.sampling / self.plan.contract.batch_size).sum())
        loss = self.measurement.constant + self.measurement.joint_curve / float(labels.sum()) + noise
        return loss, float((task.label_cost * labels).sum()), float(task.expected_pay(labels).sum())


@dataclass(frozen=True, eq=False)
class AuditionResult:
    """The details, the pilot's measurement at the labels asked for, the restricted side and clients, and the spread."""

    details: AuditionDetails
    pilot: PilotMeasurement
    side: ServerSide
    clients: Clients
    loss_error: float
    loss_variance: float


@dataclass(frozen=True)
class AuditionSettings:
    """The operator's settings: as in `PlanInputs`, and the number of test samples."""

    loss_value: float
    budget: float | None
    budget_bounds: str
    margin: float
    confidence: float
    most_pay: float
    test_samples: int
