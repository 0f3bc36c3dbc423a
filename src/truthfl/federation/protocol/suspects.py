"""Who makes masked sums too long: rounds in small groups after a sum that was too long. Imports `round_entries`.

A masked report cannot be looked at. But after a sum that is too long, the following rounds add up groups of three to
five, which change from round to round. Whose groups were all too long, three times, while everybody else was in a good
one, is excluded; then all are added up together again. With fewer than six clients there is one group only, and nobody
can be told apart.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

from truthfl.federation.protocol.round_entries import RoundCall

SMALLEST_GROUP = 3
BAD_SUMS = 3


@dataclass(eq=False)
class Suspects:
    """What the sums of groups have shown.

    searching  whether the rounds are in groups
    bad, good  by client, since the search began: the numbers of her sums that were too long, and that were not
    excluded   clients who are not asked any more
    """

    searching: bool = False
    bad: dict[int, int] = field(default_factory=dict)
    good: dict[int, int] = field(default_factory=dict)
    excluded: set[int] = field(default_factory=set)

    def split(self, clients: Collection[int], call: RoundCall) -> list[list[int]]:
        """The clients in the groups of this round: neighbours in their order, from another start in each round."""
        order = sorted(clients)
        count = len(order) // SMALLEST_GROUP
        if not self.searching or count < 2:
            return [order]
        start = call.round % len(order)
        order = order[start:] + order[:start]
        cuts = [len(order) * k // count for k in range(count + 1)]
        return [order[first:last] for first, last in pairwise(cuts)]

    def note(self, clients: Collection[int], *, good: bool) -> None:
        """Note that the sum of these clients' reports was good or too long."""
        if not good and not self.searching:
            self.searching, self.bad, self.good = True, {}, {}
            return
        counts = self.good if good else self.bad
        if self.searching:
            counts |= {client: counts.get(client, 0) + 1 for client in clients}

    def conclude(self) -> list[int]:
        """After a round: exclude the one client whose sums were all too long; return whom, if anybody."""
        if not self.searching:
            return []
        always_bad = [client for client, bad in self.bad.items() if not self.good.get(client)]
        if len(always_bad) == 1 and self.bad[always_bad[0]] >= BAD_SUMS:
            self.excluded |= set(always_bad)
            self.searching = False
            return always_bad
        if not self.bad and min(self.good.values(), default=0) >= BAD_SUMS:
            self.searching = False
        return []
