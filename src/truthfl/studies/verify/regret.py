"""Estimates from gains in cases: regret ex ante and ex post, elicited labels and batch; with intervals over splits.

Cases on one draw of the data (or on one split, if there is one draw) depend on each other. So intervals count draws (or
splits), not cases. Only intervals of single clients (`mean_of_group`) count cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from scipy.stats import t as student

from truthfl.adversary.measure import Gains, Honest, Lied, Payer, pay
from truthfl.adversary.strategy import LiePoint
from truthfl.contracts.setting import FloatArray, IntArray

RESAMPLES = 1000
LABEL_CURVE = tuple(LiePoint(labels=share) for share in (0.5, 0.75, 0.9, 1.25, 1.5))  # measured to fit the best share
NEAR = (0.7, 1.3)
BATCH_CURVE = tuple(LiePoint(batch=share) for share in (0.25, 0.5, 2.0))
TEST_DRAWS = tuple(NormalDist().inv_cdf((k + 0.5) / 20) for k in range(20))


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float


def mean_share(amount: FloatArray, unit: float, cluster: IntArray, *, of_several: int = 1) -> Estimate:
    """The mean of `amount` (cases,) as a share of `unit`; cases of one cluster depend on each other.

    of_several  the number of estimates whose intervals should all hold at once with 95% (Bonferroni)
    """
    numbers = np.unique(cluster, return_inverse=True)[1]
    value = float(amount.mean())
    deviation = np.bincount(numbers, weights=amount - value)
    count = len(deviation)
    if count < 2:
        return Estimate(value / unit, float("-inf"), float("inf"))
    error = float(np.sqrt(np.square(deviation).sum() * count / (count - 1)) / len(amount))
    half_width = float(student.ppf(1.0 - 0.025 / of_several, count - 1)) * error
    return Estimate(value / unit, (value - half_width) / unit, (value + half_width) / unit)


def mean_of_group(amount: FloatArray, factor: float, group: IntArray, number: int) -> Estimate:
    """`factor` times the mean of `amount` (cases,) over the cases of one group.

    A group has few cases. So its standard error comes from all groups: from deviations of all cases from the means of
    their own groups.
    """
    own = group == number
    size = np.bincount(group)
    means = np.bincount(group, weights=amount) / np.maximum(size, 1)
    freedom = len(amount) - int((size > 0).sum())
    value = factor * float(amount[own].mean())
    if freedom < 1:
        return Estimate(value, float("-inf"), float("inf"))
    spread = float(np.sqrt(np.square(amount - means[group]).sum() / freedom / own.sum()))
    half_width = abs(factor) * float(student.ppf(0.975, freedom)) * spread
    return Estimate(value, value - half_width, value + half_width)


def ex_post_regret(gains: Gains) -> float:
    """The gain of the best lie of each case in hindsight (honesty if none gains), on average, as a share of pay."""
    return float(np.maximum(gains.gain.max(axis=0), 0.0).mean()) / gains.unit


def share_below_cost(payers: Sequence[Payer], honest: Honest, gains: Gains, test_error: FloatArray) -> float:
    """The share of honest participants whose pay is below their cost, over cases and draws of the test samples.

    test_error  (cases,) the standard deviation of the loss between draws of the test samples
    """
    below = []
    for deviation in TEST_DRAWS:
        shift = deviation * test_error
        shifted = replace(
            honest, without=honest.without + shift, alone=honest.alone + shift, nobody=honest.nobody + shift
        )
        joined = (honest.joined + shift)[None]
        truth = Lied((honest.loss + shift)[None], np.ones((1, len(shift))), joined, honest.solo[None])
        below.append(pay(payers, truth, shifted)[0] < gains.cost - 1e-9 * gains.cost)
    return float(np.mean(below))


def elicited_labels(
    points: Sequence[LiePoint],
    gains: Gains,
    labeling_cost: FloatArray,
    cluster: IntArray,
    *,
    most: float,
    without_labels: LiePoint | None,
) -> Estimate:
    """The labels that serve a client best, as a share of those asked for.

    Pay depends on the share ℓ of labels (the rest left out, all else honest). It is fitted by a − ν/ℓ on `LABEL_CURVE`,
    so the best share is √(ν/c_l), or 0 if the lie without labels gains more. If the best share is near 1, the curve is
    fitted again to the shares near 1.

    labeling_cost   (cases,)
    most            the largest share
    without_labels  the best lie without labels that the search found, if any was measured
    """
    curve = [points.index(point) for point in LABEL_CURVE if point in points]
    shares = np.array([points[k].labels for k in curve])
    change = gains.gain[curve] - labeling_cost * (1.0 - shares)[:, None]
    x = (1.0 / shares - 1.0)[:, None] * np.ones_like(change)
    near = (shares >= NEAR[0]) & (shares <= NEAR[1])
    idle = None if without_labels is None else gains.gain[points.index(without_labels)]

    def best(weight: FloatArray) -> float:
        nu, cost = _fitted(x, change, weight), float(weight @ labeling_cost / weight.sum())
        share = float(np.clip(np.sqrt(nu / cost), 1e-9, most)) if cost > 0 else most
        if near.sum() > 1 and NEAR[0] <= share <= NEAR[1]:
            nu = _fitted(x[near], change[near], weight)
            share = float(np.clip(np.sqrt(nu / cost), 1e-9, most))
        interior = cost * (1.0 - share) - nu * (1.0 / share - 1.0)
        if idle is not None and float(weight @ idle / weight.sum()) > max(interior, 0.0):
            return 0.0
        return share

    return _resampled(best, cluster)


def elicited_batch(
    points: Sequence[LiePoint],
    gains: Gains,
    assigned: FloatArray,
    owned: FloatArray,
    price: FloatArray,
    cluster: IntArray,
) -> Estimate:
    """The batch that serves a client best, as a share of the assigned one: pay is fitted by a − ν/D on `BATCH_CURVE`.

    assigned, owned, price  (cases,) of the case's client
    """
    curve = [points.index(point) for point in BATCH_CURVE if point in points]
    used = np.array([points[k].batch_size(assigned, owned) for k in curve])
    change = gains.gain[curve] - price * (assigned - used)
    x = assigned / used - 1.0

    def best(weight: FloatArray) -> float:
        nu, cost = _fitted(x, change, weight), float(weight @ (price * assigned) / weight.sum())
        limits = float(np.mean(1.0 / assigned)), float(np.mean(owned / assigned))
        return float(np.clip(np.sqrt(nu / cost), *limits)) if cost > 0 else limits[1]

    return _resampled(best, cluster)


def _fitted(x: FloatArray, change: FloatArray, weight: FloatArray) -> float:
    """ν ≥ 0 of change = −ν x by weighted least squares; x and change are (points, cases), weight (cases,)."""
    squares = float((weight * x * x).sum())
    return max(0.0, -float((weight * x * change).sum()) / squares) if squares > 0 else 0.0


def _resampled(best: Callable[[FloatArray], float], cluster: IntArray) -> Estimate:
    """`best` of equal weights, and the 95% interval of its values when clusters are resampled with replacement."""
    numbers = np.unique(cluster, return_inverse=True)[1]
    count = int(numbers.max()) + 1
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
    values = [best(times[numbers].astype(float)) for times in drawn]
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(best(np.ones(len(numbers))), float(low), float(high))
