"""What speaks against making a plan's offers, beside what they cost: for `truthfl plan` and for approval."""

from __future__ import annotations

import numpy as np

from truthfl.adversary.pilot_lies import PilotLies
from truthfl.learning.plan_worth import PlanWorth
from truthfl.learning.planning import Plan
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.payoff import work_cost
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.strategies import Strategies

CERTAIN = 2.0  # standard errors by which a difference must exceed its error to be reported


def plan_warnings(plan: Plan, lies: PilotLies, worth: PlanWorth, loss_value: float) -> list[str]:
    """Of the plan of a job on data: whether work is worth its cost, what was not measured well, and lies that pay."""
    if plan.audition is not None:
        return audition_warnings(plan) + lie_sentences(lies)
    cost = honest_cost(plan.clients, plan.training, plan.contract.batch_size)
    return worth_warnings(worth.own, loss_value * lies.absence.error, cost) + lie_sentences(lies)


def honest_cost(clients: Clients, training: Training, batch_size: FloatArray) -> FloatArray:
    """(clients,) The cost of each client's honest work."""
    return work_cost(clients, training, Strategies.truthful(batch_size))


def audition_warnings(plan: Plan) -> list[str]:
    """What the pilot of an audition did not show, and who would gain by not computing."""
    assert plan.audition is not None
    joint, unproven, found = plan.audition.joint, int(plan.audition.plan.unproven.sum()), []
    if joint.curve < CERTAIN * joint.error:
        words = "the joint loss does not clearly fall with labels on this pilot; pilot_samples may be few."
        found.append(f"Beware: {words}")
    if unproven:
        found.append(f"Beware: not computing would gain {unproven} of {len(plan.clients)} more than 1% of pay.")
    return found


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
