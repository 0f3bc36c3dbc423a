"""The spread of pay when the loss is an estimate or is tested on few samples, and the margin that covers it.

docs/mechanism.md, section 3.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, number, whole_number

if TYPE_CHECKING:
    from truthfl.mechanism.mechanism import Mechanism


def pay_slope(contract: Mechanism) -> FloatArray:
    """Φ_i: pay that each client loses per unit of test loss; `InputError` if the mechanism is not linear in it."""
    linear = contract.linear()
    if linear is None:
        raise InputError(f"the pay of {contract.name} is not linear in the test loss; it has no slope.")
    return np.broadcast_to(np.asarray(linear.slope, dtype=float), np.shape(contract.batch_size))


def pay_standard_deviation(contract: Mechanism, loss_variance: float, *, test_samples: int = 1) -> FloatArray:
    """Φ_i √(Var f / m): the standard deviation of client i's pay when the loss is averaged over m test samples."""
    variance = number("loss_variance", loss_variance, at_least=0.0)
    samples = whole_number("test_samples", test_samples, at_least=1)
    return pay_slope(contract) * math.sqrt(variance / samples)


def samples_for_share(contract: Mechanism, expected_pay: ArrayLike, loss_variance: float, *, share: float) -> int:
    """The smallest number m of test samples at which no standard deviation of pay exceeds this share of the pay."""
    pay = np.asarray(expected_pay, dtype=float)
    if not (pay > 0).all():
        raise InputError("expected_pay is not positive for every client; a share of it is no measure then.")
    wanted = number("share", share, positive=True) * pay
    single = pay_standard_deviation(contract, loss_variance)
    return max(1, math.ceil(float(np.max(np.square(single / wanted))) * (1.0 - 1e-12)))


def confidence_margin(contract: Mechanism, standard_error: float, *, confidence: float = 0.95) -> FloatArray:
    """Φ_i z se: the margin that keeps honest pay at or above cost with this confidence,

    when gap + F̂* is an estimate with this standard error. Added to the base, it changes no incentive.
    """
    return pay_slope(contract) * covered_error(standard_error, confidence=confidence)


def covered_error(standard_error: float, *, confidence: float = 0.95) -> float:
    """z se: by no more than this an estimate with this standard error is too low, with this confidence."""
    error = number("standard_error", standard_error, at_least=0.0)
    chance = number("confidence", confidence)
    if not 0.5 <= chance < 1.0:
        raise InputError(f"confidence is {chance:g}; it must be a number from 0.5 up to, but not, 1.")
    return NormalDist().inv_cdf(chance) * error
