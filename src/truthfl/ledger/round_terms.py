"""The terms of messages and reports: keys, the bound of a report, how reports are combined. Imports `errors`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from truthfl.errors import InputError

MEAN = "mean"
AGGREGATIONS = (MEAN, "trimmed", "median")
ALWAYS, FROM_THREE = "always", "in rounds of three or more"  # when reports are masked
FEWEST_MASKED = 3  # reports in a sum
KEY_DIGITS, HEX_DIGITS = 64, frozenset("0123456789abcdef")
DEFAULTS: Mapping[str, object] = {
    "agreement_key": "",
    "report_bound": 0.0,
    "aggregation": MEAN,
    "secure_aggregation": "",
    "least_participation": 1.0,
}


def masks_reports(secure_aggregation: str, taking_part: int) -> bool:
    """Whether reports are masked in a job in which so many clients take part."""
    return secure_aggregation == ALWAYS or (secure_aggregation == FROM_THREE and taking_part >= FEWEST_MASKED)


def without_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a job's terms without those that earlier offers do not have, if they are the default."""
    return {name: value for name, value in values.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def require_sound_round_terms(agreement_key: object, bound: object, aggregation: object, secure: object) -> None:
    """Raise InputError unless these terms of an offer are sound."""
    key = agreement_key
    if not isinstance(key, str) or (key and (len(key) != KEY_DIGITS or not set(key) <= HEX_DIGITS)):
        raise InputError(f"this is no offer: its agreement_key has not {KEY_DIGITS} hexadecimal digits.")
    if type(bound) not in (int, float) or not 0 <= bound < math.inf:  # type: ignore[operator]
        raise InputError("this is no offer: its report_bound is no finite number from 0 on.")
    if aggregation not in AGGREGATIONS or secure not in ("", ALWAYS, FROM_THREE):
        raise InputError("this is no offer: it does not say in a known way how reports are combined.")
    if secure and not (key and bound and aggregation == MEAN):
        raise InputError("this is no offer: masked reports need an agreement key, a bound and the mean of reports.")
