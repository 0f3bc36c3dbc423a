"""The common models that a participant has received, in her folder, for behaviours that remember them.

A node may be built anew for every message, so nothing is kept in memory. Imports `files` and `learning`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from truthfl.files import write_file
from truthfl.learning.array_files import npy_bytes, read_npy
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.local_training import updated_memory
from truthfl.learning.model import Params

RECEIVED = "received"
REPEATABLE_ROUNDS = 100  # a server that crashed goes back by a quarter of a second of rounds


def received_models(folder: Path, behaviour: Behaviour, common: Params, round_: int) -> list[Params]:
    """The models that this behaviour remembers, this round's last.

    Each is kept under its round's number: in a round that is repeated, the models of later rounds are not looked at.
    """
    if not behaviour.remembers:
        return [common]
    kept = {int(path.stem): path for path in folder.glob("*.npy") if path.stem.isdecimal()}
    earlier = sorted(number for number in kept if number < round_)
    write_file(folder / f"{round_}.npy", npy_bytes(common), sync=False)
    for number in earlier[: -behaviour.remembers - REPEATABLE_ROUNDS]:
        with suppress(OSError):
            kept[number].unlink()
    return updated_memory(behaviour, [read_npy(kept[number]) for number in earlier[-behaviour.remembers :]], common)
