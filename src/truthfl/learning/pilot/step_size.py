"""Searches the step size with the least final loss; measures the effect of a scaled report on the loss.

Below the best step size, a client who scales up their report lowers the loss, because this acts like a larger step
(docs/learning.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import Strategies
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.training.train import train

COARSE_STEPS = 9
FINE_STEPS = 6


@dataclass(frozen=True, eq=False)
class StepSearch:
    """The step sizes tried, the mean loss and its standard error at each, and the one with the least mean loss."""

    best: float
    tried: NDArray[np.float64]
    loss: NDArray[np.float64]
    standard_error: NDArray[np.float64]

    @property
    def parabola_minimum(self) -> float:
        """The minimum of a parabola in log η, fitted to the best step size and two on either side of it.

        Limited to the interval between the neighbours of the best step size. Near its minimum the loss is so flat that
        the best step size alone depends on chance.
        """
        least = int(np.nanargmin(self.loss))
        window = slice(max(least - 2, 0), least + 3)
        x, y, error = np.log(self.tried[window]), self.loss[window], self.standard_error[window]
        finite = np.isfinite(y) & np.isfinite(error)
        if finite.sum() < 4:
            return self.best
        typical = max(float(np.median(error[finite])), 1e-12)
        square, slope, _ = np.polyfit(x[finite], y[finite], 2, w=1.0 / np.maximum(error[finite], typical))
        if square <= 0:
            return self.best
        ends = self.tried[max(least - 1, 0)], self.tried[min(least + 1, len(self.tried) - 1)]
        return float(np.clip(np.exp(-slope / (2.0 * square)), *ends))


def find_step_size(
    federated: Federated,
    evaluation: LabeledSamples,
    batch_size: ArrayLike,
    *,
    low: float = 1e-3,
    high: float = 10.0,
    seeds: int = 8,
) -> StepSearch:
    """Find the step size with the least mean final loss on the evaluation data, all clients being honest.

    Tries a coarse logarithmic grid from low to high, then a fine one between the neighbours of the best.
    """
    if not 0 < low < high:
        raise InputError(f"low is {low:g} and high is {high:g}; step sizes are searched between 0 < low < high.")
    first = np.geomspace(low, high, COARSE_STEPS)
    coarse = _losses(federated, evaluation, batch_size, first, seeds)
    best = int(np.nanargmin(coarse.mean(axis=1)))
    second = np.geomspace(first[max(best - 1, 0)], first[min(best + 1, COARSE_STEPS - 1)], FINE_STEPS + 2)[1:-1]
    fine = _losses(federated, evaluation, batch_size, second, seeds)
    tried, losses = np.concatenate((first, second)), np.concatenate((coarse, fine))
    order = np.argsort(tried)
    tried, losses = tried[order], losses[order]
    mean = losses.mean(axis=1)
    error = losses.std(axis=1, ddof=1) / np.sqrt(seeds)
    return StepSearch(float(tried[np.nanargmin(mean)]), tried, mean, error)


@dataclass(frozen=True, eq=False)
class ScaledReportEffect:
    """The change of the loss if one client scales their report: mean and standard error over paired seeds, by scale."""

    report_scale: NDArray[np.float64]
    change: NDArray[np.float64]
    standard_error: NDArray[np.float64]


def effect_of_scaled_reports(
    federated: Federated,
    evaluation: LabeledSamples,
    batch_size: ArrayLike,
    *,
    step_size: float,
    client: int = 0,
    report_scales: ArrayLike = (0.0, 0.5, 1.5, 2.0),
    seeds: int = 16,
) -> ScaledReportEffect:
    """The effect of one client's γ on the final loss at this step size, the others being honest."""
    scales = np.asarray(report_scales, dtype=float)
    count = len(federated.partition)
    profiles = np.ones((len(scales) + 1, count))
    profiles[1:, client] = scales
    batches = np.broadcast_to(np.asarray(batch_size, dtype=float), (count,))
    strategies = Strategies(1.0, np.tile(batches, (len(profiles) * seeds, 1)), np.repeat(profiles, seeds, axis=0))
    draws = np.tile(np.arange(seeds), len(profiles))
    trained = train(federated, strategies, draws, step_sizes=step_size, evaluate_on={"evaluation": evaluation})
    losses = trained.evaluations["evaluation"].loss[:, -1].reshape(len(profiles), seeds)
    change = losses[1:] - losses[0]
    return ScaledReportEffect(scales, change.mean(axis=1), change.std(axis=1, ddof=1) / np.sqrt(seeds))


def _losses(
    federated: Federated, evaluation: LabeledSamples, batch_size: ArrayLike, steps: NDArray[np.float64], seeds: int
) -> NDArray[np.float64]:
    batches = np.broadcast_to(np.asarray(batch_size, dtype=float), (len(federated.partition),))
    honest, draws = Strategies.truthful(batches), np.tile(np.arange(seeds), len(steps))
    trained = train(
        federated, honest, draws, step_sizes=np.repeat(steps, seeds), evaluate_on={"evaluation": evaluation}
    )
    losses = trained.evaluations["evaluation"].loss[:, -1].reshape(len(steps), seeds)
    return np.where(np.isfinite(losses), losses, np.inf)
