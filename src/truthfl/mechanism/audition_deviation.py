"""What a client gains by other labels or batches than asked for, on the measured curves, under the audition contract.

Losses vary normally around the curves, pay is kept between 0 and the caps, and who fails the gate does not compute.
docs/mechanism.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_plan import require_measured
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.setting import batch_price

BATCHES_TRIED = 24


@dataclass(frozen=True, eq=False)
class BestChoice:
    """The labels and batch that serve each client best, (N,), and what they gain her over those asked for."""

    labels: FloatArray
    batch_size: FloatArray
    gain: FloatArray
    payoff: FloatArray


def expected_clipped(mean: ArrayLike, deviation: ArrayLike, high: ArrayLike) -> FloatArray:
    """E min(max(X, 0), high) of a normal X with this mean and standard deviation."""
    m, s, h = (np.asarray(values, dtype=float) for values in (mean, deviation, high))
    certain = s <= 1e-9 * (1.0 + np.abs(m))
    safe = np.where(certain, 1.0, s)
    low, top = -m / safe, (h - m) / safe
    ndtr = _distribution()
    inside = m * (ndtr(top) - ndtr(low)) + safe * (_density(low) - _density(top)) + h * (1.0 - ndtr(top))
    return np.asarray(np.where(certain, np.clip(m, 0.0, h), inside))


def _distribution() -> Callable[[ArrayLike], FloatArray]:
    """The normal distribution function; imported when needed."""
    from scipy.special import ndtr

    function: Callable[[ArrayLike], FloatArray] = ndtr
    return function


def _density(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi))


def expected_payoff(inputs: PlanInputs, contract: Audition, labels: ArrayLike, batch_size: ArrayLike) -> FloatArray:
    """The expected payoff of each client with these labels and batch, (…, N), the others being honest."""
    measured, clients = require_measured(inputs), inputs.clients
    n, batch = np.asarray(labels, dtype=float), np.asarray(batch_size, dtype=float)
    peers = np.sqrt(1.0 + 1.0 / len(clients))
    rise, spread = measured.solo.level(n) - contract.solo_level, measured.solo.spread(n) * peers
    label_pay = expected_clipped(
        contract.label_base - contract.label_slope * rise, contract.label_slope * spread, contract.label_cap
    )
    passing = _distribution()((contract.gate - rise) / np.maximum(spread, 1e-300))
    total = contract.total_labels
    worse = measured.joint_curve * (1.0 / (total - contract.labels + n) - 1.0 / total)
    worse = worse + measured.sampling * (1.0 / batch - 1.0 / contract.batch_size)
    computing_pay = expected_clipped(
        contract.joint_base - contract.joint_slope * worse,
        contract.joint_slope * measured.loss_error,
        contract.joint_cap,
    )
    computing = passing * (computing_pay - batch_price(clients, inputs.training) * batch)
    label_cost = clients.labeling_cost / clients.dataset_size
    return np.asarray(label_pay + computing - label_cost * n - measured.audition_cost)


def best_choice(inputs: PlanInputs, contract: Audition) -> BestChoice:
    """A search over all numbers of labels that the solo curve covers, and batches from 1 to the samples held.

    Other labels than asked for are searched with the batch asked for, then batches with the labels found.
    """
    clients, numbers = inputs.clients, require_measured(inputs).solo.labels
    honest = expected_payoff(inputs, contract, contract.labels, contract.batch_size)
    every = np.arange(np.ceil(numbers[0]), np.floor(numbers[-1]) + 1.0)
    by_labels = expected_payoff(inputs, contract, every[:, None], contract.batch_size)
    by_labels = np.where(every[:, None] <= clients.dataset_size, by_labels, -np.inf)
    labels = every[by_labels.argmax(axis=0)]
    labels = np.where(by_labels.max(axis=0) > honest, labels, contract.labels)
    share = np.linspace(0.0, 1.0, BATCHES_TRIED)[:, None]
    batches = np.append(np.rint(np.exp(share * np.log(clients.dataset_size))), contract.batch_size[None], axis=0)
    by_batch = expected_payoff(inputs, contract, labels, batches)
    best = by_batch.argmax(axis=0)
    return BestChoice(labels, batches[best, np.arange(len(clients))], by_batch.max(axis=0) - honest, honest)
