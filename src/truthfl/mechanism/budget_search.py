"""The search for what a budget allows: the smallest x ≥ 0 at which a falling function is within a budget.

The function is a sum over all clients, so each call counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

SAMPLE_STEPS, GOOD_GUESS, FARTHEST = 20, 1e-4, 100.0
GUESSES = 7
FAR_APART = 1e-6  # of two x: the slope between them is known well
AROUND = 0.02  # around an x, the slope is measured
INFINITE = float("inf")


@dataclass(eq=False)
class Search:
    """Holds an interval in which the function falls to the budget, and makes it smaller.

    function   falls with x; the slower it is, the more this search is worth
    budget     above 0
    first      function(0), above the budget
    left       so much of the budget may be left over
    is_done    called with both ends: whether nothing in between is better than the upper end
    over       function − budget at `low`: above 0
    under      function − budget at `high`, at most 0; `high` is infinite before it is known
    """

    function: Callable[[float], float]
    budget: float
    first: float
    left: float
    is_done: Callable[[float, float], bool] = lambda low, high: False  # noqa: ARG005
    low: float = 0.0
    high: float = INFINITE
    over: float = field(init=False)
    under: float = 0.0

    def __post_init__(self) -> None:
        self.over = self.first - self.budget

    def bracket(self, most: float) -> bool:
        """Find an upper end, 1, 2, 4, … up to `most`, unless it is known; return whether there is one."""
        x = 1.0
        while self.high == INFINITE and x <= most:
            if x > self.low:
                self.try_at(x)
            x *= 2.0
        return self.high < INFINITE

    def narrow_by(self, estimate: Callable[[float], float]) -> None:
        """Guess the place by a function that is about proportional to this one, and cheap to call.

        The first guess is where it falls to the budget, with the factor between both at 0; the next ones are by its
        slope there, and by that of this function where two places are known that are not too close.
        """
        target = self.budget - self.left / 2.0
        factor = self.first / estimate(0.0)
        x = solved(estimate, target / factor)
        slope = (estimate(x + AROUND) - estimate(x - AROUND)) * factor / (2.0 * AROUND)
        before = (INFINITE, 0.0)
        for _ in range(GUESSES):
            if not self.low < x < self.high or slope >= 0.0:
                return
            here = (x, self.try_at(x))
            if self.is_close:
                return
            if FAR_APART < abs(x - before[0]) < AROUND:
                slope = (here[1] - before[1]) / (x - before[0])
            x, before = x - (here[1] - target) / slope, here

    def finish(self, steps: int, narrowest: float) -> float:
        """Make the interval smaller, in so many steps or until it is narrow; return its upper end."""
        for step in range(steps):
            if self.is_close or self.high - self.low <= narrowest * self.high or self.is_done(self.low, self.high):
                break
            self.try_at(_inside(self.low, self.over, self.high, self.under, step))
        return self.high

    @property
    def is_close(self) -> bool:
        """Whether hardly anything is left of the budget at the upper end."""
        return self.high < INFINITE and -self.under < self.left

    def try_at(self, x: float) -> float:
        """Call the function, keep the smaller interval, and return the value."""
        value = self.function(x)
        if value > self.budget:
            self.low, self.over = x, value - self.budget
        else:
            self.high, self.under = x, value - self.budget
        return value


def solved(function: Callable[[float], float], target: float) -> float:
    """About the x ≥ 0 at which a falling positive function has this value.

    By secants of its logarithm, which is closer to a straight line.
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


def _inside(low: float, over: float, high: float, under: float, step: int) -> float:
    """A place in the interval: by false position and by halving in turn."""
    share = over / (over - under) if step % 2 else 0.5
    return low + (high - low) * min(max(share, 1e-3), 1.0 - 1e-3)
