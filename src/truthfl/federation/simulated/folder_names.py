"""Names of the simulated participants' folders. Imports nothing."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

LONGEST = 99


def folder_name(names: tuple[str, ...], client: int) -> str:
    """Her name if it is valid and unique as a folder name, ignoring case; otherwise her index."""
    name = names[client]
    is_valid = name.isascii() and name.replace("-", "").replace(" ", "").isalnum() and name == name.strip()
    return name if is_valid and len(name) <= LONGEST and _counts(names)[name.lower()] == 1 else f"_{client}"


@lru_cache(maxsize=1)
def _counts(names: tuple[str, ...]) -> Counter[str]:
    """How many names are the same in lower case."""
    return Counter(name.lower() for name in names)
