"""Back up an operator's folder and keys into one file, also while the server runs.

Files are written before the ledger's rows that need them, so the ledger is copied first. The checkpoint of a training
must fit the ledger exactly: it is copied while nobody can add rows.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from sqlalchemy import URL

from truthfl.errors import InputError, ServiceError
from truthfl.files import DRAFT, PRIVATE_FILE_MODE, make_folder, new_private_file
from truthfl.ledger.address import read_address
from truthfl.ledger.archive import FOLDER, LEDGER, MANIFEST, HashingReader, Manifest
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.sqlite import copied_and_locked

CHECKPOINTS = "checkpoints"
# of a process that runs, or written anew when it starts; the ledger's address may hold a password
LEFT_OUT = frozenset(("live.json", "serve.lock", "ledger.address", "__pycache__", ".cache"))
JOURNALS = ("", "-wal", "-shm", "-journal")


def back_up(target: Path, parts: Mapping[str, Path], ledger: str | Path, version: str) -> Manifest:
    """Write a backup to a new file; return what is in it.

    parts    the folders by their names in the backup: `FOLDER` and others
    ledger   the ledger's address; one in PostgreSQL is not copied
    version  of truthfl, for the manifest
    """
    _require_outside(target, parts)
    with _stage_beside(target) as staged:
        rows, head = _stage(parts[FOLDER], ledger, staged)
        files: dict[str, tuple[str, int]] = {}
        with new_private_file(target) as file, tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as tar:
            for name, path in _files(parts, ledger, staged):
                found = _add(tar, name, path)
                if found is not None:
                    files[name] = found
            now = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = Manifest(now, version, (staged / LEDGER).exists(), rows, head, files)
            content = manifest.content()
            tar.addfile(_member(MANIFEST, len(content)), BytesIO(content))
    return manifest


def _require_outside(target: Path, parts: Mapping[str, Path]) -> None:
    if target.exists():
        raise InputError(f"{target} exists already, and is not replaced; name another file.")
    for folder in parts.values():
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder; name the one to back up.")
        if target.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{target} is in {folder}, which is backed up; name a file elsewhere.")


@contextmanager
def _stage_beside(target: Path) -> Iterator[Path]:
    """A private folder on the disk on which the backup will be."""
    try:
        make_folder(target.parent)
        place = tempfile.mkdtemp(prefix=".", suffix=DRAFT, dir=target.parent)
    except OSError as error:
        raise ServiceError(f"{target} cannot be written: {error.strerror}.") from None
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _stage(folder: Path, ledger: str | Path, staged: Path) -> tuple[int, str]:
    """Copy the ledger and the checkpoints of one moment; the number of the ledger's rows, and the hash of the last."""
    address, copy = read_address(ledger), staged / LEDGER
    copy.parent.mkdir(mode=0o700)
    if isinstance(address, URL):
        _copy_checkpoints(folder, staged)
        return 0, ""
    open_for_reading(address).close()  # says what is wrong with it
    with copied_and_locked(address, copy):
        _copy_checkpoints(folder, staged)
    with open_for_reading(copy) as copied:
        head = copied.head()
    return (0, "") if head is None else (head.sequence, head.hash)


def _copy_checkpoints(folder: Path, staged: Path) -> None:
    try:
        if (folder / CHECKPOINTS).is_dir():
            ignored = shutil.ignore_patterns(f"*{DRAFT}")
            shutil.copytree(folder / CHECKPOINTS, staged / FOLDER / CHECKPOINTS, ignore=ignored)
    except (OSError, shutil.Error):
        raise ServiceError(
            f"{folder / CHECKPOINTS} cannot be copied; see that you may read it, and try again."
        ) from None


def _files(parts: Mapping[str, Path], ledger: str | Path, staged: Path) -> Iterator[tuple[str, Path]]:
    """Names in the backup and paths of all files to be in it, the ledger first."""
    for path in _below(staged):
        yield path.relative_to(staged).as_posix(), path
    address = read_address(ledger)
    live = set() if isinstance(address, URL) else {address.resolve().with_name(address.name + one) for one in JOURNALS}
    for part, folder in parts.items():
        for path in _below(folder):
            inside = path.relative_to(folder)
            staged_already = part == FOLDER and inside.parts[0] == CHECKPOINTS
            if not staged_already and path.resolve() not in live:
                yield f"{part}/{inside.as_posix()}", path


def _below(folder: Path) -> Iterator[Path]:
    """The ordinary files in a folder and its folders; links, sockets and what is left out are not among them."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_left_out(name))
        for name in sorted(names):
            path = Path(place, name)
            if not _is_left_out(name) and path.is_file() and not path.is_symlink():
                yield path


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.endswith(DRAFT)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> tuple[str, int] | None:
    """Add a file; its digest and size, or None if it is gone."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            reader = HashingReader(file, size)
            tar.addfile(_member(name, size), reader)
            return reader.digest, size
    except FileNotFoundError:
        return None
    except PermissionError:
        raise ServiceError(f"{path} cannot be read: you may not; back up as the user who runs the server.") from None


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, PRIVATE_FILE_MODE
    return member
