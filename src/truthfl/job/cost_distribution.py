"""The distribution of private sample costs, from the field `cost_distribution` of section [server]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.errors import InputError
from truthfl.mechanism.checks import number
from truthfl.mechanism.virtual_cost import CostDistribution, VirtualCost

FIELD = "cost_distribution"
EXAMPLE = '{name = "uniform", loc = 0.0005, scale = 0.002}'


def cost_distribution(values: object) -> CostDistribution:
    """The SciPy distribution of this name with these parameters, checked to be one that costs can be screened by."""
    import scipy.stats

    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise InputError(f"{FIELD} is {values!r}; it must have the name of a SciPy distribution, as {EXAMPLE}.")
    name = values["name"]
    kind = getattr(scipy.stats, name, None)
    if not isinstance(kind, scipy.stats.rv_continuous):
        raise InputError(f"{FIELD} has the name {name!r}; SciPy has no continuous distribution of that name.")
    shapes = [shape.strip() for shape in (kind.shapes or "").split(",") if shape.strip()]
    known, given = [*shapes, "loc", "scale"], {field: value for field, value in values.items() if field != "name"}
    for field, value in given.items():
        if field not in known:
            raise InputError(f"{FIELD} has no parameter {field!r}; those of {name} are {', '.join(known)}.")
        number(f"{FIELD} {field}", value)
    missing = [shape for shape in shapes if shape not in given]
    if missing:
        raise InputError(f"{FIELD} lacks {', '.join(missing)}; the parameters of {name} are {', '.join(known)}.")
    return _screenable(kind(**{field: float(value) for field, value in given.items()}))


def cost_range(values: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest cost."""
    low, high = cost_distribution(values).support()
    return float(low), float(high)


def _screenable(distribution: CostDistribution) -> CostDistribution:
    low, high = distribution.support()
    if not low < high:  # NaN as well: SciPy takes parameters out of bounds and answers with NaN
        raise InputError(f"{FIELD} has parameters for which SciPy knows no distribution; a scale is above 0.")
    try:
        VirtualCost(distribution)
    except InputError as error:
        raise InputError(f"{FIELD}: {error}") from None
    return distribution
