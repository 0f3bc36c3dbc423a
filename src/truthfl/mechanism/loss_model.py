"""`LossModel`: the expected loss as a function of the clients' strategies.

Its coefficients come from a bound or a calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism import formulas
from truthfl.mechanism.checks import FloatArray, client_array, client_count, number
from truthfl.mechanism.strategies import Strategies


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
