"""The files of an operator's folder, and the jobs in it, each kept as it was begun.

A job that was begun continues as it was signed, whatever its file says today. No file here is ever overwritten.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.federation.protocol.final_model import published_files, solo_file
from truthfl.federation.protocol.known_models import require_new_test_set
from truthfl.federation.protocol.recorder import checkpoint_path
from truthfl.federation.protocol.server import is_complete
from truthfl.files import lock_file, make_private_folder, write_file
from truthfl.job import DataJob, job_of_text
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import digest, new_secret, read_document, secret_from_seed
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
    """Draws from a seed alone, to repeat a job exactly. They are not secret: the seed also determines the test draw."""
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
        folder / LOCK, f"another server, process {{pid}}, runs on {folder}; stop it, or name another folder."
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
    """Write the ledger's address for other commands. It may hold a password, so only the owner can read the file."""
    write_file(folder / LEDGER_ADDRESS, address, private=True)


def kept_ledger_address(folder: Path) -> str:
    """Read the address that `keep_ledger_address` wrote."""
    try:
        return (folder / LEDGER_ADDRESS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{folder / LEDGER_ADDRESS} cannot be read; truthfl serve writes it.") from None


FOLDER, TEXT, ORIGIN = "jobs", "job.toml", "origin.json"
MOST_DIFFERENCES = 8


@dataclass(frozen=True)
class JobSource:
    """A job as its operator gives it.

    text      of its TOML file
    base      the folder in which relative paths begin
    file      the file, for messages
    contract  a kind of contract that replaces the text's; "" for the text's
    seed      to repeat a job exactly; None for secret draws
    change    applied to the job of the text, for example to give it the operator's custom strategy
    """

    text: str
    base: Path
    file: str
    contract: str = ""
    seed: int | None = None
    change: Callable[[DataJob], DataJob] = field(default=lambda job: job, compare=False)

    def job(self) -> DataJob:
        """The job; raise InputError if it has no data."""
        job = job_of_text(self.text, self.base, self.file)
        if not isinstance(job, DataJob):
            raise InputError(
                f"{self.file} has no [data]; a job without data can be planned (truthfl plan), but not run."
            )
        return self.change(job.with_contract(self.contract) if self.contract else job)


@dataclass(frozen=True, eq=False)
class KeptJob:
    """A job of the folder.

    differences  how today's file differs, as sentences
    complete     whether it is over
    """

    name: str
    job: DataJob
    draws: Draws
    differences: tuple[str, ...] = ()
    complete: bool = False
    is_new: bool = False


def choose_job(folder: Path, ledger: Ledger, source: JobSource, *, new: bool = False) -> KeptJob:
    """The job to serve: the folder's last one, unless there is none or `new`; otherwise the source's.

    Raise InputError if the folder's last job is complete and the source describes another one.
    """
    names = kept_job_names(folder)
    if not names or new:
        return _begin(folder, ledger, source)
    name = names[-1]
    kept = kept_job(folder, name, source.change)
    complete = is_complete(ledger, name)
    recorded = ledger.find(name, "job", "job")
    if recorded is None and ledger.rows(name):
        raise InputError(
            f"job {name} in {ledger.name} was not begun with this operator's key; start truthfl serve with the "
            "original key, or begin another job with --new."
        )
    made = next((path for path in _made_by_rounds(folder, name) if path.exists()), None)
    if recorded is None and made is not None:
        raise InputError(
            f"{ledger.name} has no rows of job {name}, of which there is {made}: the ledger is gone, or another. Put "
            "it back, from a backup if need be, or begin another job with --new."
        )
    if recorded is not None and not complete:
        changed = _differences(recorded.document["job"], kept.job.document())
        if changed:
            raise InputError(
                f"job {name} was begun with other files than there are now: {changed[0]}. Put them back, or begin "
                "another job with --new."
            )
    differences = _differences_of_source(kept, source)
    if complete and differences:
        raise InputError(
            f"job {name} in {folder} is complete, and {source.file} describes another one ({differences[0]}); --new "
            "begins it."
        )
    return KeptJob(name, kept.job, kept.draws, differences, complete)


def _made_by_rounds(folder: Path, name: str) -> tuple[Path, ...]:
    """The files that auditions and rounds of a job add."""
    return checkpoint_path(folder, name), solo_file(folder / "models", name), *published_files(folder, name)


def kept_job_names(folder: Path) -> list[str]:
    """The names of the folder's jobs, in the order in which they were begun."""
    begun = [(str(_origin(path).get("begun", "")), path.parent.name) for path in folder.glob(f"{FOLDER}/*/{ORIGIN}")]
    return [name for _, name in sorted(begun)]


def _begin(folder: Path, ledger: Ledger, source: JobSource) -> KeptJob:
    """Keep a new job in the folder; raise InputError if its test samples were published with an earlier one."""
    job = source.job()
    require_new_test_set(ledger, folder, job)
    draws = new_draws() if source.seed is None else fixed_draws(source.seed)
    name = _new_name(folder, ledger, job, draws.seed)
    place = folder / FOLDER / name
    make_private_folder(place)
    write_file(place / SECRETS, json.dumps(vars(draws)), private=True, keep_existing=True)
    write_file(place / TEXT, source.text, private=True, keep_existing=True)
    origin = {
        "begun": datetime.now(UTC).isoformat(),
        "base": str(source.base.resolve()),
        "file": source.file,
        "contract": source.contract,
        "seed": source.seed,
    }
    write_file(place / ORIGIN, json.dumps(origin), private=True, keep_existing=True)
    return KeptJob(name, job, draws, is_new=True)


def _new_name(folder: Path, ledger: Ledger, job: DataJob, seed: int) -> str:
    """A name that neither the ledger nor the folder has."""
    stem, number = digest({"job": job.document(), "seed": seed})[:12], 1
    while ledger.find(f"{stem}-{number}", "job", "job") is not None or (folder / FOLDER / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def kept_job(folder: Path, name: str, change: Callable[[DataJob], DataJob] = lambda job: job) -> KeptJob:
    """The folder's job of this name, as it was begun; `change` as in `JobSource`."""
    place = folder / FOLDER / name
    origin = _origin(place / ORIGIN)
    try:
        text = (place / TEXT).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{place / TEXT} cannot be read; without it job {name} cannot go on.") from None
    kept = JobSource(
        text,
        Path(str(origin["base"])),
        str(place / TEXT),
        str(origin.get("contract", "")),
        origin.get("seed"),
        change,
    )
    return KeptJob(name, kept.job(), read_draws(place / SECRETS))


def _origin(path: Path) -> dict[str, Any]:
    try:
        return read_document(path.read_bytes(), str(path))
    except (OSError, InputError):
        raise InputError(f"{path} cannot be read; without it its job cannot go on.") from None


def _differences_of_source(kept: KeptJob, source: JobSource) -> tuple[str, ...]:
    """How the source differs from the kept job."""
    try:
        found = _differences(kept.job.document(), source.job().document())
    except InputError as error:
        return (f"it cannot be used: {str(error).rstrip('.')}",)
    if source.seed is not None and source.seed != kept.draws.seed:
        found.append(f"seed was {kept.draws.seed} and is {source.seed}")
    return tuple(found[:MOST_DIFFERENCES])


def _differences(before: object, after: object, place: str = "") -> list[str]:
    """Where two documents differ, each as "PLACE was A and is B"."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = dict.fromkeys([*before, *after])
        return [
            one
            for key in keys
            for one in _differences(before.get(key), after.get(key), f"{place}.{key}" if place else str(key))
        ]
    return [] if before == after else [f"{place} was {_short(before)} and is {_short(after)}"]


def _short(value: object) -> str:
    text = "not there" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
