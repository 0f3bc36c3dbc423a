"""Processor use of other processes during a measurement, from /proc; None without /proc.

The threads of PyTorch and NumPy wait for each other in busy loops. Without a free core they become many times slower,
and ratios to them are then meaningless.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


class Neighbours:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self.start, self.busy = time.perf_counter(), _busy()

    def cores(self, own: list[int]) -> float | None:
        """Average number of cores used by all processes but `own`, which were started after this object."""
        now = _busy()
        if now is None or self.busy is None:
            return None
        used = now - self.busy - sum(_used(pid) for pid in own)
        return max(0.0, used / (time.perf_counter() - self.start))


def _busy() -> float | None:
    """Busy seconds of all cores since the machine started."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return None
    user, nice, system, _idle, _wait, *interrupts = (int(word) for word in first.split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _used(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
