"""Federations with quadratic losses, whose constants and expected final loss are computed exactly.

F_i(w) = ½ Σ_k h_ik (w_k − a_ik)². Training is linear in w, so the mean and variance of each coordinate are propagated
from step to step instead of drawing noise. Used to test bounds on the loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl.contracts.setting import Clients, Constants, FloatArray, Strategies, Training


@dataclass(frozen=True, eq=False)
class QuadraticFederation:
    """N clients, d coordinates.

    curvature    h_ik   (N, d), positive
    optimum      a_ik   (N, d)
    label_bias          (N, d) the change of client i's mean gradient by random labels
    noise        σ_i²   (N,) variance of one sample's gradient, spread evenly over the coordinates
    weight       p_i    (N,)
    availability q_i    (N,)
    start        w_0    (d,)
    """

    curvature: FloatArray
    optimum: FloatArray
    label_bias: FloatArray
    noise: FloatArray
    weight: FloatArray
    availability: FloatArray
    start: FloatArray

    @property
    def solution(self) -> FloatArray:
        """w*, the minimizer of Σ p_i F_i."""
        pull = self.weight[:, None] * self.curvature
        return np.asarray((pull * self.optimum).sum(axis=0) / pull.sum(axis=0))


@dataclass(frozen=True)
class QuadraticOutcome:
    """The expected loss gap after training, and the largest E‖∇F_i(w)‖² during training."""

    gap: float
    gradient_bound: float


def train_exactly(federation: QuadraticFederation, training: Training, strategies: Strategies) -> QuadraticOutcome:
    """Train T rounds of H local steps; reports are scaled by γ_i and weighted p_i/q_i if client i participates."""
    h, a, p = federation.curvature, federation.optimum, federation.weight[:, None]
    q, eta = federation.availability[:, None], training.step_size
    scale = strategies.report_scale[:, None]
    bias = (1.0 - strategies.labeling_effort)[:, None] * federation.label_bias
    noise = (federation.noise / strategies.batch_size)[:, None] / h.shape[1]
    shrink = 1.0 - eta * h
    mean, variance = federation.start.copy(), np.zeros_like(federation.start)
    largest = 0.0
    for _ in range(training.rounds):
        # A local model is slope · w + offset + noise of variance `spread`, where w is the round's common start.
        slope, offset, spread = np.ones_like(h), np.zeros_like(h), np.zeros_like(h)
        for _ in range(training.local_steps):
            gradient = np.square(h) * (np.square(slope * mean + offset - a) + np.square(slope) * variance + spread)
            largest = max(largest, float(gradient.sum(axis=1).max()))
            slope, offset, spread = (
                shrink * slope,
                shrink * offset + eta * (h * a - bias),
                np.square(shrink) * spread + eta**2 * noise,
            )
        step_mean = (slope - 1.0) * mean + offset
        step_square = np.square(step_mean) + np.square(slope - 1.0) * variance + spread
        absence = np.square(p * scale) * (1.0 - q) / q * step_square
        carried = 1.0 + (p * scale * (slope - 1.0)).sum(axis=0)
        variance = np.square(carried) * variance + (np.square(p * scale) * spread + absence).sum(axis=0)
        mean = mean + (p * scale * step_mean).sum(axis=0)
    distance = np.square(mean - federation.solution) + variance
    gap = 0.5 * float((federation.weight[:, None] * h * distance).sum())
    return QuadraticOutcome(gap, largest)


def describe(
    federation: QuadraticFederation, gradient_bound: float, *, sample_cost: float = 1.0, labeling_cost: float = 1.0
) -> tuple[Clients, Constants]:
    """The federation as `Clients` and `Constants`; all values but the given gradient bound are exact."""
    h, w = federation.curvature, federation.solution
    clients = Clients(
        weight=federation.weight,
        gradient_variance=federation.noise,
        sample_cost=sample_cost,
        labeling_cost=labeling_cost,
        dataset_size=10**9,
        heterogeneity=0.5 * (h * np.square(w - federation.optimum)).sum(axis=1),
        participation=federation.availability,
    )
    constants = Constants(
        smoothness=float(h.max()),
        strong_convexity=float(h.min()),
        label_shift=float(np.square(federation.label_bias).sum(axis=1).max()),
        gradient_bound=gradient_bound,
        initial_distance=float(np.square(federation.start - w).sum()),
        optimal_loss=0.5 * float((federation.weight[:, None] * h * np.square(w - federation.optimum)).sum()),
    )
    return clients, constants
