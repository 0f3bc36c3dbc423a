"""The memory and the CPU time of a process, from Linux's /proc. Imports nothing of truthfl."""

from __future__ import annotations

import os
import re
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def megabytes(process: int | str = "self") -> float:
    """The resident set of a process now; 0 if it has ended."""
    return _from_status(process, "VmRSS")


def most_megabytes(process: int | str = "self") -> float:
    """The largest resident set of a process so far; 0 if it has ended."""
    return _from_status(process, "VmHWM")


def cpu_seconds(process: int | str = "self") -> float | None:
    """The CPU time that a process has used so far; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS


def _from_status(process: int | str, field: str) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return 0.0 if found is None else int(found.group(1)) / 1024.0
