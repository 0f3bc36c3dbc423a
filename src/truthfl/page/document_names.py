"""A glance at her desk: which papers lie there, unread. Reading them loads far more than looking. Looks nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

EMPTY: dict[str, Any] = {"offer": None, "answer": None, "receipt": None, "news": None}


def names_of_papers(folder: Path) -> frozenset[str]:
    """Of those that lie there; a paper is never changed."""
    try:
        return frozenset(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return frozenset()


def is_empty(home: Path) -> bool:
    """Whether nobody has sent her anything: no news, no offer, no receipt."""
    return not any(names_of_papers(folder) for folder in (home, home / "offers", home / "receipts"))
