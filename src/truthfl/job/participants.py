"""The clients of a `DataJob`: section [clients] of a job file."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import behaviour as known_behaviour
from truthfl.mechanism.checks import (
    FloatArray,
    client_array,
    client_whole_numbers,
    names,
)


@dataclass(frozen=True, init=False, eq=False)
class Participants:
    """The clients of a job on data. A single value applies to all clients; at least one field must be a list.

    dataset_size   number of samples
    labeling_cost  cost of labeling them all once
    label_cost     cost of one label; given in place of `labeling_cost`
    sample_cost    cost of one sample in one round's gradient
    participation  q, the probability of participating in a round
    behaviour      the client's behaviour in simulations: a name registered in `learning.behaviours`, or (not in a
                   file) a `Behaviour`
    name           the client's name in tables and messages
    stated         (not in a file) who of them states her own sample cost, in a job with a distribution of costs; None
                   for all
    """

    dataset_size: tuple[int, ...]
    labeling_cost: FloatArray
    sample_cost: FloatArray
    behaviour: tuple[str | Behaviour, ...]
    name: tuple[str, ...]
    participation: FloatArray
    stated: tuple[bool, ...] | None = field(init=False)

    def __init__(
        self,
        dataset_size: Any,
        sample_cost: Any,
        labeling_cost: Any = None,
        label_cost: Any = None,
        behaviour: Any = "truthful",
        name: Any = None,
        participation: Any = 1.0,
    ) -> None:
        if (labeling_cost is None) == (label_cost is None):
            raise InputError("either label_cost (of one label) or labeling_cost (of all samples) must be given.")
        fields = (name, dataset_size, labeling_cost, label_cost, sample_cost, behaviour, participation)
        count = next((len(value) for value in fields if _is_list(value)), 0)
        if count == 0:
            raise InputError("no field is a list; give a list of names, or of dataset_size, one per client.")
        all_names = names(name, count) or tuple(f"client {i}" for i in range(count))
        _require_different(all_names)
        sizes = client_whole_numbers("dataset_size", dataset_size, count, all_names.__getitem__, at_least=1)
        object.__setattr__(self, "dataset_size", tuple(sizes.tolist()))
        field, given = ("labeling_cost", labeling_cost) if label_cost is None else ("label_cost", label_cost)
        cost = client_array(field, given, count, all_names.__getitem__, positive=True)
        whole = cost if label_cost is None else cost * sizes
        client_array("labeling_cost", whole, count, all_names.__getitem__, positive=True)
        object.__setattr__(self, "labeling_cost", whole)
        cost = client_array("sample_cost", sample_cost, count, all_names.__getitem__, positive=True)
        object.__setattr__(self, "sample_cost", cost)
        q = client_array("participation", participation, count, all_names.__getitem__, positive=True, at_most=1.0)
        object.__setattr__(self, "participation", q)
        behaviours = tuple(behaviour) if _is_list(behaviour) else (behaviour,) * count
        if len(behaviours) != count:
            raise InputError(f"behaviour has {len(behaviours)} entries; it must have {count}, one per client.")
        for name_or_behaviour in behaviours:
            known_behaviour(name_or_behaviour)
        object.__setattr__(self, "behaviour", behaviours)
        object.__setattr__(self, "name", all_names)
        object.__setattr__(self, "stated", None)

    def with_stated(self, stated: Sequence[bool]) -> Participants:
        """The same clients, of whom these state their own sample cost."""
        other = copy(self)
        object.__setattr__(other, "stated", tuple(stated))
        return other

    def label(self, position: int) -> str:
        """The name of the client at this position in messages."""
        return self.name[position]

    @property
    def label_cost(self) -> FloatArray:
        """The cost of one label."""
        return np.asarray(self.labeling_cost / np.array(self.dataset_size))

    def __len__(self) -> int:
        return len(self.name)


def _require_different(given: Sequence[str]) -> None:
    """Raise `InputError` if two names look the same: they differ in spaces, or in how an accent is written."""
    first: dict[str, str] = {}
    for one in given:
        other = first.setdefault(" ".join(unicodedata.normalize("NFC", one).split()), one)
        if other is not one:
            raise InputError(f"the names {other!r} and {one!r} look the same; names must be distinct.")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
