"""The memory of a process, from Linux's /proc."""

from __future__ import annotations

import re
from pathlib import Path


def megabytes(process: int | str = "self") -> float:
    """The resident set of a process now; 0 if it has ended."""
    return _from_status(process, "VmRSS")


def most_megabytes(process: int | str = "self") -> float:
    """The largest resident set of a process so far; 0 if it has ended."""
    return _from_status(process, "VmHWM")


def _from_status(process: int | str, field: str) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return 0.0 if found is None else int(found.group(1)) / 1024.0
