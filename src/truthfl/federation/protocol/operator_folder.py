"""An operator's folder: her key, the secrets of her jobs, and why the last attempt failed. Looks at the ledger's keys.

The seed of a job is known to all who take part; the secret of its test draw to nobody but her, until the test.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.ledger.commitment import new_secret, secret_from_seed
from truthfl.ledger.signing import PrivateKey, new_key, read_key, write_key

SECRETS, FAILURE = "secrets.json", "failure.txt"


@dataclass(frozen=True)
class Draws:
    """What a job draws from: the seed of labels, batches and the first model, and the secret of the test draw."""

    seed: int
    secret: str


def fixed_draws(seed: int) -> Draws:
    """For jobs that are to be repeated exactly; who knows the seed knows the test draw."""
    return Draws(seed, secret_from_seed(seed))


def kept_draws(folder: Path, *, fresh: bool = False) -> Draws:
    """Those kept in this folder; new ones that nobody can guess where there are none, or fresh ones are wanted."""
    path = folder / SECRETS
    if fresh or not path.exists():
        made = Draws(secrets.randbelow(2**53), new_secret())
        write_file(path, json.dumps(vars(made)), private=True)
        return made
    try:
        return Draws(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise InputError(f"{path} cannot be read; without it a job that was begun cannot be finished.") from None


def kept_key(path: Path) -> PrivateKey:
    """The key in this file, made if there is none."""
    if not path.exists():
        write_key(new_key(), path)
    return read_key(path)


def note_failure(folder: Path, sentence: str) -> None:
    write_file(folder / FAILURE, sentence + "\n")


def noted_failure(folder: Path) -> str | None:
    """Why the last attempt failed, once."""
    path = folder / FAILURE
    if not path.exists():
        return None
    sentence = path.read_text(encoding="utf-8").strip()
    path.unlink()
    return sentence
