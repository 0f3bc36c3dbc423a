"""The plan of either kind of job, for `truthfl plan` to print."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truthfl.adversary.plan_warnings import honest_cost
from truthfl.cli.progress import ActivityProgress, progress_bar
from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.deviation import absence_rise
from truthfl.mechanism.economics import PlanEconomics, WarnFactors, plan_economics
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism, PlanInputs
from truthfl.mechanism.observation import COLLECTED_BY_JOBS, Observation
from truthfl.mechanism.setting import Clients, Training

if TYPE_CHECKING:
    from truthfl.adversary.pilot_lies import PilotLies
    from truthfl.job import ConstantsJob, DataJob, ServerSettings
    from truthfl.learning.planning import Plan
    from truthfl.studies.work import Workers

HUNDREDTH = 0.01


@dataclass(frozen=True)
class Planned:
    """The plan of either kind of job.

    basis        the loss model in words, for the printed plan
    worth        (clients,) what each client's work is worth to the server, in money, with its standard error
    rent         (clients,) what is paid beyond cost and margins so that clients state their true costs; None if costs
                 are known
    lies         what a short search for lies found on pilot data; None for a job without data
    worth_of_all    of all work together, untrained_loss: the loss without any; None if not known. See `PlanEconomics`
    factors         above which multiples of cost and worth expected pay is warned of
    largest_factor  the largest expected pay that is offered under a contract without caps, as a multiple of cost; None
                    if there is no limit
    """

    clients: Clients
    training: Training
    model: LossModel
    contract: Mechanism
    loss_value: float
    test_samples: int
    loss_variance: float
    basis: str
    worth: FloatArray
    worth_error: FloatArray
    lies: PilotLies | None = None
    rent: FloatArray | None = None
    worth_of_all: float | None = None
    untrained_loss: float | None = None
    factors: WarnFactors | None = None
    largest_factor: float | None = None

    def economics(self, expected_pay: FloatArray) -> PlanEconomics:
        """Worth, cost and pay of all work, with this expected pay (clients,)."""
        return plan_economics(
            cost=self.cost,
            expected_pay=expected_pay,
            most_pay=self.contract.pay_range(0.0, self.expected_loss)[1],
            has_cap=self.contract.has_cap,
            own_worth=self.worth,
            worth=self.worth_of_all,
            untrained_loss=self.untrained_loss,
            factors=self.factors,
        )

    def above_limit(self, expected_pay: FloatArray) -> int:
        """How many clients would get no offer, because it would pay more than the job allows."""
        if self.largest_factor is None:
            return 0
        return int(np.count_nonzero(expected_pay > self.largest_factor * self.cost))

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each client's pay: half the difference of her pay at loss ± one deviation."""
        return np.abs(self._difference(math.sqrt(self.loss_variance / self.test_samples))) / 2.0

    @property
    def slope(self) -> FloatArray:
        """Pay that each client loses per unit of test loss, around the expected loss."""
        return self._difference(HUNDREDTH) / (2 * HUNDREDTH)

    def _difference(self, step: float) -> FloatArray:
        """Pay at the expected loss − step, less that at + step; NaN if pay needs evidence that jobs do not collect."""
        low, high = (self.contract.pay(Observation(self.expected_loss + sign * step)) for sign in (-1, 1))
        known = not self.contract.needs - COLLECTED_BY_JOBS
        return np.asarray(low - high if known else np.full(len(self.clients), np.nan), dtype=float)

    @property
    def cost(self) -> FloatArray:
        """The cost of each client's honest work."""
        return honest_cost(self.clients, self.training, self.contract.batch_size)

    @property
    def expected_loss(self) -> float:
        return self.model.truthful_loss(self.contract.batch_size)


def plan_constants_job(job: ConstantsJob) -> Planned:
    """Plan on the job's bound."""
    model, server = job.loss_model(), job.server
    contract = job.plan(model)
    worth = server.loss_value * absence_rise(model, contract.batch_size)
    return Planned(
        job.clients,
        job.training,
        model,
        contract,
        server.loss_value,
        server.test_samples,
        server.loss_variance,
        basis=f"{server.bound} bound",
        worth=worth,
        worth_error=np.zeros_like(worth),
        worth_of_all=float(worth.sum()),  # the bound is a sum over clients
        factors=server.warn_factors,
        rent=_rents(server, job.clients, model, job.training),
    )


def plan_and_search(
    job: DataJob, workers: int | Workers | None = None, folder: Path = Path()
) -> tuple[Plan, PilotLies]:
    """Plan on pilot data and search for lies there, with a progress bar; workers elsewhere keep results in a folder."""
    from truthfl.adversary.pilot_lies import search_on_pilot

    with progress_bar() as report_progress:
        progress = report_progress or (lambda *_: None)
        progress("trying out on pilot data", 0, 0)
        side = job.server_side()
        with _trained_by(workers, job, folder, progress, "trying out on pilot data"):
            plan = job.plan(side)
        progress("searching for lies", 0, 0)
        with _trained_by(workers, job, folder, progress, "searching for lies"):
            return plan, search_on_pilot(plan.side, plan)


def _trained_by(
    workers: int | Workers | None, job: DataJob, folder: Path, progress: ActivityProgress, activity: str
) -> AbstractContextManager[None]:
    """The context of one activity, in which workers elsewhere train."""
    if workers is None or isinstance(workers, int):
        return nullcontext()
    from truthfl.files import require_writable
    from truthfl.studies.cluster.planning import can_be_planned_elsewhere, planned_by
    from truthfl.studies.work import Store

    if not can_be_planned_elsewhere(job):
        raise InputError("--on plans with the tasks and aggregations that come along; plan one of your own without it.")
    require_writable(folder)
    return planned_by(workers, Store(folder / "tasks"), partial(progress, activity))


def plan_data_job(job: DataJob, plan: Plan, lies: PilotLies) -> Planned:
    """The plan of a job on data."""
    from truthfl.learning.plan_worth import plan_worth

    worth = plan_worth(plan, job.server.loss_value, lies.absence.mean)
    return Planned(
        plan.clients,
        plan.training,
        plan.calibration.model,
        plan.contract,
        job.server.loss_value,
        job.server.test_samples,
        plan.loss_variance,
        basis=f"calibrated, R² {plan.calibration.sampling_r_squared:.3f}, step size {plan.training.step_size:.3g}",
        worth=worth.own,
        worth_error=job.server.loss_value * lies.absence.error,
        lies=lies,
        worth_of_all=worth.all_work,
        untrained_loss=worth.untrained_loss,
        factors=job.server.warn_factors,
        largest_factor=None if plan.contract.has_cap else job.server.most_expected_pay,
        rent=_rents(job.server, plan.clients, plan.calibration.model, plan.training),
    )


def _rents(server: ServerSettings, clients: Clients, model: LossModel, training: Training) -> FloatArray | None:
    if server.cost_distribution is None:
        return None
    from truthfl.job.cost_distribution import cost_distribution
    from truthfl.mechanism.screened_plan import stated_rents

    distribution = cost_distribution(server.cost_distribution)
    return stated_rents(PlanInputs(clients, model, training, server.loss_value, cost_distribution=distribution))
