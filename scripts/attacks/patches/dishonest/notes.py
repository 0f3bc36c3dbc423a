"""The notes of an attacker's code for scripts/attack.py: lines and arrays in the federation's folder."""

import json
import os
from pathlib import Path

FOLDER = Path(os.environ.get("TRUTHFL_ATTACK_FOLDER", "."))


def note(**fields):
    with (FOLDER / "notes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


def keep_array(name, array):
    import numpy as np

    (FOLDER / "seen").mkdir(exist_ok=True)
    np.save(FOLDER / "seen" / f"{name}.npy", array)


def words_of(reply):
    """A node's answer: the error's reason, or that it did as requested."""
    if not reply.has_error():
        return "done"
    reason = str(reply.error.reason)
    return reason.split(":<'", 1)[-1].removesuffix("'>")
