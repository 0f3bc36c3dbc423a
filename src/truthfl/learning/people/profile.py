"""`Profile`: the behaviours, assigned batches and labels of all clients of a federation, for `train`.

Arrays are computed per kind of behaviour, not client by client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import FloatArray, IntArray, Strategies, client_whole_numbers
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.models.model import Labels
from truthfl.learning.people.behaviour import Behaviour, Unlabeled, from_strategy
from truthfl.learning.people.behaviours import behaviour
from truthfl.learning.people.labels import assigned_labels, derived_labels, labeled_by_hand


class Profile:
    """One behaviour per client, as a name or a `Behaviour`, and the assigned batch sizes (one for all, or N).

    kinds     the distinct behaviours
    kind_of   (N,) the position of each client's behaviour in `kinds`
    assigned  (N,) the assigned batch sizes
    """

    kinds: tuple[Behaviour, ...]
    kind_of: IntArray
    assigned: IntArray

    def __init__(self, behaviours: Sequence[str | Behaviour], assigned_batch_size: ArrayLike) -> None:
        if isinstance(behaviours, str) or len(behaviours) == 0:
            raise InputError(f"behaviours is {behaviours!r}; it must be a list with a behaviour per client.")
        listed = list(behaviours)
        try:
            distinct = {which: number for number, which in enumerate(dict.fromkeys(listed))}
        except TypeError:
            raise InputError("a behaviour is neither a name nor a Behaviour; it must be one of them.") from None
        self.kinds = tuple(behaviour(which, field=f"behaviour of client {listed.index(which)}") for which in distinct)
        self.kind_of = np.fromiter(map(distinct.__getitem__, listed), dtype=np.int64, count=len(listed))
        self.assigned = client_whole_numbers(
            "assigned_batch_size", assigned_batch_size, len(listed), "client {}".format, at_least=1
        )

    @classmethod
    def of_kinds(cls, kinds: Sequence[Behaviour], kind_of: IntArray, assigned: IntArray) -> Profile:
        """The profile with these attributes, unchecked; for studies that create very many profiles."""
        profile = cls.__new__(cls)
        profile.kinds, profile.kind_of, profile.assigned = tuple(kinds), kind_of, assigned
        return profile

    @classmethod
    def of_strategies(cls, strategies: Strategies, clients: int) -> Profile:
        """Strategies (N,) as behaviours; the assigned batches are those really used."""
        effort, batch, scale = (
            np.broadcast_to(values, (clients,)).tolist()
            for values in (strategies.labeling_effort, strategies.batch_size, strategies.report_scale)
        )
        pairs = list(zip(effort, scale, strict=True))
        kinds = {(e, g): from_strategy("a strategy", labeling_effort=e, report_scale=g) for e, g in set(pairs)}
        return cls([kinds[pair] for pair in pairs], batch)

    def __len__(self) -> int:
        return len(self.kind_of)

    def __getitem__(self, client: int) -> Behaviour:
        return self.kinds[int(self.kind_of[client])]

    @cached_property
    def strategies(self) -> Strategies:
        """(e, D, γ) of all clients; γ is that of the first round.

        It does not cover label errors, samples left out, predicted and derived labels, and fabricated reports.
        """
        return Strategies(
            labeling_effort=self._each(lambda kind: kind.labeling_effort),
            batch_size=np.maximum(1.0, np.rint(self._each(lambda kind: kind.batch_share) * self.assigned)),
            report_scale=self._each(lambda kind: kind.report_scale),
        )

    @cached_property
    def error_rate(self) -> FloatArray:
        """The probability that a label made by hand is wrong, for each client."""
        return self._each(lambda kind: kind.error_rate)

    @cached_property
    def reports_nothing(self) -> NDArray[np.bool_]:
        """A mask of the clients whose reports are all empty."""
        return self._each(lambda kind: kind.reports_nothing)

    @property
    def labels_are_true(self) -> bool:
        """Whether all clients label all samples by hand and without errors."""
        return all(kind.labeling_effort == 1 and kind.error_rate == 0 for kind in self.kinds)

    @cached_property
    def fabricators(self) -> Mapping[int, Behaviour]:
        """The behaviours of the clients who fabricate their reports, by client number."""
        return {client: self[client] for client in np.flatnonzero(self._each(lambda kind: kind.fabricates)).tolist()}

    @cached_property
    def changing_scales(self) -> tuple[tuple[Behaviour, IntArray], ...]:
        """The behaviours whose report scale differs from round to round, each with the numbers of its clients."""
        changing = [number for number, kind in enumerate(self.kinds) if kind.changes_scale]
        return tuple((self.kinds[number], np.flatnonzero(self.kind_of == number)) for number in changing)

    def labeling_effort(self, sizes: IntArray) -> FloatArray:
        """The share of samples that each client labels by hand; at least one sample if the client needs one."""
        effort = self._each(lambda kind: kind.labeling_effort)
        needed = self._each(lambda kind: kind.unlabeled.needs_labeled)
        return np.where(needed, np.maximum(effort, 1.0 / sizes), effort)

    def labels(self, federated: Federated, seed: int, *, step_size: float | None = None) -> Labels:
        """The labels of all samples before training: made by hand, drawn at random, or derived from those by hand.

        step_size  of models that clients train alone; by default that of `federated.training`
        """
        labels = self.labels_before_derived(federated, seed)
        training, partition = federated.training, federated.partition
        for unlabeled in (how for how in Unlabeled if how.is_derived):
            others = self.not_by_hand(partition, unlabeled, seed)
            if others is None:
                continue
            for client in np.flatnonzero(np.logical_or.reduceat(others, partition.starts[:-1])).tolist():
                own = federated.samples_of(client)
                labels[own] = derived_labels(
                    unlabeled,
                    federated.model,
                    federated.data.features[partition.rows[own]],
                    labels[own],
                    ~others[own],
                    rounds=training.rounds,
                    step_size=training.step_size if step_size is None else step_size,
                    seed=seed,
                )
        return labels

    def labels_before_derived(self, federated: Federated, seed: int) -> Labels:
        """The labels of all samples, made by hand or drawn at random; labels that will be derived are drawn, too."""
        if self.labels_are_true:
            return federated.true_labels()
        return assigned_labels(
            federated.data.labels,
            federated.partition,
            labeling_effort=self.labeling_effort(federated.partition.sizes),
            error_rate=self.error_rate,
            classes=len(federated.data.classes),
            seed=seed,
        )

    def not_by_hand(self, partition: Partition, unlabeled: Unlabeled, seed: int) -> NDArray[np.bool_] | None:
        """A mask of the samples not labeled by hand of clients with this `unlabeled`; None without such clients."""

        def concerns(kind: Behaviour) -> bool:
            return kind.unlabeled is unlabeled and kind.labeling_effort < 1

        if not any(map(concerns, self.kinds)):
            return None
        clients = np.flatnonzero(self._each(concerns))
        effort = self.labeling_effort(partition.sizes)[clients]
        mask = np.zeros(len(partition.rows), dtype=bool)
        concerned = np.repeat(np.isin(np.arange(len(self)), clients), partition.sizes)
        mask[concerned] = ~labeled_by_hand(clients, partition.sizes[clients], effort, seed)
        return mask

    def _each(self, trait: Callable[[Behaviour], float]) -> NDArray[Any]:
        return np.array([trait(kind) for kind in self.kinds])[self.kind_of]
