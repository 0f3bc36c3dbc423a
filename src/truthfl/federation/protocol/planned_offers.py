"""Plans a job for the enrolled clients and makes their offers, within the limits of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from truthfl.adversary.pilot_lies import PilotLies, plan_warnings, search_on_pilot
from truthfl.contracts.planning import Plan, plan_worth
from truthfl.contracts.setting import FloatArray, batch_price
from truthfl.errors import InfeasibleError, InputError
from truthfl.federation.protocol.enrolment import Roster, reckoned, require_within
from truthfl.federation.protocol.job_task import task_terms
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.instructions import Instructions
from truthfl.job import DataJob, ServerSettings, participants
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.training.aggregation import is_own
from truthfl.ledger.terms import FEWEST_MASKED, MEAN, MOST_OF_ALL, OWN, Agreement, TriedLie, weights_fault
from truthfl.texts import plain

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PlannedPay:
    """Each client's cost of honest work, expected pay, and limited pay, in the job's money.

    limited  the pay cap, or expected pay under a contract without caps
    factor   the most that `limited` may be, as a multiple of cost
    """

    cost: FloatArray
    expected: FloatArray
    limited: FloatArray
    factor: float

    @property
    def too_much(self) -> np.ndarray:
        """(clients,) whether an offer would pay more than the job allows."""
        return np.asarray(~(self.limited <= self.factor * self.cost * (1.0 + ROUNDING)))


def planned_pay(promise: Promise, server: ServerSettings) -> PlannedPay:
    """What the promise pays and costs."""
    clients, contract = promise.clients, promise.contract
    computing = batch_price(clients, promise.training) * contract.batch_size
    alone = np.asarray(promise.audition_cost or 0.0, dtype=float)
    expected = contract.pay_at(promise.expected_loss)
    capped = contract.has_cap
    return PlannedPay(
        cost=np.asarray(clients.labeling_cost + alone + computing),
        expected=expected,
        limited=contract.pay_range(0.0, promise.expected_loss)[1] if capped else expected,
        factor=server.most_pay if capped else server.most_expected_pay,
    )


def require_within_limits(promise: Promise, server: ServerSettings) -> None:
    """Raise `InputError` if an offer would pay more than the job allows, or all together more than its budget."""
    pay = planned_pay(promise, server)
    if pay.too_much.any():
        who = int(np.argmax(pay.too_much))
        raise InputError(f"{promise.clients.label(who)}: {too_much_in_words(promise, pay, who)}.")
    if server.budget is None:
        return
    bounds_caps = server.budget_bounds == "caps"
    if bounds_caps and not promise.contract.has_cap:
        raise InputError(
            f'budget_bounds is "caps", and pay under the contract {promise.contract.kind!r} has no cap; with '
            '"expected" the budget bounds expected pay.'
        )
    total = float((pay.limited if bounds_caps else pay.expected).sum())
    if total > server.budget * (1.0 + ROUNDING):
        what = "the caps add up to" if bounds_caps else "expected pay is"
        raise InputError(f"budget is {server.budget:g}; {what} {total:,.2f}: raise the budget, or leave clients out.")


def too_much_in_words(promise: Promise, pay: PlannedPay, client: int) -> str:
    """Why this client gets no offer."""
    what, field = ("up to", "most_pay") if promise.contract.has_cap else ("an expected", "most_expected_pay")
    return (
        f"an offer would pay {what} {pay.limited[client]:,.2f} for work that costs {pay.cost[client]:,.2f}, and "
        f"{field} allows {pay.factor:g} times the cost"
    )


NOT_ASKED = "the plan does without them"
_NO_OFFER = "no batch within these samples makes labeling worth while"

MakePlan = Callable[[DataJob, ServerSide], Plan]


def planned_offers(
    roster: Roster,
    job: DataJob,
    make_plan: MakePlan,
    opening: Opening,
    instructions: Instructions | None,
    names: list[str],
    version: int,
) -> tuple[dict[str, Any], Agreement]:
    """Return the plan's ledger document for these clients, without the terms, and their offers.

    instructions  about the classes, for the terms

    Clients for whom no sound offer exists are left out, with the reason in the document; the others are planned again.
    """
    left_out = _unfit_statements(roster, names)
    while True:
        asked = [name for name in names if name not in left_out]
        if not asked:
            raise InputError(f"nobody can be asked; {next(iter(left_out))}: {next(iter(left_out.values()))}.")
        planned_job = _with_enrolled_clients(roster, job, asked)
        side = planned_job.server_side()
        try:
            plan = make_plan(planned_job, side)
        except InfeasibleError as error:
            if not error.clients or len(error.clients) == len(asked):
                raise
            reason = plain(error).rstrip(".") if len(error.clients) == 1 else _NO_OFFER
            left_out |= dict.fromkeys((asked[k] for k in error.clients), reason)
            continue
        promise = _promise(plan, planned_job)
        pay = planned_pay(promise, job.server)
        too_much = np.flatnonzero(pay.too_much).tolist()
        if not too_much or len(too_much) == len(promise.clients):
            break
        chosen = promise.clients.name or ()
        left_out |= {chosen[k]: too_much_in_words(promise, pay, k) for k in too_much}
    require_within_limits(promise, job.server)
    promised = set(plan.clients.name or ())
    left_out |= {name: plan.left_out.get(name, NOT_ASKED) for name in planned_job.clients.name if name not in promised}
    found = search_on_pilot(plan.side, plan)
    promise = replace(promise, lies=_lies_by_client(plan, found), lies_tried=found.points)
    samples = planned_job.server.test_samples
    task = TrainingTask(
        planned_job.trained_model.document(),
        side.test.features.shape[1:],
        side.test.classes,
        samples,
        task_terms(planned_job.task, side.task),
        instructions,
    )
    worth = plan_worth(plan, planned_job.server.loss_value, found.absence.mean, found.absence.error)
    document = _plan_document(plan) | {
        "worth": worth.own.tolist(),
        "worth_of_all": worth.all_work,
        "untrained_loss": worth.untrained_loss,
    }
    if left_out:
        document["left_out"] = {name: left_out[name] for name in names if name in left_out}
    agreement = agreement_of(promise, roster, opening, task, version)
    most_labels = max(offer.client.samples for offer in agreement.offers)
    document["warnings"] = [
        *plan_warnings(plan, found, worth),
        *job.server.label_time_warnings(most_labels),
        *mask_warnings(job, plan),
    ]
    return document, agreement


def _unfit_statements(roster: Roster, names: list[str]) -> dict[str, str]:
    """By name: why the plan cannot use a client's statements, which may be from an earlier start of the server."""
    unfit = {}
    for name in names:
        try:
            if name in roster.limits:
                require_within(roster.descriptions[name], roster.limits[name])
        except InputError as error:
            unfit[name] = str(error).rstrip(".")
    return unfit


def _promise(plan: Plan, job: DataJob) -> Promise:
    """The plan's contract, before lies are searched under it."""
    return Promise(
        plan.clients,
        plan.training,
        plan.contract,
        plan.expected_loss,
        plan.loss_error,
        recipe=None if plan.recipe is None else plan.recipe.document(),
        report_bounds=plan.report_bounds,
        aggregation=OWN if is_own(job.aggregation) else job.aggregation,
        masked=masked_reports(job, plan),
        audition_cost=() if plan.recipe is None else np.asarray(plan.solo_cost).tolist(),
        loss_by_rounds=plan.loss_by_rounds,
        stated=() if job.server.cost_distribution is None else job.clients.stated or (),
        start=plan.start,
        solo_bound=plan.solo_bound,
    )


def masked_reports(job: DataJob, plan: Plan) -> bool:
    """Whether reports are masked; raise InputError if they must be, and the plan does not allow it."""
    if not plan.training.rounds:
        return False
    if job.privacy.secure_aggregation and len(plan.clients) < FEWEST_MASKED:
        raise InputError(
            f"[privacy] secure_aggregation is true, and {len(plan.clients)} would take part; masked reports need "
            f"{FEWEST_MASKED}."
        )
    fault = _masks_fault(plan)
    if job.privacy.secure_aggregation and fault is not None:
        raise InputError(f"[privacy] secure_aggregation is true, and {fault}: a sum would show a report.")
    if job.privacy.secure_aggregation is not None:
        return job.privacy.secure_aggregation
    return _are_masked_by_default(job, plan) and fault is None


def _are_masked_by_default(job: DataJob, plan: Plan) -> bool:
    """Whether reports are masked if the job does not decide it, and the weights allow it."""
    everybody = job.aggregation == MEAN and bool(plan.clients.participation.min() == 1.0)
    return everybody and len(plan.clients) >= FEWEST_MASKED and plan.training.rounds > 0


def _masks_fault(plan: Plan) -> str | None:
    """In words, why a sum of all reports would show one of them; None if it would not."""
    return weights_fault((plan.clients.weight / plan.clients.participation).tolist(), MOST_OF_ALL)


def mask_warnings(job: DataJob, plan: Plan) -> list[str]:
    """A sentence if reports would be masked but for their weights."""
    fault = _masks_fault(plan)
    if job.privacy.secure_aggregation is not None or not _are_masked_by_default(job, plan) or fault is None:
        return []
    return [f"Reports are not masked, since {fault}: a sum would show a report. You see each report."]


def _lies_by_client(plan: Plan, found: PilotLies) -> list[tuple[TriedLie, ...]]:
    batches = [lie.point.batch_size(plan.contract.batch_size, plan.clients.dataset_size) for lie in found.lies]
    return [
        tuple(
            TriedLie(
                kind=lie.point.kind,
                words=lie.point.words,
                labels=lie.point.labels,
                batch_size=int(batch[client]),
                delivered=lie.delivered,
                loss_rise=float(lie.rise.mean[client]),
                loss_rise_error=float(lie.rise.error[client]),
                solo_rise=lie.solo_rise,
                solo_rise_error=lie.solo_rise_error,
            )
            for lie, batch in zip(found.lies, batches, strict=True)
        )
        for client in range(len(plan.clients))
    ]


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "step_size": plan.training.step_size,
        "expected_loss": plan.expected_loss,
        "loss_error": plan.loss_error,
        "loss_variance": plan.loss_variance,
        **plan.details.document(plan),
    }


def _with_enrolled_clients(roster: Roster, job: DataJob, names: list[str]) -> DataJob:
    """The job with these clients only, each with the lower of their own and the job's sample numbers and costs."""
    clients = job.clients
    row_of = {name: row for row, name in enumerate(clients.name)}
    rows = [row_of[name] for name in names]
    own = [
        reckoned(roster.descriptions[name], roster.limits[name], float(clients.labeling_cost[row]))
        for name, row in zip(names, rows, strict=True)
    ]
    enrolled = participants(
        name=names,
        dataset_size=[client.samples for client in own],
        labeling_cost=[client.labeling_cost for client in own],
        sample_cost=[client.sample_cost for client in own],
        behaviour=[clients.behaviour[row] for row in rows],
        participation=[float(clients.participation[row]) for row in rows],
    )
    return job.with_clients(replace(enrolled, stated=tuple(client.stated for client in own)))
