"""Pay is a lottery while the loss is tested on few samples: how wide it spreads, and what narrows it.

Looks at `checks` and `contract`. docs/mechanism.md, section 3.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, number, whole_number
from truthfl.mechanism.contract import Contract


def pay_standard_deviation(contract: Contract, loss_variance: float, *, test_samples: int = 1) -> FloatArray:
    """Φ_i √(Var f / m): the standard deviation of client i's pay when the loss is averaged over m test samples."""
    variance = number("loss_variance", loss_variance, at_least=0.0)
    samples = whole_number("test_samples", test_samples, at_least=1)
    return contract.slope * math.sqrt(variance / samples)


def samples_for_share(contract: Contract, expected_pay: ArrayLike, loss_variance: float, *, share: float) -> int:
    """The number m of test samples from which on nobody's standard deviation exceeds this share of her pay."""
    pay = np.asarray(expected_pay, dtype=float)
    if not (pay > 0).all():
        raise InputError("expected_pay is not positive for every client; a share of it is no measure then.")
    wanted = number("share", share, positive=True) * pay
    single = pay_standard_deviation(contract, loss_variance)
    return max(1, math.ceil(float(np.max(np.square(single / wanted))) * (1.0 - 1e-12)))


def confidence_margin(contract: Contract, standard_error: float, *, confidence: float = 0.95) -> FloatArray:
    """Φ_i z se: the margin that keeps honest pay at or above cost with this confidence,

    when gap + F̂* is an estimate with this standard error. Added to the base, it changes no incentive.
    """
    error = number("standard_error", standard_error, at_least=0.0)
    chance = number("confidence", confidence)
    if not 0.5 <= chance < 1.0:
        raise InputError(f"confidence is {chance:g}; it must be a number from 0.5 up to, but not, 1.")
    return contract.slope * (NormalDist().inv_cdf(chance) * error)
