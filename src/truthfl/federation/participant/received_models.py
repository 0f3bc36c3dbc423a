"""The common models that a participant received, kept in her folder for behaviours that use earlier ones.

They are files because each message is handled by a new process.
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


def received_models(folder: Path, behaviour: Behaviour, common: Params, round_: int) -> list[Params]:
    """Keep this round's model; return the models that the behaviour remembers, this round's last.

    Files are named by round, so that a repeated round ignores the models of later rounds.
    """
    kept = {int(path.stem): path for path in folder.glob("*.npy") if path.stem.isdecimal()}
    earlier = sorted(number for number in kept if number < round_)
    write_file(folder / f"{round_}.npy", npy_bytes(common), sync=False)
    for number in earlier[: -behaviour.remembers - 1]:
        with suppress(OSError):
            kept[number].unlink()
    return updated_memory(behaviour, [read_npy(kept[number]) for number in earlier[-behaviour.remembers :]], common)
