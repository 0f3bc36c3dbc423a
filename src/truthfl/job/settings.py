"""What the operator decides: the server's settings and the contract. Imports the mechanism.

The fields of these classes are those of the sections [server] and [contract] of a job file.
"""

from __future__ import annotations

from dataclasses import dataclass

from truthfl.errors import InputError
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import (
    number,
    whole_number,
)
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.registry import find_mechanism

BOUNDS = {"paper": paper_bound, "sound": sound_bound}
DEFAULT_CONTRACT = "lceme"


@dataclass(frozen=True)
class ServerSettings:
    """What the operator decides.

    loss_value     κ, money that one unit of loss is worth to her
    bound          of a job on paper: which loss model to plan on, "paper" or "sound"
    budget         the most that honest work may cost in all; no limit unless given
    margin         money added to everybody's base pay
    confidence     of a job on data: that the margin keeps honest work from being paid below cost
    test_samples   how many test samples the final loss is averaged over
    loss_variance  of a job on paper: variance of the loss from one test sample to another
    currency       what the money is called
    minor_units    how many whole units of the ledger make one unit of the job's money
    enrol_seconds, answer_seconds, label_seconds, round_seconds
                   how long the server waits for clients to appear, to answer an offer, to label, to report
    """

    loss_value: float = 1.0
    bound: str = "paper"
    budget: float | None = None
    margin: float = 0.0
    confidence: float = 0.95
    test_samples: int = 1
    loss_variance: float = 0.0
    currency: str = "cent"
    minor_units: int = 1
    enrol_seconds: float = 600.0
    answer_seconds: float = 86_400.0
    label_seconds: float = 604_800.0
    round_seconds: float = 600.0

    def __post_init__(self) -> None:
        number("loss_value", self.loss_value, positive=True)
        if self.budget is not None:
            number("budget", self.budget, positive=True)
        number("margin", self.margin)
        whole_number("test_samples", self.test_samples, at_least=1)
        number("loss_variance", self.loss_variance, at_least=0.0)
        whole_number("minor_units", self.minor_units, at_least=1)
        for field in ("enrol_seconds", "answer_seconds", "label_seconds", "round_seconds"):
            number(field, getattr(self, field), positive=True)
        if not isinstance(self.currency, str) or not self.currency:
            raise InputError(f"currency is {self.currency!r}; it must be a word.")
        if not 0.5 <= number("confidence", self.confidence) < 1.0:
            raise InputError(f"confidence is {self.confidence:g}; it must be a number from 0.5 up to, but not, 1.")
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise InputError(f"bound is {self.bound!r}; it must be one of {', '.join(map(repr, BOUNDS))}.")


@dataclass(frozen=True)
class ContractChoice:
    """Which mechanism pays: the kind of a registered one."""

    kind: str = DEFAULT_CONTRACT

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(f"kind is {self.kind!r}; it must be a text.")
        find_mechanism(self.kind)

    @property
    def mechanism(self) -> type[Mechanism]:
        return find_mechanism(self.kind)
