"""The privacy of noisy training: (ε, δ) of differential privacy for everything that a participant's computer sends.

Each step draws every sample with the same probability q, independently and in secret. It clips each drawn sample's
gradient to length C and adds Gaussian noise of standard deviation z·C to their sum. The Rényi divergences are from
Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Contract" (arXiv 1908.10530), section
3.3. They add up over steps. The conversion to (ε, δ) is proposition 12 of Canonne, Kamath and Steinke (arXiv
2004.00010). Between whole orders the logarithm of the moment, which is convex in the order, is interpolated: an upper
bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from truthfl.contracts.setting import number, whole_number
from truthfl.learning.solo import Recipe

Floats = NDArray[np.float64]

DELTA = 1e-5
MOST_ORDER = 256
ORDERS: Floats = np.concatenate((np.arange(1.05, 10.0, 0.05), np.arange(10.0, MOST_ORDER + 1.0)))


@dataclass(frozen=True)
class NoisySteps:
    """A number of steps, each of which draws every sample with this probability and adds this noise.

    noise  z, the noise's standard deviation as a multiple of the length to which gradients are clipped
    """

    steps: int
    probability: float
    noise: float

    def __post_init__(self) -> None:
        whole_number("steps", self.steps, at_least=0)
        number("probability", self.probability, at_least=0.0)
        number("noise", self.noise, at_least=0.0)


def epsilon(trainings: Iterable[NoisySteps], delta: float = DELTA) -> float:
    """The ε at this δ of all these steps together; infinite without noise."""
    total = np.zeros(len(ORDERS))
    for training in trainings:
        if training.steps:
            total = total + training.steps * divergences(min(training.probability, 1.0), training.noise)
    return epsilon_of(total, delta) if total.any() else 0.0


def epsilon_of(divergence: Floats, delta: float, orders: Floats = ORDERS) -> float:
    """The least ε that divergences of these orders give at this δ."""
    with np.errstate(invalid="ignore"):
        by_order = divergence + np.log1p(-1.0 / orders) - (log(delta) + np.log(orders)) / (orders - 1.0)
    finite = by_order[np.isfinite(by_order)]
    return max(float(finite.min()), 0.0) if len(finite) else inf


def divergences(probability: float, noise: float) -> Floats:
    """The Rényi divergences of one step, of all `ORDERS`."""
    if probability == 0:
        return np.zeros(len(ORDERS))
    if noise == 0:
        return np.full(len(ORDERS), inf)
    if probability == 1:
        return np.asarray(ORDERS / (2.0 * noise**2))
    whole = np.arange(1.0, MOST_ORDER + 1.0)
    moments = np.array([_log_moment(int(order), probability, noise) for order in whole])
    return np.asarray(np.interp(ORDERS, whole, moments) / (ORDERS - 1.0))


def _log_moment(order: int, probability: float, noise: float) -> float:
    """log Σ_k (order over k) (1 − q)^(order − k) q^k exp((k² − k)/(2z²))."""
    k = np.arange(order + 1.0)
    binomial: Any = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    terms = binomial + k * log(probability) + (order - k) * np.log1p(-probability) + (k * k - k) / (2.0 * noise**2)
    largest = float(terms.max())
    return largest + log(float(np.exp(terms - largest).sum()))


@dataclass(frozen=True)
class PromisedPrivacy:
    """The privacy promise of a job's noise for one sample of a participant.

    clip, noise     the length of a sample's gradient, and the noise as a multiple of it
    epsilon, delta  of all the participant's messages together, whoever sees them; infinite without noise
    """

    clip: float
    noise: float
    epsilon: float
    delta: float = DELTA


def promised_privacy(
    clip: float, noise: float, *, samples: int, batch_size: float, steps: int, recipe: Recipe | None
) -> PromisedPrivacy:
    """The promise to a participant with this many samples.

    steps   of joint training: rounds times local steps, each with `batch_size` samples on average
    recipe  of their solo model; None without an audition
    """
    trainings = [NoisySteps(steps, batch_size / samples, noise)]
    if recipe is not None:
        trainings.append(NoisySteps(recipe.steps, recipe.batch_size / samples, noise))
    return PromisedPrivacy(clip, noise, epsilon(trainings))
