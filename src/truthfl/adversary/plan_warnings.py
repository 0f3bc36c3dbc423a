"""What speaks against making a plan's offers, beside what they cost: for `truthfl plan` and for approval."""

from __future__ import annotations

import numpy as np

from truthfl.adversary.pilot_lies import PilotLies
from truthfl.learning.plan_worth import PlanWorth
from truthfl.learning.planning import Plan
from truthfl.learning.private_model import PrivateModel
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.deviation import free_riding_gain, pay_resolution
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.payoff import work_cost
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.strategies import Strategies

CERTAIN = 2.0  # standard errors by which a difference must exceed its error to be reported


def plan_warnings(plan: Plan, lies: PilotLies, worth: PlanWorth, loss_value: float) -> list[str]:
    """Of the plan of a job on data: what `truthfl plan` says against it, except of money and of who is not asked."""
    present = presence_sentences(plan.clients)
    if plan.audition is not None:
        return [*present, *audition_warnings(plan), *lie_sentences(lies)]
    cost = honest_cost(plan.clients, plan.training, plan.contract.batch_size)
    return [
        *present,
        *worth_warnings(worth.own, loss_value * lies.absence.error, cost),
        *lie_sentences(lies),
        *idle_warnings(plan.contract, plan.clients, plan.calibration.model, plan.training),
    ]


def honest_cost(clients: Clients, training: Training, batch_size: FloatArray) -> FloatArray:
    """(clients,) The cost of each client's honest work."""
    return work_cost(clients, training, Strategies.truthful(batch_size))


def audition_warnings(plan: Plan) -> list[str]:
    """What the pilot of an audition did not show, and who would gain by not computing or by leaving out noise."""
    assert plan.audition is not None
    joint, unproven, found = plan.audition.joint, int(plan.audition.plan.unproven.sum()), []
    if joint.curve < CERTAIN * joint.error:
        words = "the joint loss does not clearly fall with labels on this pilot; pilot_samples may be few."
        found.append(f"Beware: {words}")
    if unproven:
        found.append(f"Beware: not computing would gain {unproven} of {len(plan.clients)} more than 1% of pay.")
    model = plan.side.pilot.model
    if isinstance(model, PrivateModel) and model.noise:
        found.append(
            "Beware: who leaves out her own noise, which nobody sees, has a better solo model and can label fewer "
            "(docs/security.md)."
        )
    return found


def idle_warnings(contract: Mechanism, clients: Clients, model: LossModel, training: Training) -> list[str]:
    """Who would gain by sending the model back as it came."""
    gain = free_riding_gain(contract, clients, model, training)
    gainers = int((gain > pay_resolution(contract, clients, model, training)).sum())
    if not gainers:
        return []
    return [
        f"Beware: {gainers} of {len(clients)} would gain, up to {gain.max():,.2f}, "
        "by sending the model back unworked, if empty reports were paid (docs/mechanism.md, section 6)."
    ]


def presence_sentences(clients: Clients) -> list[str]:
    """How often clients are asked for a report, and that reports are then not masked; empty if always."""
    low, high = float(clients.participation.min()), float(clients.participation.max())
    if low == 1.0:
        return []
    share = f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}"
    return [
        f"Clients are asked for a report in {share} of the rounds, drawn by the job's seed. So reports are not masked "
        "unless [privacy] secure_aggregation is true: the server sees each of them."
    ]


def worth_warnings(worth: FloatArray, error: FloatArray, cost: FloatArray) -> list[str]:
    """Whether each client's work is worth what it costs; (clients,) each, `error` the standard error of the worth."""
    below = worth + CERTAIN * error < cost
    unclear = ~below & (worth - CERTAIN * error < cost)
    found = []
    if below.any():
        found.append(
            f"Beware: the work of {below.sum()} of {len(cost)} clients is worth less to the server "
            f"({_range(worth[below])}) than it costs ({_range(cost[below])}). There, not working pays under a "
            "contract that pays by the joint loss with a slope of loss_value: ask fewer clients, or for less."
        )
    if unclear.any():
        found.append(f"Of {unclear.sum()} of {len(cost)} clients it is open whether their work is worth what it costs.")
    return found


def lie_sentences(lies: PilotLies | None) -> list[str]:
    """What the best lie would gain, if lies were searched."""
    if lies is None or not lies.lies:
        return []
    best = lies.lies[0]
    gain, error = float(best.gain.mean()), float(best.gain_error.mean())
    tried = f"he best of {lies.points} lies tried on pilot data ({best.point.words})"
    start = f"Beware: t{tried} gains" if gain > CERTAIN * error else f"T{tried} is not known to gain:"
    return [f"{start} {gain:,.2f} ± {CERTAIN * error:,.2f} on average. truthfl verify searches longer."]


def _range(values: FloatArray) -> str:
    low, high = f"{np.min(values):,.0f}", f"{np.max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
