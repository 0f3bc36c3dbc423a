"""The model that a participant trained alone and its salt, kept in their folder: they always commit to the same one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.array_files import npz_bytes, read_npz
from truthfl.learning.model import Params
from truthfl.ledger.audition_record import AUDITIONS
from truthfl.ledger.commitment import SECRET_BYTES, new_secret


@dataclass(frozen=True, eq=False)
class KeptAudition:
    """The salt, in hexadecimal, and the model."""

    salt: str
    model: Params


def keep_audition(home: Path, offer_hash: str, model: Params) -> KeptAudition:
    """Write the model with a new salt unless there is one for this offer; return what is in her folder then."""
    salt = np.frombuffer(bytes.fromhex(new_secret()), dtype=np.uint8)
    content = npz_bytes({"salt": salt, "model": np.asarray(model, dtype=np.float32)})
    write_file(_path(home, offer_hash), content, private=True, keep_existing=True)
    kept = read_audition(home, offer_hash)
    assert kept is not None
    return kept


def read_audition(home: Path, offer_hash: str) -> KeptAudition | None:
    """What was kept for this offer; None if nothing was."""
    path = _path(home, offer_hash)
    if not path.exists():
        return None
    arrays = read_npz(path, ["salt", "model"])
    salt, model = arrays["salt"], arrays["model"]
    if salt.dtype != np.uint8 or salt.shape != (SECRET_BYTES,) or model.dtype != np.float32 or model.ndim != 1:
        raise InputError(f"{path} does not hold a salt and a model; remove it to train again.")
    return KeptAudition(salt.tobytes().hex(), model)


def _path(home: Path, offer_hash: str) -> Path:
    """The file of this offer; the hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / AUDITIONS / f"{offer_hash}.npz"
