"""The formulas that several rooms need, each in this one place. They work on numbers and on arrays alike.

Imports nothing, so that a page can use them without NumPy. Symbols are those of docs/mechanism.md, section 1.
"""

from __future__ import annotations

from typing import Any


def work_cost(labeling_cost: Any, labeling_effort: Any, batch_price: Any, batch_size: Any) -> Any:
    """c_l e_i + T q_i c_p D_i: what client i's work costs her (section 1)."""
    return labeling_cost * labeling_effort + batch_price * batch_size
