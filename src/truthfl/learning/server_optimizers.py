"""Flower's FedAvgM, FedAdam, FedAdagrad and FedYogi, computed on one array.

They take a step from the weighted mean of the changes. Planning trains thousands of runs, and Flower's own records and
messages would take a hundred times as long; tests hold these to Flower's results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.aggregation import MEAN, combined_change
from truthfl.learning.model import Params

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy

OPTIMIZERS = ("FedAvgM", "FedAdam", "FedAdagrad", "FedYogi")


class ServerOptimizer:
    """Combines the reports of one run with the settings of a strategy of one of these classes.

    first, second  the moving averages of the changes and of their squares
    """

    def __init__(self, strategy: Strategy) -> None:
        self.kind, self.settings = type(strategy).__name__, dict(vars(strategy))
        self.first: Any = 0.0
        self.second: Any = 0.0

    def __call__(
        self, round_: int, common: Params, changes: NDArray[np.float32], weight: NDArray[np.float64]
    ) -> Params:
        """The common model after round `round_`, from 1; it stays as it is if there are no reports."""
        if not len(changes):
            return common
        change = combined_change(changes, weight, MEAN)
        step = self._momentum(change) if self.kind == "FedAvgM" else self._adaptive(round_, change)
        return np.asarray(common + step, dtype=np.float32)

    def _momentum(self, change: Params) -> Params:
        self.first = self.settings["server_momentum"] * self.first + change
        return np.asarray(self.settings["server_learning_rate"] * self.first)

    def _adaptive(self, round_: int, change: Params) -> Params:
        eta, beta_1, beta_2 = (self.settings[name] for name in ("eta", "beta_1", "beta_2"))
        square = np.square(change)
        self.first = beta_1 * self.first + (1.0 - beta_1) * change
        if self.kind == "FedAdagrad":
            self.second = self.second + square
        elif self.kind == "FedYogi":
            self.second = self.second - (1.0 - beta_2) * square * np.sign(self.second - square)
        else:
            self.second = beta_2 * self.second + (1.0 - beta_2) * square
            eta *= np.sqrt(1.0 - beta_2 ** (round_ + 1.0)) / (1.0 - beta_1 ** (round_ + 1.0))
        return np.asarray(eta * self.first / (np.sqrt(self.second) + self.settings["tau"]))
