"""Does lying pay? One answer per payment rule, on the loss model. Looks at `mechanism`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.baselines import flat_pay, leave_one_out_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.mechanism.contract import lceme
from truthfl.mechanism.deviation import Deviation, best_deviation
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.observation import PaymentRule
from truthfl.mechanism.setting import Clients, Training


@dataclass(frozen=True)
class Answer:
    """The lie that gains most under one rule, over all clients.

    gain      money above honest work; None where the rule cannot pay at all, and `evidence` says why
    regret    the gain as a share of her honest pay; None where that is not positive
    """

    rule: str
    gain: float | None = None
    regret: float | None = None
    client: int = 0
    labeling_effort: float = 1.0
    batch_size: float = 0.0
    assigned_batch_size: float = 0.0
    report_scale: float = 1.0
    claimed_batch_size: float = 0.0
    evidence: str = ""


def payment_rules(
    clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike
) -> dict[str, Callable[[], PaymentRule]]:
    """LCEME and the four baselines, all asking for the same batches and paying honest work the same in all."""
    return {
        "lceme": lambda: lceme(clients, model, training, batch_size),
        "flat": lambda: flat_pay(clients, training, batch_size),
        "per claimed sample": lambda: pay_per_claimed_sample(clients, training, batch_size),
        "leave-one-out": lambda: leave_one_out_pay(clients, model, training, batch_size),
        "shapley share": lambda: shapley_share_pay(clients, training, batch_size),
    }


def does_lying_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> tuple[Answer, ...]:
    """The best lie under each rule."""
    answers = []
    for name, make in payment_rules(clients, model, training, batch_size).items():
        try:
            rule = make()
        except InputError as error:
            answers.append(Answer(name, evidence=f"cannot pay: {error}"))
            continue
        answers.append(_answer(rule, best_deviation(rule, clients, model, training)))
    return tuple(answers)


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
        regret=float(gain[worst] / found.honest_pay[worst]) if found.honest_pay[worst] > 0 else None,
        labeling_effort=float(found.strategies.labeling_effort[worst]),
        batch_size=float(found.strategies.batch_size[worst]),
        assigned_batch_size=float(rule.batch_size[worst]),
        report_scale=float(found.strategies.report_scale[worst]),
        claimed_batch_size=float(found.strategies.claimed_batch_size[worst]),
        evidence=evidence,
    )
