"""Two bounds on the loss gap, as loss models: the paper's Theorem 1, and one that also holds for dishonest clients.

Formulas: docs/mechanism.md, sections 2a, 2b and 2c. Both cover partial participation: a client participates in a round
with probability q_i, and her report is then weighted p_i/q_i.
"""

from __future__ import annotations

import math

import numpy as np

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, inner
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.setting import Clients, Constants, Training


def paper_bound(clients: Clients, training: Training, constants: Constants) -> LossModel:
    """The right-hand side of the paper's Theorem 1 (section 2a), η ≤ 1/(2L).

    With A = 2Lη (1 − (1 − μη)^{TH})/μ and k = 2(H−1)²:

        c_0 = L (1−μη)^{TH} R² + A Σ p_i (6 L d_i + k G²) + A H Σ π_i G²
        v_i = A σ_i² (p_i (p_i + k) + H π_i)       b_i = A β p_i (1 + k)
        g_i = 2 A p_i G²      v'_i = 2 A p_i σ_i²      b'_i = 2 A p_i β

    π_i = p_i² (1−q_i)/q_i is the variance that absence adds (section 2c). Beware: as printed it is no bound when
    clients are dishonest (docs/errata.md, number 3); `sound_bound` is.
    """
    _require_step_size(training, constants, "paper_bound", divisor=2)
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    H, p, variance = training.local_steps, clients.weight, clients.gradient_variance
    remaining, decayed = _decay(mu * eta, training.total_steps)
    A = 2.0 * L * eta * decayed / mu
    drift = 2.0 * (H - 1) ** 2
    absence = absence_variance(clients)
    constant = L * remaining * constants.initial_distance
    constant += A * (6.0 * L * inner(p, clients.heterogeneity) + drift * constants.gradient_bound)
    if absence is not None:
        constant += A * H * constants.gradient_bound * float(absence.sum())

    spread = (p + drift) * p
    if absence is not None:
        spread += H * absence
    labeling, reporting_labeling = (p * (A * constants.label_shift * k) for k in (1.0 + drift, 2.0))
    return LossModel(
        constant=constant,
        sampling=spread * variance * A,
        labeling=labeling,
        reporting=p * (2.0 * A * constants.gradient_bound),
        reporting_sampling=p * variance * (2.0 * A),
        reporting_labeling=reporting_labeling,
        optimal_loss=constants.optimal_loss,
    )


def sound_bound(clients: Clients, training: Training, constants: Constants) -> LossModel:
    """A bound that also holds when clients are dishonest (section 2b, with its proof), η ≤ 1/(4L).

    With x = μη, ρ = 1 − x/4, K = (1−ρ^{TH})/(1−ρ), K_r = (1−ρ^{TH})/(1−ρ^H), k = (L/2)(1 + Hx/4) K,
    m = 2 (1 + x/2) η² (H−1)², r = (L/2) K_r (η² H² + 4ηH/μ) and, for absence, s = 2 L K_r η² H²:

        c_0 = (L/2) ρ^{TH} R² + k (1 + x/2) 6 L η² Σ p_i d_i + 2 k m G² + s Σ π_i G²
        v_i = k (η² p_i² + 2 m p_i) σ_i² + s π_i σ_i²      b_i = k (η² + 2η/μ + 2 m) p_i β + s π_i β
        g_i = (2 r p_i + s π_i) G²      v'_i = (2 r p_i + s π_i) σ_i²      b'_i = (2 r p_i + s π_i) β

    `gradient_variance` must here bound the sampling variance under the labels really used.
    """
    _require_step_size(training, constants, "sound_bound", divisor=4)
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    H, p, variance = training.local_steps, clients.weight, clients.gradient_variance
    beta, G2 = constants.label_shift, constants.gradient_bound
    x = mu * eta
    remaining, decayed = _decay(x / 4.0, training.total_steps)
    steps = decayed / (x / 4.0)
    rounds = decayed / _decay(x / 4.0, H)[1]
    k = L / 2.0 * (1.0 + H * x / 4.0) * steps
    m = 2.0 * (1.0 + x / 2.0) * eta**2 * (H - 1) ** 2
    r = L / 2.0 * rounds * (eta**2 * H**2 + 4.0 * eta * H / mu)
    absence = absence_variance(clients)

    constant = L / 2.0 * remaining * constants.initial_distance + 2.0 * k * m * G2
    constant += k * (1.0 + x / 2.0) * 6.0 * L * eta**2 * inner(p, clients.heterogeneity)
    spread = (k * eta**2) * p
    spread += 2.0 * k * m
    spread *= p
    bias = p * (k * (eta**2 + 2.0 * eta / mu + 2.0 * m))
    jump = p * (2.0 * r)
    if absence is not None:
        absence *= 2.0 * L * rounds * eta**2 * H**2
        constant += G2 * float(absence.sum())
        spread += absence
        bias += absence
        jump += absence
    return LossModel(
        constant=constant,
        sampling=spread * variance,
        labeling=bias * beta,
        reporting=jump * G2,
        reporting_sampling=jump * variance,
        reporting_labeling=jump * beta,
        optimal_loss=constants.optimal_loss,
    )


def absence_variance(clients: Clients) -> FloatArray | None:
    """π_i = p_i² (1 − q_i)/q_i (section 2c); None if all clients always participate."""
    if clients.participation.min() == 1.0:
        return None

    return np.asarray((1.0 / clients.participation - 1.0) * clients.weight * clients.weight)


def _decay(rate: float, steps: int) -> tuple[float, float]:
    """(1 − rate)^steps and 1 − (1 − rate)^steps, both exact also where the rate is tiny."""
    exponent = steps * math.log1p(-rate)
    return math.exp(exponent), -math.expm1(exponent)


def _require_step_size(training: Training, constants: Constants, bound: str, *, divisor: int) -> None:
    limit = 1.0 / (divisor * constants.smoothness)
    if training.step_size > limit * (1.0 + 1e-12):
        raise InputError(
            f"step_size is {training.step_size:g}; {bound} holds for a step size up to 1/({divisor} smoothness) = "
            f"{limit:g}."
        )
