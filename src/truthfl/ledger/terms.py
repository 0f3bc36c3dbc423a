"""What a client is paid, from her offer, the test loss and the rounds she delivered; rounded once. Looks at `errors`.

Two things are announced in every offer: the formula, and what happens to those who drop out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from truthfl.errors import InputError

FORMULA = "reward = base - slope * test_loss + labeling_cost; pay = reward * delivered / asked, rounded to whole units"
DROPPING_OUT = (
    "In a round in which a report is late, missing or refused, the others' reports keep their weights and hers counts "
    "as no change. An empty report is refused. Pay is the reward times the share of the rounds she was asked in "
    "whose report was taken."
)


@dataclass(frozen=True)
class Terms:
    """The numbers of one client's reward.

    base           Ω_i, money at loss 0 besides the labeling cost
    slope          Φ_i, money per unit of loss
    labeling_cost  c_l, paid on top
    minor_units    of the ledger's whole units, how many make one unit of the job's money
    """

    base: float
    slope: float
    labeling_cost: float
    minor_units: int = 1

    def reward(self, test_loss: float) -> float:
        """r_i = Ω_i − Φ_i f + c_l."""
        return self.slope * -test_loss + self.base + self.labeling_cost

    def pay(self, test_loss: float, delivered: int, asked: int) -> int:
        """In whole minor units; half a unit goes to the even neighbour."""
        if not math.isfinite(test_loss):
            raise InputError("the test loss is not finite; such a model cannot settle a contract.")
        if not 0 <= delivered <= asked or asked < 1:
            raise InputError(f"{delivered} rounds of {asked} were delivered; it must be from 0 to all.")
        return round(self.reward(test_loss) * self.minor_units * delivered / asked)
