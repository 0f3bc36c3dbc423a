"""The search for what a budget allows: the smallest x ≥ 0 at which a falling function is within a budget.

The function is a sum over all clients, so each call counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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


def _inside(low: float, over: float, high: float, under: float, step: int) -> float:
    """A place in the interval: by false position and by halving in turn."""
    share = over / (over - under) if step % 2 else 0.5
    return low + (high - low) * min(max(share, 1e-3), 1.0 - 1e-3)
