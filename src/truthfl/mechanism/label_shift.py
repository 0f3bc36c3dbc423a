"""β, the effect of a random label on gradients, computed from the ranges of the data.

docs/mechanism.md, section 1.
"""

from __future__ import annotations

from truthfl.errors import InputError
from truthfl.mechanism.checks import number, whole_number


def feature_norm_bound(low: float, high: float, features: int) -> float:
    """X with ‖x‖² ≤ X for `features` features, each within [low, high]."""
    lowest, highest = _range("low", low, "high", high)
    return whole_number("features", features, at_least=1) * max(lowest**2, highest**2)


def linear_regression_label_shift(
    feature_norm: float, label_low: float, label_high: float, *, as_printed: bool = False
) -> float:
    """β for ½(x·w − y)², ‖x‖² ≤ `feature_norm` = X and labels within [label_low, label_high].

    The gradients differ by (y' − y) x, so β = (label_high − label_low)² X. For labels of either sign, y² ≤ Y, that is
    4YX, for labels of one sign YX. `as_printed` gives the paper's 2YX, too low in the first case (docs/errata.md,
    number 5).
    """
    norm = number("feature_norm", feature_norm, positive=True)
    low, high = _range("label_low", label_low, "label_high", label_high)
    return 2.0 * max(low**2, high**2) * norm if as_printed else (high - low) ** 2 * norm


def softmax_label_shift(feature_norm: float, classes: int, *, bias: bool = True) -> float:
    """β for softmax regression, ‖x‖² ≤ `feature_norm` = X: 2 (1 − 1/K) (X + 1), without a bias term 2 (1 − 1/K) X.

    The gradients for labels y ≠ y' differ by ±x in two of the K rows, whatever the weights and their L2 penalty
    are; a random label equals the true one with chance 1/K.
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
