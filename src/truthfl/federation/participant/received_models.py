"""The common models that a participant received, kept in her folder for behaviours that use earlier ones.

They are files because each message is handled by a new process. Imports `files` and `learning`.
"""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np

from truthfl.errors import ServiceError
from truthfl.files import write_file
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.local_training import remembered
from truthfl.learning.model import Params

RECEIVED = "received"
REPEATABLE_ROUNDS = 100  # after a crash, the server repeats up to a quarter of a second of rounds


def received_models(folder: Path, behaviour: Behaviour, common: Params, round_: int) -> list[Params]:
    """Keep this round's model; return the models that the behaviour remembers, this round's last.

    Files are named by round, so that a repeated round ignores the models of later rounds.
    """
    if not behaviour.remembers:
        return [common]
    kept = {int(path.stem): path for path in folder.glob("*.npy") if path.stem.isdecimal()}
    earlier = sorted(number for number in kept if number < round_)
    packed = BytesIO()
    np.save(packed, common)
    write_file(folder / f"{round_}.npy", packed.getvalue())
    for number in earlier[: -behaviour.remembers - REPEATABLE_ROUNDS]:
        with suppress(OSError):
            kept[number].unlink()
    return remembered(behaviour, [_read(kept[number]) for number in earlier[-behaviour.remembers :]], common)


def _read(path: Path) -> Params:
    try:
        model: Params = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ServiceError(f"{path} cannot be read: {error}.") from None
    return model
