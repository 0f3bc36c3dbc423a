"""The verdict on one payment rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredLie:
    """A lie in words and numbers, with its gain ex ante as a share of honest pay and the 95% interval."""

    words: str
    kind: str
    point: Mapping[str, float | str]
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class ClientVerdict:
    """One client: the lie that the search found best for her, and what her work is worth.

    gain        ex ante, as a share of her honest pay, with its 95% interval; None if there are too few cases for one
    worth       κ times (loss without her − loss), in money, likewise
    cost        of her honest work
    """

    client: str
    best_lie: str
    gain: float
    gain_low: float | None
    gain_high: float | None
    worth: float
    worth_low: float | None
    worth_high: float | None
    cost: float


@dataclass(frozen=True)
class Verdict:
    """The result of one rule; shares are of honest pay, or of its cost if that is larger.

    regret           gain ex ante of the best lie found, measured on splits and seeds that the search has not seen: that
                     of the search's winner, or of another measured lie if it is known to gain more
    ex_post_regret   gain of the best lie in hindsight, on average over splits and clients; None for Shapley pay, which
                     is known on average only
    best_lie         words, and the numbers of the point
    elicited_labels  labels that serve a client best, as a share of those asked for
    elicited_batch   batch that serves a client best, as a share of the assigned one
    pay_over_cost    honest pay over the cost of honest work
    below_cost       share of honest participants paid below their cost; None for Shapley pay
    gain_over_cost   the regret as a share of the cost of honest work
    lying_pays       whether the gain exceeds 2% of the cost of honest work; None if the interval contains that
    coalition        gain of two clients of whom one labels and both report, as a share of their honest pay
    points, runs     lies tried, and training runs, for all rules that share this one's training
    by_kind          the best lie of each kind
    clients          those whose lies were studied, one by one
    """

    rule: str
    regret: float
    regret_low: float
    regret_high: float
    ex_post_regret: float | None
    best_lie: Mapping[str, float | str]
    elicited_labels: float
    elicited_labels_low: float
    elicited_labels_high: float
    elicited_batch: float
    elicited_batch_low: float
    elicited_batch_high: float
    pay_over_cost: float
    below_cost: float | None
    gain_over_cost: float
    lying_pays: bool | None
    coalition: float | None
    coalition_low: float | None
    coalition_high: float | None
    points: int
    runs: int
    by_kind: tuple[MeasuredLie, ...]
    clients: tuple[ClientVerdict, ...]
