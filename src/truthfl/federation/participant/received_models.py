"""The common models that a participant has received, in her folder, for behaviours that remember them.

A node may be built anew for every message, so nothing is kept in memory. Imports `files` and `learning`.
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
REPEATABLE_ROUNDS = 100  # a server that crashed goes back by a quarter of a second of rounds


def received_models(folder: Path, behaviour: Behaviour, common: Params, round_: int) -> list[Params]:
    """The models that this behaviour remembers, this round's last.

    Each is kept under its round's number: in a round that is repeated, the models of later rounds are not looked at.
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
