"""Memory of long-lived processes over time, and whether it stays flat.

A process grows while it does everything for the first time, so the first quarter of its time does not count. Flat
means that the median of the last quarter exceeds that of the second by at most a tenth and 4 MB. Half of the soak lies
between the middles of these quarters; slower growth is not noticed.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.peers.process_memory import megabytes

MOST_RATIO, MOST_MORE = 1.1, 4.0  # megabytes
FEWEST_SAMPLES = 12


@dataclass(frozen=True)
class Growth:
    """The memory of one process, in megabytes.

    early, late  medians of the second and the last quarter of its samples
    """

    name: str
    samples: int
    early: float
    late: float

    @property
    def most(self) -> float:
        """The largest value of `late` that counts as flat."""
        return MOST_RATIO * self.early + MOST_MORE

    @property
    def is_flat(self) -> bool:
        return self.late <= self.most


def growth(name: str, samples: list[float]) -> Growth | None:
    """How memory grew from the second quarter of these samples to the last; None if there are too few."""
    if len(samples) < FEWEST_SAMPLES:
        return None
    quarter = len(samples) // 4
    early, late = statistics.median(samples[quarter : 2 * quarter]), statistics.median(samples[-quarter:])
    return Growth(name, len(samples), early, late)


class Memory:
    """Samples of processes' memory, by name."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = defaultdict(list)

    def sample(self, name: str, *processes: int | str) -> None:
        """Note the total memory of these processes; nothing if they are gone."""
        found = sum(map(megabytes, processes))
        if found:
            self.samples[name].append(found)

    def note(self, name: str, found: float) -> None:
        self.samples[name].append(found)

    def growths(self) -> list[Growth]:
        """The growth of each process with enough samples."""
        return [found for name, samples in self.samples.items() if (found := growth(name, samples)) is not None]
