"""Files in an operator's folder: key, seed and secret of a job, address of the ledger."""

from __future__ import annotations

import json
import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import lock_file, write_file
from truthfl.ledger.commitment import new_secret, secret_from_seed
from truthfl.ledger.signing import PrivateKey, new_key, read_key, write_key

SECRETS, LEDGER_ADDRESS, LOCK = "secrets.json", "ledger.address", "serve.lock"


@dataclass(frozen=True)
class Draws:
    """The sources of a job's random draws.

    seed    of labels, batches and the initial model; all participants know it
    secret  of the test draw; only the operator knows it until the test
    """

    seed: int
    secret: str


def fixed_draws(seed: int) -> Draws:
    """Draws from a seed alone, to repeat a job exactly. Not secret: the seed determines the test draw too."""
    return Draws(seed, secret_from_seed(seed))


def new_draws() -> Draws:
    """Draws that nobody can guess."""
    return Draws(secrets.randbelow(2**53), new_secret())


def read_draws(path: Path) -> Draws:
    """The draws in this file."""
    try:
        return Draws(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise InputError(f"{path} cannot be read; without it a job that was begun cannot be finished.") from None


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """A context in which no other server can use this folder; raise ServiceError if one does."""
    return lock_file(
        folder / LOCK, f"another server, process {{pid}}, runs on {folder}; end that one, or name another folder."
    )


def kept_draws(folder: Path) -> Draws:
    """The draws in this folder; random ones are made if there are none."""
    path = folder / SECRETS
    if not path.exists():
        write_file(path, json.dumps(vars(new_draws())), private=True, keep_existing=True)
    return read_draws(path)


def kept_key(path: Path) -> PrivateKey:
    """Read the key in this file; make one if there is no file."""
    if not path.exists():
        write_key(new_key(), path)
    return read_key(path)


def keep_ledger_address(folder: Path, address: str) -> None:
    """Write the ledger's address, which may hold a password, for other commands; only the owner can read it."""
    write_file(folder / LEDGER_ADDRESS, address, private=True)


def kept_ledger_address(folder: Path) -> str:
    """Read the address that `keep_ledger_address` wrote."""
    try:
        return (folder / LEDGER_ADDRESS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{folder / LEDGER_ADDRESS} cannot be read; truthfl serve writes it.") from None
