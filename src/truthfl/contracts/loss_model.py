"""`LossModel`: the expected loss as a function of the clients' strategies, and two bounds on the loss gap.

Its coefficients come from a bound or a calibration.

Formulas: docs/mechanism.md, sections 2a, 2b and 2c. Both bounds cover partial participation: a client participates in
a round with probability q_i, and their report is then weighted p_i/q_i.

docs/mechanism.md, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts import formulas
from truthfl.contracts.setting import (
    Clients,
    Constants,
    FloatArray,
    Strategies,
    Training,
    client_array,
    client_count,
    inner,
    number,
    require_rounds,
    whole_number,
)
from truthfl.errors import InputError


@dataclass(frozen=True, init=False, eq=False)
class LossModel:
    """The separable loss gap of docs/mechanism.md, section 2:

        gap(e, D, γ) = c_0 + Σ_i [ v_i/D_i + b_i (1 − e_i) + (γ_i − 1)² ( g_i + v'_i/D_i + b'_i (1 − e_i) ) ]

    constant             c_0   part that does not depend on the clients
    sampling             v_i   effect of small batches
    labeling             b_i   effect of random labels
    reporting            g_i   effect of a scaled report
    reporting_sampling   v'_i  additional effect of a scaled report with small batches
    reporting_labeling   b'_i  additional effect of a scaled report with random labels
    optimal_loss         F̂*    the loss itself is F̂* + gap
    """

    constant: float
    sampling: FloatArray
    labeling: FloatArray
    reporting: FloatArray
    reporting_sampling: FloatArray
    reporting_labeling: FloatArray
    optimal_loss: float

    def __init__(
        self,
        *,
        constant: float,
        sampling: ArrayLike,
        labeling: ArrayLike,
        reporting: ArrayLike,
        reporting_sampling: ArrayLike = 0.0,
        reporting_labeling: ArrayLike = 0.0,
        optimal_loss: float = 0.0,
    ) -> None:
        count = client_count("sampling", sampling)
        arrays = {
            "sampling": sampling,
            "labeling": labeling,
            "reporting": reporting,
            "reporting_sampling": reporting_sampling,
            "reporting_labeling": reporting_labeling,
        }
        for field, value in arrays.items():
            array = client_array(field, value, count, lambda i: f"client {i}", at_least=0.0)
            object.__setattr__(self, field, array)
        object.__setattr__(self, "constant", number("constant", constant, at_least=0.0))
        object.__setattr__(self, "optimal_loss", number("optimal_loss", optimal_loss))

    def __len__(self) -> int:
        return len(self.sampling)

    def own_gap(self, labeling_effort: ArrayLike, batch_size: ArrayLike, report_scale: ArrayLike) -> FloatArray:
        """Each client's part of the gap: the bracket of the sum above."""
        gap: FloatArray = formulas.own_gap(
            self.sampling,
            self.labeling,
            self.reporting,
            self.reporting_sampling,
            self.reporting_labeling,
            labeling_effort=np.asarray(labeling_effort, dtype=float),
            batch_size=np.asarray(batch_size, dtype=float),
            report_scale=np.asarray(report_scale, dtype=float),
        )
        return gap

    def gap(self, strategies: Strategies) -> FloatArray:
        """gap(e, D, γ), summed over clients; one number for each profile in `strategies`."""
        if strategies.batch_size.shape[-1:] != (len(self),):
            shape = strategies.batch_size.shape
            raise InputError(f"strategies have shape {shape}; they must be for the loss model's {len(self)} clients.")
        own = self.own_gap(strategies.labeling_effort, strategies.batch_size, strategies.report_scale)
        return self.constant + np.asarray(own.sum(axis=-1))

    def expected_loss(self, strategies: Strategies) -> FloatArray:
        """F̂* + gap(e, D, γ)."""
        return self.optimal_loss + self.gap(strategies)

    def truthful_loss(self, batch_size: ArrayLike) -> float:
        """F̂* + gap(1, D, 1), the loss when all clients are honest."""
        samples = client_array("batch_size", batch_size, len(self), lambda i: f"client {i}", positive=True)
        return self.optimal_loss + self.constant + float((self.sampling / samples).sum())


def paper_bound(clients: Clients, training: Training, constants: Constants) -> LossModel:
    """The right-hand side of the paper's Theorem 1 (section 2a), η ≤ 1/(2L).

    With A = 2Lη (1 − (1 − μη)^{TH})/μ and k = 2(H−1)²:

        c_0 = L (1−μη)^{TH} R² + A Σ p_i (6 L d_i + k G²) + A H Σ π_i G²
        v_i = A σ_i² (p_i (p_i + k) + H π_i)       b_i = A β p_i (1 + k)
        g_i = 2 A p_i G²      v'_i = 2 A p_i σ_i²      b'_i = 2 A p_i β

    π_i = p_i² (1−q_i)/q_i is the variance that absence adds (section 2c). Warning: the printed version is no bound when
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
    require_rounds(training)
    limit = 1.0 / (divisor * constants.smoothness)
    if training.step_size > limit * (1.0 + 1e-12):
        raise InputError(
            f"step_size is {training.step_size:g}; {bound} holds for a step size up to 1/({divisor} smoothness) = "
            f"{limit:g}."
        )


def feature_norm_bound(low: float, high: float, features: int) -> float:
    """X with ‖x‖² ≤ X for `features` features, each within [low, high]."""
    lowest, highest = _range("low", low, "high", high)
    return whole_number("features", features, at_least=1) * max(lowest**2, highest**2)


def linear_regression_label_shift(
    feature_norm: float, label_low: float, label_high: float, *, as_printed: bool = False
) -> float:
    """β for ½(x·w − y)², ‖x‖² ≤ `feature_norm` = X and labels within [label_low, label_high].

    The gradients differ by (y' − y) x, so β = (label_high − label_low)² X. For labels of either sign with y² ≤ Y this
    is 4YX; for labels of one sign it is YX. `as_printed` gives the paper's 2YX, too low in the first case
    (docs/errata.md, number 5).
    """
    norm = number("feature_norm", feature_norm, positive=True)
    low, high = _range("label_low", label_low, "label_high", label_high)
    return 2.0 * max(low**2, high**2) * norm if as_printed else (high - low) ** 2 * norm


def softmax_label_shift(feature_norm: float, classes: int, *, bias: bool = True) -> float:
    """β for softmax regression, ‖x‖² ≤ `feature_norm` = X: 2 (1 − 1/K) (X + 1), without a bias term 2 (1 − 1/K) X.

    The gradients for labels y ≠ y' differ by ±x in two of the K rows, whatever the weights and their L2 penalty are. A
    random label equals the true one with chance 1/K.
    """
    norm = number("feature_norm", feature_norm, positive=True) + (1.0 if bias else 0.0)
    return 2.0 * (1.0 - 1.0 / whole_number("classes", classes, at_least=2)) * norm


def _range(low_field: str, low: float, high_field: str, high: float) -> tuple[float, float]:
    lowest, highest = number(low_field, low), number(high_field, high)
    if not lowest < highest:
        raise InputError(
            f"{low_field} is {lowest:g} and {high_field} is {highest:g}; {low_field} must be the lower one."
        )
    return lowest, highest
