"""Names of the documents in a participant's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

NO_DOCUMENTS: dict[str, Any] = {
    "offer": None,
    "answer": None,
    "receipt": None,
    "news": None,
    "job": None,
}


def document_names(folder: Path) -> frozenset[str]:
    """Names of the JSON files in a folder; empty if it cannot be read. Documents are never changed."""
    try:
        return frozenset(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return frozenset()


def has_no_documents(home: Path) -> bool:
    """Whether the participant's folder has no news, no offer and no receipt."""
    return not any(document_names(folder) for folder in (home, home / "offers", home / "receipts"))
