"""Names of the simulated participants' folders."""

from __future__ import annotations

from collections import Counter

LONGEST = 99


def folder_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of each client: her name if it is valid and unique as a folder name, ignoring case; otherwise her index."""
    times = Counter(name.lower() for name in names)
    return tuple(
        name if _is_valid(name) and times[name.lower()] == 1 else f"_{client}" for client, name in enumerate(names)
    )


def _is_valid(name: str) -> bool:
    letters = name.replace("-", "").replace(" ", "")
    return name.isascii() and letters.isalnum() and name == name.strip() and len(name) <= LONGEST
