"""Claims of the paper compared with results: each holds, does not hold, or is undecided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.reporting.figure import mean_interval
from truthfl.texts import csv_text

HOLDS, DOES_NOT_HOLD, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Claim:
    """One row of the table of claims.

    reason              why the claim does not hold or is undecided
    estimate, low, high mean and 95% interval, oriented so that positive values support the claim; None if the number
                        was computed instead of sampled, or is not finite
    """

    figure: str
    claimed: str
    obtained: str
    verdict: str
    reason: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """The differences between two cells, seed by seed; positive ones support the claim."""

    what: str
    differences: NDArray[np.float64]


def comparison(what: str, better: ArrayLike, worse: ArrayLike) -> Comparison:
    """A comparison for the claim that `better` is larger than `worse`; one number per seed, for the same seeds."""
    with np.errstate(invalid="ignore"):  # NaN if both trainings diverged
        return Comparison(what, np.asarray(better, dtype=float) - np.asarray(worse, dtype=float))


def verdict(low: float, high: float) -> str:
    """The verdict on a claim that a difference is positive, from the interval of the difference."""
    if low > 0:
        return HOLDS
    return DOES_NOT_HOLD if high < 0 else UNDECIDED


def sampled_claim(
    figure: str,
    claimed: str,
    measure: str,
    comparisons: Sequence[Comparison],
    *,
    reason: str = "",
    doubt: str = "",
) -> Claim:
    """A claim about all of these comparisons; its verdict is the verdict of the comparison that supports it least.

    measure  words for a positive difference, such as "loss lower by"
    reason   why the claim does not hold, used if it does not hold
    doubt    why the claim is undecided, used if it is undecided
    """
    if not comparisons:
        raise InputError(f"the claim {claimed!r} has nothing to compare with.")
    intervals = [_interval(comparison.differences) for comparison in comparisons]
    weakest = min(range(len(intervals)), key=lambda k: (_rank(verdict(*intervals[k][1:])), intervals[k][1]))
    estimate, low, high = intervals[weakest]
    among = f", the weakest of {len(intervals)}" if len(intervals) > 1 else ""
    outcome = verdict(low, high)
    return Claim(
        figure=figure,
        claimed=claimed,
        obtained=f"{measure} {format_interval(estimate, low, high)} ({comparisons[weakest].what}{among})",
        verdict=outcome,
        reason=_reason(outcome, len(comparisons[weakest].differences), reason, doubt),
        estimate=_finite(estimate),
        low=_finite(low),
        high=_finite(high),
    )


def computed_claim(figure: str, claimed: str, obtained: str, *, holds: bool, reason: str = "") -> Claim:
    """A claim about a computed number: it holds or does not hold."""
    return Claim(figure, claimed, obtained, HOLDS if holds else DOES_NOT_HOLD, "" if holds else reason)


def claims_csv(claims: Sequence[Claim]) -> str:
    """CSV text with one row per claim."""
    names = [field.name for field in fields(Claim)]
    return csv_text([names, *([getattr(claim, name) for name in names] for claim in claims)])


def format_interval(estimate: float, low: float, high: float) -> str:
    """A number and its interval as text: "estimate [low, high]"."""
    return f"{format_number(estimate)} [{format_number(low)}, {format_number(high)}]"


def format_number(value: float) -> str:
    """A number as text with three significant digits, without exponents."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.3g}"
    return (f"{value:.6f}".rstrip("0").rstrip(".") if "e" in text else text).replace("-", "−")


def _interval(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    mean, low, high = mean_interval(differences)
    return float(mean), float(low), float(high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rank(outcome: str) -> int:
    """The position of a verdict in the order of support for the claim."""
    return (DOES_NOT_HOLD, UNDECIDED, HOLDS).index(outcome)


def _reason(outcome: str, seeds: int, reason: str, doubt: str) -> str:
    if outcome == UNDECIDED:
        return " ".join(filter(None, (f"The interval contains 0: {seeds} seeds do not tell.", doubt)))
    return reason if outcome == DOES_NOT_HOLD else ""
