"""Does lying pay? One answer per payment rule, on the loss model. Looks at `mechanism`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.baselines import flat_pay, leave_one_out_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.mechanism.contract import lceme
from truthfl.mechanism.deviation import Deviation, best_deviation
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.observation import PaymentRule
from truthfl.mechanism.setting import Clients, Training


@dataclass(frozen=True)
class Answer:
    """The lie that gains most under one rule, over all clients.

    gain     money above honest work        regret  the same as a share of her honest pay
    """

    rule: str
    client: int
    gain: float
    regret: float
    labeling_effort: float
    batch_size: float
    assigned_batch_size: float
    report_scale: float
    claimed_batch_size: float
    evidence: str


def payment_rules(
    clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike
) -> tuple[PaymentRule, ...]:
    """LCEME and the four baselines, all asking for the same batches and paying honest work the same in all."""
    return (
        lceme(clients, model, training, batch_size),
        flat_pay(clients, training, batch_size),
        pay_per_claimed_sample(clients, training, batch_size),
        leave_one_out_pay(clients, model, training, batch_size),
        shapley_share_pay(clients, training, batch_size),
    )


def does_lying_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> tuple[Answer, ...]:
    """The best lie under each rule."""
    rules = payment_rules(clients, model, training, batch_size)
    return tuple(_answer(rule, best_deviation(rule, clients, model, training)) for rule in rules)


def _answer(rule: PaymentRule, found: Deviation) -> Answer:
    gain = np.where(found.gain > found.resolution, found.gain, 0.0)
    worst = int(np.argmax(gain))
    if found.closed_form_gain is None:
        evidence = "search"
    else:
        evidence = "formula and search agree" if found.confirmed else "formula and search disagree"
    return Answer(
        rule=rule.name,
        client=worst,
        gain=float(gain[worst]),
        regret=float(gain[worst] / found.honest_pay[worst]),
        labeling_effort=float(found.strategies.labeling_effort[worst]),
        batch_size=float(found.strategies.batch_size[worst]),
        assigned_batch_size=float(rule.batch_size[worst]),
        report_scale=float(found.strategies.report_scale[worst]),
        claimed_batch_size=float(found.strategies.claimed_batch_size[worst]),
        evidence=evidence,
    )
