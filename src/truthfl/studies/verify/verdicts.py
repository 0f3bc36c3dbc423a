"""The verdict on one payment rule. Imports nothing of truthfl."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorstDeviation:
    """The lie that gains most."""

    client: str
    description: str
    labeling_effort: float
    batch_size: float
    assigned_batch_size: float
    report_scale: float
    gain: float


@dataclass(frozen=True)
class BestOfKind:
    """The gain of the best lie of one kind, with its 95% interval."""

    kind: str
    regret: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """The result of one rule.

    elicited_effort     best-response batch in real training as a share of the assigned one
    regret              the largest gain of any lie, as a share of that client's honest pay; with its 95% interval
    certain_regret      the largest lower end of any lie's interval
    gain_over_cost      the largest gain as a share of the client's cost of honest work
    lying_pays          whether that exceeds the tolerance; None if undecided
    empty_report        the gain of an empty report if it were paid like any other
    pay_over_cost       total honest pay divided by total cost of honest work
    runs                number of training runs used
    by_kind             the best lie of each kind
    """

    rule: str
    elicited_effort: float
    elicited_low: float
    elicited_high: float
    regret: float
    regret_low: float
    regret_high: float
    certain_regret: float
    gain_over_cost: float
    worst_deviation: WorstDeviation
    lying_pays: bool | None
    empty_report: float
    pay_over_cost: float
    runs: int
    by_kind: tuple[BestOfKind, ...] = field(default=())
