"""The server's search for the step size that serves its rounds best, before it announces anything.

While the step is smaller than that, whoever inflates her report acts like a larger step and lowers the loss; at the
best step she does not (docs/learning.md). Looks at `federated`, `training`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.federated import Federated
from truthfl.learning.images import LabeledImages
from truthfl.learning.training import train
from truthfl.mechanism.strategies import Strategies

COARSE = 9
FINE = 6


@dataclass(frozen=True, eq=False)
class StepSearch:
    """The best step size of those tried, and the mean loss (with its standard error) at each."""

    best: float
    tried: NDArray[np.float64]
    loss: NDArray[np.float64]
    standard_error: NDArray[np.float64]

    @property
    def bottom(self) -> float:
        """Where a parabola in log η, through the least loss and two on either side, is lowest; between its neighbours.

        Near its minimum the loss is so flat that of two neighbours it is chance which has the lesser mean.
        """
        least = int(np.nanargmin(self.loss))
        around = slice(max(least - 2, 0), least + 3)
        x, y, error = np.log(self.tried[around]), self.loss[around], self.standard_error[around]
        known = np.isfinite(y) & np.isfinite(error)
        if known.sum() < 4:
            return self.best
        typical = max(float(np.median(error[known])), 1e-12)
        square, slope, _ = np.polyfit(x[known], y[known], 2, w=1.0 / np.maximum(error[known], typical))
        if square <= 0:
            return self.best
        ends = self.tried[max(least - 1, 0)], self.tried[min(least + 1, len(self.tried) - 1)]
        return float(np.clip(np.exp(-slope / (2.0 * square)), *ends))


def find_step_size(
    federated: Federated,
    evaluation: LabeledImages,
    batch_size: ArrayLike,
    *,
    low: float = 1e-3,
    high: float = 10.0,
    seeds: int = 8,
) -> StepSearch:
    """The step size with the least mean loss on the evaluation data after all rounds, everybody honest.

    A coarse grid in the logarithm from low to high, then a fine one between the neighbours of the best.
    """
    if not 0 < low < high:
        raise InputError(f"low is {low:g} and high is {high:g}; step sizes are searched between 0 < low < high.")
    first = np.geomspace(low, high, COARSE)
    coarse = _losses(federated, evaluation, batch_size, first, seeds)
    best = int(np.nanargmin(coarse.mean(axis=1)))
    second = np.geomspace(first[max(best - 1, 0)], first[min(best + 1, COARSE - 1)], FINE + 2)[1:-1]
    fine = _losses(federated, evaluation, batch_size, second, seeds)
    tried, losses = np.concatenate((first, second)), np.concatenate((coarse, fine))
    order = np.argsort(tried)
    tried, losses = tried[order], losses[order]
    mean = losses.mean(axis=1)
    error = losses.std(axis=1, ddof=1) / np.sqrt(seeds)
    return StepSearch(float(tried[np.nanargmin(mean)]), tried, mean, error)


@dataclass(frozen=True, eq=False)
class Exaggeration:
    """By how much the loss changes if one client scales her report so: mean and standard error over paired seeds."""

    report_scale: NDArray[np.float64]
    change: NDArray[np.float64]
    standard_error: NDArray[np.float64]


def effect_of_scaled_reports(
    federated: Federated,
    evaluation: LabeledImages,
    batch_size: ArrayLike,
    *,
    step_size: float,
    client: int = 0,
    report_scales: ArrayLike = (0.0, 0.5, 1.5, 2.0),
    seeds: int = 16,
) -> Exaggeration:
    """What one client's γ does to the final loss, the others honest, at this step size."""
    scales = np.asarray(report_scales, dtype=float)
    count = len(federated.partition)
    profiles = np.ones((len(scales) + 1, count))
    profiles[1:, client] = scales
    batches = np.broadcast_to(np.asarray(batch_size, dtype=float), (count,))
    many = Strategies(1.0, np.tile(batches, (len(profiles) * seeds, 1)), np.repeat(profiles, seeds, axis=0))
    draws = np.tile(np.arange(seeds), len(profiles))
    done = train(federated, many, draws, step_sizes=step_size, watch={"evaluation": evaluation})
    losses = done.watched["evaluation"].loss[:, -1].reshape(len(profiles), seeds)
    change = losses[1:] - losses[0]
    return Exaggeration(scales, change.mean(axis=1), change.std(axis=1, ddof=1) / np.sqrt(seeds))


def _losses(
    federated: Federated, evaluation: LabeledImages, batch_size: ArrayLike, steps: NDArray[np.float64], seeds: int
) -> NDArray[np.float64]:
    batches = np.broadcast_to(np.asarray(batch_size, dtype=float), (len(federated.partition),))
    honest, draws = Strategies.truthful(batches), np.tile(np.arange(seeds), len(steps))
    with np.errstate(over="ignore", invalid="ignore"):  # far too large a step diverges, which is an answer
        done = train(federated, honest, draws, step_sizes=np.repeat(steps, seeds), watch={"evaluation": evaluation})
    losses = done.watched["evaluation"].loss[:, -1].reshape(len(steps), seeds)
    return np.where(np.isfinite(losses), losses, np.inf)
