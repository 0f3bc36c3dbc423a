"""The best lie under each payment rule, on the loss model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from truthfl.contracts.baselines import flat_pay, leave_one_out_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.contracts.contract import Contract
from truthfl.contracts.deviation import Deviation, best_deviation
from truthfl.contracts.lceme.contract import lceme
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, Training
from truthfl.errors import InputError


@dataclass(frozen=True)
class Answer:
    """The lie that gains most under one rule, over all clients.

    gain             money above honest work; None if the rule cannot pay (`evidence` has the reason)
    regret           the gain as a share of their honest pay; None if that is not positive. On a loss model it is exact,
                     so its interval has width 0
    elicited_effort  the batch of that client's best choice, as a share of the assigned one
    worst_deviation  the client and their lie
    evidence         how the gain was computed
    """

    rule: str
    gain: float | None = None
    elicited_effort: float | None = None
    regret: float | None = None
    regret_low: float | None = None
    regret_high: float | None = None
    worst_deviation: Mapping[str, float | str] = field(default_factory=dict)
    evidence: str = ""


def payment_rules(
    clients: Clients, model: LossModel, training: Training, planned: Contract
) -> dict[str, Callable[[], Contract]]:
    """Constructors of the job's own contract, LCEME and the four baselines by name, all with the same batches."""
    batch_size = planned.batch_size
    own: dict[str, Callable[[], Contract]] = {planned.name: lambda: planned}
    others: dict[str, Callable[[], Contract]] = {
        "lceme": lambda: lceme(clients, model, training, batch_size),
        "flat": lambda: flat_pay(clients, model, training, batch_size),
        "per claimed sample": lambda: pay_per_claimed_sample(clients, model, training, batch_size),
        "leave-one-out": lambda: leave_one_out_pay(clients, model, training, batch_size),
        "shapley share": lambda: shapley_share_pay(clients, model, training, batch_size),
    }
    return own | {name: make for name, make in others.items() if name not in own}


def does_lying_pay(clients: Clients, model: LossModel, training: Training, planned: Contract) -> tuple[Answer, ...]:
    """The best lie under each rule."""
    answers = []
    for name, make in payment_rules(clients, model, training, planned).items():
        try:
            rule = make()
        except InputError as error:
            answers.append(Answer(name, evidence=f"cannot pay: {error}"))
            continue
        answers.append(_answer(rule, clients, best_deviation(rule, clients, model, training)))
    return tuple(answers)


def _answer(rule: Contract, clients: Clients, deviation: Deviation) -> Answer:
    gain = np.where(deviation.gain > deviation.resolution, deviation.gain, 0.0)
    worst = int(np.argmax(gain))
    if deviation.closed_form_gain is None:
        evidence = "search"
    else:
        evidence = "formula and search agree" if deviation.confirmed else "formula and search disagree"
    regret = float(gain[worst] / deviation.honest_pay[worst]) if deviation.honest_pay[worst] > 0 else None
    assigned, batch = float(rule.batch_size[worst]), float(deviation.strategies.batch_size[worst])
    scale, claimed = (
        float(deviation.strategies.report_scale[worst]),
        float(deviation.strategies.claimed_batch_size[worst]),
    )
    effort = float(deviation.strategies.labeling_effort[worst])
    return Answer(
        rule=rule.name,
        gain=float(gain[worst]),
        elicited_effort=batch / assigned,
        regret=regret,
        regret_low=regret,
        regret_high=regret,
        worst_deviation={
            "client": clients.label(worst),
            "description": _description(effort, batch, assigned, scale, claimed),
            "labeling_effort": effort,
            "batch_size": batch,
            "assigned_batch_size": assigned,
            "report_scale": scale,
            "claimed_batch_size": claimed,
        },
        evidence=evidence,
    )


def _description(effort: float, batch: float, assigned: float, scale: float, claimed: float) -> str:
    parts = ["no labels"] if effort == 0 else []
    if abs(batch - assigned) > 1e-6 * assigned:
        parts.append(f"batch {batch:.1f}, not {assigned:.0f}")
    if abs(scale - 1.0) > 1e-6:
        parts.append(f"report × {scale:.2f}")
    if claimed != assigned:
        parts.append(f"claims {claimed:.0f}")
    return ", ".join(parts) or "none"
