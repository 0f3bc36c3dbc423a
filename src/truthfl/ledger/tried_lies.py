"""`TriedLie`: a lie in an offer that the operator tried; reading the parts of offers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from truthfl.errors import InputError

LONGEST_LIE = 500  # letters


@dataclass(frozen=True)
class TriedLie:
    """A lie that the operator tried on data of its own, the best of its kind under this contract.

    kind, words      what she would do: the kind of lie, and the lie itself in a few words and numbers
    labels           the share of her samples that she would label by hand
    batch_size       the batch that she would use; 0 if she would not compute
    delivered        the share of the rounds in which her report would be taken
    loss_rise        by how much the expected loss would rise
    loss_rise_error  its standard error
    solo_rise        by how much the loss of her solo model would rise; 0 if none is tested
    solo_rise_error  its standard error
    """

    kind: str
    words: str
    labels: float
    batch_size: int
    delivered: float
    loss_rise: float
    loss_rise_error: float
    solo_rise: float = 0.0
    solo_rise_error: float = 0.0


def tried_lie_from(document: object) -> TriedLie:
    """The lie in this part of an offer."""
    lie = TriedLie(**field_values(TriedLie, document, "lie"))
    texts = isinstance(lie.kind, str) and isinstance(lie.words, str) and len(lie.kind + lie.words) <= LONGEST_LIE
    numbers = (
        lie.labels,
        lie.batch_size,
        lie.delivered,
        lie.loss_rise,
        lie.loss_rise_error,
        lie.solo_rise,
        lie.solo_rise_error,
    )
    if not texts or not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
        raise InputError(f"this is no offer: a lie needs two texts of up to {LONGEST_LIE} letters and finite numbers.")
    errors = (lie.loss_rise_error, lie.solo_rise_error)
    if min(lie.labels, lie.batch_size, lie.delivered, *errors) < 0 or lie.delivered > 1:
        raise InputError("this is no offer: a lie has negative numbers, or delivers more than all rounds.")
    return lie


def field_values(dataclass_type: type, values: object, where: str) -> Mapping[str, Any]:
    """The values if they are a mapping with the fields of this class; those with a default may be absent."""
    known = {item.name for item in fields(dataclass_type)}
    required = {item.name for item in fields(dataclass_type) if item.default is MISSING}
    if not isinstance(values, Mapping) or not required <= set(values) <= known:
        names = set(map(str, values)) if isinstance(values, Mapping) else set()
        missing, unknown = (", ".join(sorted(part)) or "nothing" for part in (required - names, names - known))
        raise InputError(f"this is no offer: its {where} lacks {missing}, and {unknown} is unknown.")
    return values
