"""Keeps plans of very many clients fast; plans of fewer clients do not use it.

It chooses each client's number of labels without trying all numbers for each. From a plan of every n-th client, it
guesses what a budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truthfl.contracts.budget import Search
from truthfl.contracts.setting import Clients, FloatArray, IntArray

if TYPE_CHECKING:
    from truthfl.contracts.audition.plan import AuditionInputs

MANY = 1 << 14  # clients: labels of more are chosen by thresholds
MANY_TO_SEARCH, SAMPLE = 1 << 16, 1 << 15  # with at least this many clients, a budget is first searched on a sample
LEFT = 1e-5  # share of the budget that may then be left over
CLOSE = 1e-9  # a client relatively this close to a threshold is decided by computing the costs of all numbers
SAMPLE_STEPS, GOOD_GUESS, FARTHEST = 20, 1e-4, 100.0
GUESSES = 7
FAR_APART = 1e-6  # between two x this far apart, the slope is known well
AROUND = 0.02  # the slope is measured in this range around an x


def cheapest_by_thresholds(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray
) -> tuple[FloatArray, IntArray]:
    """The number of labels with the least worth_n + label_cost price_n for each client, and clients too close to call.

    The cost of n labels for a client with label cost u is worth_n + u price_n, a straight line in u for each n. The
    numbers rise and worth falls. So n is better than all smaller numbers where u is below a threshold. Of the numbers
    up to their samples, a client gets the largest whose threshold is above their u.
    """
    threshold = np.full(len(numbers), np.inf)
    for k in range(1, len(numbers)):
        gain, dearer = worth[:k] - worth[k], price[k] - price[:k]
        with np.errstate(divide="ignore", invalid="ignore"):
            below = np.where(dearer > 0, gain / dearer, np.where((gain > 0) | (dearer < 0), np.inf, 0.0))
        threshold[k] = below.min()
    later = np.append(np.maximum.accumulate(threshold[::-1])[::-1], 0.0)  # the highest from each number on
    place_of = np.searchsorted(numbers, np.arange(int(numbers[-1]) + 1), side="right") - 1
    limit = place_of[np.minimum(samples, len(place_of) - 1)]
    place = np.minimum(len(numbers) - 1 - np.searchsorted(later[-2::-1], label_cost, side="right"), limit)
    while (below_ := np.flatnonzero(threshold[place] <= label_cost)).size:
        place[below_] -= 1
    close = threshold[place] * (1.0 - CLOSE) <= label_cost
    close |= (later[place + 1] * (1.0 + CLOSE) > label_cost) & (place < limit)
    return numbers[place], np.flatnonzero(close)


def every_nth(inputs: AuditionInputs, step: int) -> AuditionInputs:
    """An audition's plan for every n-th client, each asked for the same as in the plan for all.

    With m of M clients, this works if the joint loss falls as A (m/M)² / (labels of all).
    """
    whole, measured = inputs.clients, inputs.measured
    weight = whole.weight[::step]
    clients = Clients(
        weight=weight / weight.sum(),
        gradient_variance=whole.gradient_variance[::step],
        sample_cost=whole.sample_cost[::step],
        labeling_cost=whole.labeling_cost[::step],
        dataset_size=whole.dataset_size[::step],
        participation=whole.participation[::step],
    )
    joint = measured.joint
    some = replace(
        measured,
        joint_curve=measured.joint_curve * (len(clients) / len(whole)) ** 2,
        audition_cost=measured.audition_cost[::step],
        joint=joint and replace(joint, sampling=joint.sampling[::step], absence=joint.absence[::step]),
    )
    return replace(inputs, clients=clients, measured=some)


def narrow(search: Search, estimate: Callable[[float], float]) -> None:
    """Guess the end of the search with a function that is cheap to call and about proportional to the search's.

    The first guess is where this function falls to the budget, with the factor between both at 0. The next ones use its
    slope there, and the slope of the search's function where two places are known that are not too close.
    """
    target = search.budget - search.left / 2.0
    factor = search.first / estimate(0.0)
    x = _solved(estimate, target / factor)
    slope = (estimate(x + AROUND) - estimate(x - AROUND)) * factor / (2.0 * AROUND)
    before = (math.inf, 0.0)
    for _ in range(GUESSES):
        if not search.low < x < search.high or slope >= 0.0:
            return
        here = (x, search.try_at(x))
        if search.is_close:
            return
        if FAR_APART < abs(x - before[0]) < AROUND:
            slope = (here[1] - before[1]) / (x - before[0])
        x, before = x - (here[1] - target) / slope, here


def _solved(function: Callable[[float], float], target: float) -> float:
    """The approximate x ≥ 0 at which a falling positive function has this value.

    Uses secants of its logarithm, which is closer to a straight line.
    """

    def excess(x: float) -> float:
        return math.log(function(x) / target)

    low, high = 0.0, 1.0
    over = excess(low)
    if over <= 0.0:
        return low
    under = excess(high)
    while under > 0.0 and high < FARTHEST:
        low, high, over = high, 2.0 * high, under
        under = excess(high)
    if under > 0.0:
        return high
    last, before = (low, over), (high, under)
    for _ in range(SAMPLE_STEPS):
        rise = last[1] - before[1]
        x = last[0] - last[1] * (last[0] - before[0]) / rise if rise else low
        if not low < x < high:
            x = (low + high) / 2.0
        if abs(x - last[0]) <= GOOD_GUESS:
            return x
        before, last = last, (x, excess(x))
        low, high = (x, high) if last[1] > 0.0 else (low, x)
    return last[0]
