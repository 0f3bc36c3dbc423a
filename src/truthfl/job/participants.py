"""The clients of a job on data, as the section [clients] of a job file lists them. Imports `learning.behaviours`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """Who takes part in a job on data; a single value stands for everybody, and at least one field is a list.

    dataset_size   how many samples she holds
    labeling_cost  her cost of labeling them once
    sample_cost    her cost of one sample in one round's gradient
    participation  q, the chance that she is there in a round
    behaviour      what she really does, in a job that is simulated: a name of `truthfl.learning.behaviours`, or (not
                   in a file) a `Behaviour`
    name           what tables and messages call her
    """

    dataset_size: tuple[int, ...]
    labeling_cost: FloatArray
    sample_cost: FloatArray
    behaviour: tuple[str | Behaviour, ...]
    name: tuple[str, ...]
    participation: FloatArray

    def __init__(
        self,
        dataset_size: Any,
        labeling_cost: Any,
        sample_cost: Any,
        behaviour: Any = "truthful",
        name: Any = None,
        participation: Any = 1.0,
    ) -> None:
        given = (name, dataset_size, labeling_cost, sample_cost, behaviour, participation)
        count = next((len(value) for value in given if _many(value)), 0)
        if count == 0:
            raise InputError("no field is a list; give a list of names, or of dataset_size, one per client.")
        known = names(name, count) or tuple(f"client {i}" for i in range(count))
        sizes = client_whole_numbers("dataset_size", dataset_size, count, known.__getitem__, at_least=1)
        object.__setattr__(self, "dataset_size", tuple(sizes.tolist()))
        for field, value in (("labeling_cost", labeling_cost), ("sample_cost", sample_cost)):
            object.__setattr__(self, field, client_array(field, value, count, known.__getitem__, positive=True))
        q = client_array("participation", participation, count, known.__getitem__, positive=True, at_most=1.0)
        object.__setattr__(self, "participation", q)
        played = tuple(behaviour) if _many(behaviour) else (behaviour,) * count
        if len(played) != count:
            raise InputError(f"behaviour has {len(played)} entries; it must have {count}, one per client.")
        for one in played:
            known_behaviour(one)
        object.__setattr__(self, "behaviour", played)
        object.__setattr__(self, "name", known)

    def __len__(self) -> int:
        return len(self.name)


def _many(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
