"""The search for what a budget allows: the smallest x ≥ 0 at which a falling function is within a budget.

The function is a sum over all clients, so each call counts. Imports `checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

STEPS = 40  # halvings of the first interval, at most
LEFT = 1e-7  # share of the budget: what is left of it may be less
SAMPLE_STEPS = 60
GUESSES = 4


@dataclass(eq=False)
class Search:
    """Holds an interval in which the function falls to the budget, and makes it smaller.

    function   falls with x
    budget     above 0
    over       function − budget at `low`, which is first 0: above 0
    is_done    called with both ends: whether nothing in between is better than the upper end
    high       the upper end, where function − budget is `under`, at most 0; infinite before it is known
    """

    function: Callable[[float], float]
    budget: float
    first: float
    is_done: Callable[[float, float], bool]
    low: float = 0.0
    high: float = float("inf")
    over: float = field(init=False)
    under: float = 0.0

    def __post_init__(self) -> None:
        self.over = self.first - self.budget

    def bracket(self, most: float) -> bool:
        """Find an upper end, from 1 on and doubled each time; return whether there is one up to about `most`."""
        x = max(1.0, 2.0 * self.low)
        while self.high == float("inf"):
            if x > 2.0 * most:
                return False
            self.try_at(x)
            self.under = self.under if self.high < float("inf") else self.over
            x *= 2.0
        return True

    def narrow_by(self, estimate: Callable[[float], float]) -> None:
        """Guess the place by a function that is about proportional to this one, and cheap to call.

        Its factor is that of the last call; after two guesses, the line through the last two calls tells more.
        """
        target = self.budget * (1.0 - LEFT / 2.0)
        last = before = (0.0, self.first)
        for guess in range(GUESSES):
            if guess < 2:
                x = _solved(estimate, target * estimate(last[0]) / last[1])
            else:
                rise = last[1] - before[1]
                x = last[0] - (last[1] - target) * (last[0] - before[0]) / rise if rise else last[0]
            if not self.low < x < self.high:
                return
            before, last = last, (x, self.try_at(x))
            if self.is_close:
                return

    def finish(self) -> float:
        """Make the interval as small as is useful; return its upper end."""
        smallest = (self.high - self.low) / 2.0**STEPS
        for step in range(2 * STEPS):
            if self.is_close or self.high - self.low <= smallest or self.is_done(self.low, self.high):
                break
            share = self.over / (self.over - self.under) if step % 2 else 0.5  # false position and halving in turn
            self.try_at(self.low + (self.high - self.low) * min(max(share, 1e-3), 1.0 - 1e-3))
        return self.high

    @property
    def is_close(self) -> bool:
        """Whether hardly anything is left of the budget at the upper end."""
        return self.high < float("inf") and -self.under <= LEFT * self.budget

    def try_at(self, x: float) -> float:
        """Call the function, keep the smaller interval, and return the value."""
        value = self.function(x)
        if value > self.budget:
            self.low, self.over = x, value - self.budget
        else:
            self.high, self.under = x, value - self.budget
        return value


def _solved(function: Callable[[float], float], target: float) -> float:
    """About the x ≥ 0 at which a falling function has this value."""
    low, high = 0.0, 1.0
    over, under = function(low) - target, function(high) - target
    if over <= 0.0:
        return low
    while under > 0.0 and high < 1e3:
        low, high, over = high, 2.0 * high, under
        under = function(high) - target
    for step in range(SAMPLE_STEPS):
        if high - low <= 1e-9 * high:
            break
        share = over / (over - under) if step % 2 else 0.5
        middle = low + (high - low) * min(max(share, 1e-3), 1.0 - 1e-3)
        value = function(middle) - target
        if value > 0.0:
            low, over = middle, value
        else:
            high, under = middle, value
    return low + (high - low) * over / (over - under)
