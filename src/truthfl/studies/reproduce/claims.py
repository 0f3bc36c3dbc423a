"""A claim of the paper beside what was obtained: holds, does not hold, or cannot be told from so many seeds.

Looks at `figure` for the confidence interval.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.reporting.figure import mean_interval

HOLDS, DOES_NOT_HOLD, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Claim:
    """One row of the table; `reason` says why, where the claim does not hold or cannot be told.

    `estimate` and the 95% interval are oriented so that above 0 speaks for the claim. They are None where the number
    was computed, not sampled, or is not finite.
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
    """Two cells held against each other, seed by seed; `differences` above 0 speak for the claim."""

    what: str
    differences: NDArray[np.float64]


def comparison(what: str, better: ArrayLike, worse: ArrayLike) -> Comparison:
    """The claim is that `better` is the larger one; both have one number per seed, and the same seeds."""
    with np.errstate(invalid="ignore"):  # of two trainings that diverged neither is the better
        return Comparison(what, np.asarray(better, dtype=float) - np.asarray(worse, dtype=float))


def verdict(low: float, high: float) -> str:
    """By the interval of a difference that the claim says is above 0."""
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
    """A claim about all of these comparisons stands and falls with the one that speaks for it least.

    `measure` says what a difference above 0 is, such as "loss lower by"; `reason` why the claim does not hold, if it
    does not; `doubt` why it cannot be told, if it cannot.
    """
    if not comparisons:
        raise InputError(f"the claim {claimed!r} has nothing to be held against.")
    found = [_interval(one.differences) for one in comparisons]
    weakest = min(range(len(found)), key=lambda k: (_order(verdict(*found[k][1:])), found[k][1]))
    estimate, low, high = found[weakest]
    among = f", the weakest of {len(found)}" if len(found) > 1 else ""
    said = verdict(low, high)
    return Claim(
        figure=figure,
        claimed=claimed,
        obtained=f"{measure} {said_interval(estimate, low, high)} ({comparisons[weakest].what}{among})",
        verdict=said,
        reason=_why(said, len(comparisons[weakest].differences), reason, doubt),
        estimate=_finite(estimate),
        low=_finite(low),
        high=_finite(high),
    )


def computed_claim(figure: str, claimed: str, obtained: str, *, holds: bool, reason: str = "") -> Claim:
    """A claim about a formula: it holds or it does not."""
    return Claim(figure, claimed, obtained, HOLDS if holds else DOES_NOT_HOLD, "" if holds else reason)


def claims_csv(claims: Sequence[Claim]) -> str:
    """One row per claim."""
    out = io.StringIO()
    names = [field.name for field in fields(Claim)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(["" if (value := getattr(claim, name)) is None else value for name in names] for claim in claims)
    return out.getvalue()


def said_interval(estimate: float, low: float, high: float) -> str:
    """A number and its interval, in as many digits as it needs."""
    return f"{said_number(estimate)} [{said_number(low)}, {said_number(high)}]"


def said_number(value: float) -> str:
    """Three digits, no powers of ten where there is a plainer way."""
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


def _order(said: str) -> int:
    return (DOES_NOT_HOLD, UNDECIDED, HOLDS).index(said)


def _why(said: str, seeds: int, reason: str, doubt: str) -> str:
    if said == UNDECIDED:
        return " ".join(filter(None, (f"The interval contains 0: {seeds} seeds do not tell.", doubt)))
    return reason if said == DOES_NOT_HOLD else ""
