"""What the server can see when it pays, and what a payment rule is. Looks at `checks` only.

A rule never sees effort, batches or labels: it sees the final test loss, what clients claim, and how much worse the
model would be without a client's reports. Pay rules are in `contract` (LCEME) and `baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.checks import FloatArray


class Measure(Enum):
    """How a client's contribution to the model is measured, by a rule that pays for it."""

    LEAVE_ONE_OUT = "leave-one-out"
    SHAPLEY = "shapley"


@dataclass(frozen=True)
class Observation:
    """What is seen when client i is paid, at position i of each field; fields broadcast to (…, N).

    In one job every position sees the same world. To ask what each client would be paid had she alone behaved
    otherwise, position i holds what would be seen in that world.

    test_loss           loss of the final model on the test sample
    claimed_batch_size  what the client says she used
    contribution        loss drop credited to her, by the rule's `Measure`
    total_contribution  sum of everybody's contributions, counting none below 0
    contribution_error  standard error of her contribution; 0 where it is exact
    """

    test_loss: ArrayLike
    claimed_batch_size: ArrayLike = np.nan
    contribution: ArrayLike = np.nan
    total_contribution: ArrayLike = np.nan
    contribution_error: ArrayLike = 0.0


class PaymentRule(Protocol):
    """A way of paying, announced beforehand together with the batch sizes it asks for."""

    @property
    def name(self) -> str: ...

    @property
    def batch_size(self) -> FloatArray:
        """D', what each client is asked to use."""

    @property
    def measure(self) -> Measure | None:
        """Which contribution the rule needs to see, if any."""

    def pay(self, seen: Observation) -> FloatArray:
        """What each client gets."""


@runtime_checkable
class LinearRule(PaymentRule, Protocol):
    """A rule whose pay falls linearly with the loss that a client causes, and rises linearly with what she claims."""

    @property
    def slope(self) -> float | FloatArray:
        """Φ_i, money lost per unit of loss caused."""

    @property
    def claim_rate(self) -> float | FloatArray:
        """Money per claimed sample."""
