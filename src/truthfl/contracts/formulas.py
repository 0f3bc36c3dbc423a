"""Formulas and words shared by several packages of truthfl; formulas are for numbers and for arrays.

Symbols: docs/mechanism.md, section 1.
"""

from __future__ import annotations

from typing import Any

LITTLE_GAIN = 0.02  # of the cost of honest work: a lie that gains no more does not count as paying
COMMON, SOLO_MEAN = "common", "solo mean"  # where training starts: from a seed's model, or the mean of solo models


def reward(base: Any, slope: Any, labeling_cost: Any, test_loss: Any) -> Any:
    """r_i = Ω_i − Φ_i f + c_l: LCEME's pay at the test loss f (docs/mechanism.md, section 3)."""
    result = slope * -test_loss
    result += base
    result += labeling_cost
    return result


def batch_price(rounds: Any, participation: Any, sample_cost: Any) -> Any:
    """T q_i c_p: client i's expected cost of one more sample in every batch of the job (section 2c)."""
    return sample_cost * (rounds * participation)


def work_cost(labeling_cost: Any, labeling_effort: Any, batch_price: Any, batch_size: Any) -> Any:
    """c_l e_i + T q_i c_p D_i: the cost of client i's work (section 1)."""
    return labeling_cost * labeling_effort + batch_price * batch_size


def own_gap(
    sampling: Any,
    labeling: Any,
    reporting: Any,
    reporting_sampling: Any,
    reporting_labeling: Any,
    *,
    labeling_effort: Any,
    batch_size: Any,
    report_scale: Any,
) -> Any:
    """Client i's part of the gap (section 2):

    v_i/D_i + b_i (1 − e_i) + (γ_i − 1)² (g_i + v'_i/D_i + b'_i (1 − e_i))
    """
    idle = 1.0 - labeling_effort
    scaled = (report_scale - 1.0) * (report_scale - 1.0)
    honest_report = sampling / batch_size + labeling * idle
    scaled_report = reporting + reporting_sampling / batch_size + reporting_labeling * idle
    return honest_report + scaled * scaled_report
