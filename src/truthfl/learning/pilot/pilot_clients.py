"""Clients drawn from the operator's data, whose solo models are trained before a job is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Partition, taken_in_turns
from truthfl.learning.models.model import Features, Labels
from truthfl.learning.people.labels import asked_order
from truthfl.learning.solo import Recipe, losses_of_groups

PILOT_CLIENTS = 64
PILOT_SEED = 11  # of the pilot clients' samples
SEED = 0  # of the test, and the first one of the solo models' starts and draws
DRAWS = 8  # seeds of these: with a single one all pilot clients would be lucky or unlucky together


@dataclass(frozen=True, eq=False)
class PilotClients:
    """Clients drawn from the pilot data, each with their samples in the order of labeling."""

    side: ServerSide
    rows: tuple[IntArray, ...]

    def losses(self, works: Sequence[tuple[int, Recipe]], clients: int | None = None) -> list[FloatArray]:
        """Solo losses of the first clients (all by default), for each number of labels and recipe."""
        data = self.side.pilot.data

        def samples(rows: IntArray) -> tuple[Features, Labels]:
            return data.features[rows], data.labels[rows]

        groups = [
            (recipe, [partial(samples, rows[:labels]) for rows in self.rows[:clients]]) for labels, recipe in works
        ]
        return losses_of_groups(self.side.pilot.model, groups, self.side.test, SEED, draws=DRAWS)


def draw_in_turns(side: ServerSide, sizes: tuple[int, ...], seed: int) -> Partition:
    """Clients drawn as the job's are assumed to be, who share samples only where there are too few."""
    return taken_in_turns(side.draw_clients(sizes, seed), side.pilot.data.labels, seed)


def draw_pilot_clients(side: ServerSide, most_labels: int, seed: int) -> PilotClients:
    """`PILOT_CLIENTS` clients with this many samples each, drawn as the job's clients are assumed to be."""
    partition = draw_in_turns(side, (most_labels,) * PILOT_CLIENTS, seed)
    rows = [partition.rows_of(client) for client in range(PILOT_CLIENTS)]
    return PilotClients(side, tuple(own[asked_order(len(own), k, seed)] for k, own in enumerate(rows)))
