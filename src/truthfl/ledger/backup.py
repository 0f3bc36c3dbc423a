"""Backups of an operator's folder and keys, restored completely or not at all, and anchors, which detect lost rows.

A hash chain does not show that its last entries were removed, or that it was rewritten from some entry on. An anchor or
a client's receipt shows both. A backup has:

folder/…        files of the operator's folder, the ledger as folder/ledger.db
keys/…          the operator's keys and certificates
participants/…  the public keys of participants
manifest.json   digest and size of each file, and the ledger's last row

Files are written before the ledger's rows that need them, so the ledger is copied first. A training's checkpoint must
match the ledger exactly, so it is copied while nobody can add rows.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sqlalchemy import URL

from truthfl.errors import InputError, ServiceError
from truthfl.files import (
    DRAFT,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    create_private_file,
    make_folder,
    new_private_file,
    new_private_folder,
    require_empty,
    write_file,
)
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.canonical import Document, canonical_bytes, read_document
from truthfl.ledger.checking import check
from truthfl.ledger.documents import signed
from truthfl.ledger.entry import Entry
from truthfl.ledger.signing import PrivateKey, public_line, signed_by
from truthfl.ledger.sql.database import read_address
from truthfl.ledger.sql.engines import copied_and_locked

FIELDS = frozenset(("kind", "sequence", "hash", "at", "public_key"))


def make_anchor(head: Entry, key: PrivateKey) -> dict[str, Any]:
    """The signed anchor of a ledger whose last entry is this one."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"kind": "anchor", "sequence": head.sequence, "hash": head.hash, "at": now}
    return signed(key, document | {"public_key": public_line(key)})


def usual_anchor_file(where: str | Path) -> Path | None:
    """The file beside a ledger that holds its anchors; None for a ledger that is not a file."""
    address = read_address(where)
    return address.with_name(f"{address.name}.anchors") if isinstance(address, Path) else None


def anchor_text(anchor: Document) -> str:
    """The anchor as one line of text."""
    return canonical_bytes(anchor).decode()


def keep_anchor(path: Path, anchor: Document) -> None:
    """Add the anchor to this file, one per line, unless its entry already has one."""
    anchors = read_anchors(path) if path.exists() else []
    if any(kept["document"]["hash"] == anchor["document"]["hash"] for kept in anchors):
        return
    write_file(path, "".join(f"{anchor_text(one)}\n" for one in (*anchors, anchor)), private=True)


def read_anchors(path: Path) -> list[dict[str, Any]]:
    """The anchors in this file; an error if there is none, or if one is malformed or not signed by its key."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    anchors = [_anchor(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not anchors:
        raise InputError(f"{path} has no anchor in it; truthfl ledger anchor writes them.")
    return anchors


def _anchor(line: str, what: str) -> dict[str, Any]:
    anchor = read_document(line, what)
    document = anchor.get("document")
    if set(anchor) != {"document", "signature"} or not isinstance(document, Mapping) or set(document) != FIELDS:
        raise InputError(f"{what} is no anchor; truthfl ledger anchor writes them.")
    texts = all(isinstance(document[name], str) for name in ("hash", "at", "public_key"))
    if document["kind"] != "anchor" or type(document["sequence"]) is not int or not texts:
        raise InputError(f"{what} is no anchor; truthfl ledger anchor writes them.")
    if not signed_by(document["public_key"], document, str(anchor["signature"])):
        raise InputError(f"{what} is an anchor whose signature is not of its key; it was changed.")
    return anchor


def first_contradiction(anchors: Sequence[Document], entries: Sequence[Entry]) -> str | None:
    """What contradicts the first of these anchors that does not hold; None if all hold."""
    return next(filter(None, (anchor_fault(anchor, entries) for anchor in anchors)), None)


def anchor_fault(anchor: Document, entries: Sequence[Entry]) -> str | None:
    """What contradicts this anchor in all entries of a ledger, whose chain holds; None if nothing does."""
    document = anchor["document"]
    number, made = document["sequence"], f"the anchor of {document['at']!a}"
    place = bisect_left(entries, number, key=attrgetter("sequence"))  # earlier ones may have numbers below 1
    if place == len(entries):
        last = entries[-1].sequence if entries else 0
        return f"the ledger ends at entry {last}, and {made} is of entry {number}; its last rows are gone"
    if (entries[place].sequence, entries[place].hash) != (number, document["hash"]):
        return (
            f"entry {number} is not the one of {made}; the ledger was written anew from there or before, or is another"
        )
    keys = {entry.document.get("operator_key") for entry in entries if entry.kind == "job"}
    if document["public_key"] not in keys:
        return f"{made} is signed with a key that no job of the ledger names"
    return None


FOLDER, KEYS, PARTICIPANTS = "folder", "keys", "participants"
PARTS = (FOLDER, KEYS, PARTICIPANTS)
MANIFEST, LEDGER = "manifest.json", f"{FOLDER}/ledger.db"
KIND, VERSION = "truthfl backup", 1
MOST_MANIFEST_BYTES = 100_000_000


@dataclass(frozen=True)
class Manifest:
    """A backup's description of itself.

    made      when, ISO 8601 in UTC
    truthfl   the version that made it
    ledger    whether the ledger is in it; a ledger in PostgreSQL is not
    rows      the number of rows of the ledger in it
    head      the hash of the last row; "" if there is none
    files     by name: digest and size
    """

    made: str
    truthfl: str
    ledger: bool
    rows: int
    head: str
    files: dict[str, tuple[str, int]]

    def content(self) -> bytes:
        return canonical_bytes({"kind": KIND, "version": VERSION, **asdict(self)})

    @property
    def parts(self) -> set[str]:
        """The first parts of all file names."""
        return {name.partition("/")[0] for name in self.files}


def read_manifest(content: bytes, what: str) -> Manifest:
    """The manifest in these bytes; `what` names the backup in messages."""
    document = read_document(content, f"the manifest of {what}")
    if document.get("kind") != KIND:
        raise InputError(f"{what} is no backup that truthfl made.")
    if document.get("version") != VERSION:
        raise InputError(f"{what} is a backup of a newer truthfl; bring truthfl up to date.")
    try:
        return Manifest(
            made=_of_type(document, "made", str),
            truthfl=_of_type(document, "truthfl", str),
            ledger=_of_type(document, "ledger", bool),
            rows=_of_type(document, "rows", int),
            head=_of_type(document, "head", str),
            files={str(name): (str(digest), int(size)) for name, (digest, size) in document["files"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"the manifest of {what} is damaged; take another backup.") from None


def _of_type(document: Mapping[str, Any], name: str, kind: type) -> Any:
    if type(document[name]) is not kind:
        raise TypeError(name)
    return document[name]


class HashingReader:
    """The first `size` bytes of an open file, and their digest once they have been read; the file may grow."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left, self._hash = file, size, sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(content)
        self._hash.update(content)
        return content

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


CHECKPOINTS = "checkpoints"
# files of a running process, or rewritten at its start; the ledger's address may hold a password
LEFT_OUT = frozenset(("live.json", "serve.lock", "ledger.address", "__pycache__", ".cache"))
JOURNALS = ("", "-wal", "-shm", "-journal")


def back_up(target: Path, parts: Mapping[str, Path], ledger: str | Path, version: str) -> Manifest:
    """Write a backup to a new file; return what is in it.

    parts    the folders by their names in the backup: `FOLDER` and others
    ledger   the ledger's address; a ledger in PostgreSQL is not copied
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
    """A private folder on the disk of the future backup."""
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
    open_for_reading(address).close()  # reports what is wrong with it
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
    """The ordinary files in a folder and its folders; without links, sockets and excluded files."""
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


CHUNK_BYTES = 1 << 20


def restore(source: Path, parts: Mapping[str, Path]) -> Manifest:
    """Restore a backup; return what was in it.

    parts  where to restore, by the names in the backup: `FOLDER` and others
    """
    for folder in parts.values():
        require_empty(folder)
    with ExitStack() as stack:
        tar = stack.enter_context(_opened(source))
        manifest = _require_whole(tar, source)
        _require_places(manifest, parts, source)
        drafts = {part: stack.enter_context(new_private_folder(folder)) for part, folder in parts.items()}
        for name, (digest, size) in manifest.files.items():
            part, _, inside = name.partition("/")
            if _write(tar, name, drafts[part] / inside, source) != (digest, size):
                raise InputError(f"{name} in {source} is not the file that was backed up; take another backup.")
        if manifest.ledger:
            _check_ledger(drafts[FOLDER] / PurePosixPath(LEDGER).name, manifest, source)
    return manifest


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, mode="r:") as tar:
            yield tar
    except tarfile.TarError:
        raise InputError(
            f"{source} is no backup, or only a part of one; name a file that truthfl backup wrote."
        ) from None
    except FileNotFoundError:
        raise InputError(f"there is no file {source}; name one that truthfl backup wrote.") from None
    except OSError as error:
        raise ServiceError(f"{source} cannot be read: {error.strerror or 'it is damaged'}.") from None


def _require_whole(tar: tarfile.TarFile, source: Path) -> Manifest:
    """The manifest; raise InputError unless the members are the files that it lists and safe to write."""
    names = []
    for member in tar:
        if not member.isreg() or member.issparse() or not _is_safe(member.name):
            raise InputError(f"{source} has a member that no backup has ({member.name!a}); nothing was restored.")
        names.append(member.name)
    if len(names) != len(set(names)) or not names or names[-1] != MANIFEST:
        raise InputError(f"{source} is no backup, or only a part of one; name a file that truthfl backup wrote.")
    manifest = read_manifest(_open_member(tar, MANIFEST).read(MOST_MANIFEST_BYTES), str(source))
    if set(names) != {*manifest.files, MANIFEST} or manifest.ledger != (LEDGER in manifest.files):
        raise InputError(f"{source} has other files than its manifest lists; take another backup.")
    return manifest


def _is_safe(name: str) -> bool:
    """Whether it is the manifest's name, or a plain path below one of the parts."""
    path = PurePosixPath(name)
    plain = str(path) == name and not path.is_absolute() and ".." not in path.parts and "\0" not in name
    return name == MANIFEST or (plain and len(path.parts) > 1 and path.parts[0] in PARTS)


def _require_places(manifest: Manifest, parts: Mapping[str, Path], source: Path) -> None:
    """Raise InputError unless there is a place for each part, and a part for each place."""
    for part in sorted(manifest.parts - set(parts)):
        raise InputError(f"{source} has {part} in it; say with --{part} where to restore them.")
    for part in sorted(set(parts) - manifest.parts - {FOLDER}):
        raise InputError(f"{source} has no {part} in it; leave --{part} out.")


def _write(tar: tarfile.TarFile, name: str, path: Path, source: Path) -> tuple[str, int]:
    """Write a member to a new file; its digest and size."""
    for folder in reversed(path.parents):
        folder.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
    create_private_file(path)
    size, member = tar.getmember(name).size, _open_member(tar, name)
    reader = HashingReader(member, size)
    with path.open("r+b") as file:
        while content := reader.read(CHUNK_BYTES):
            file.write(content)
        if file.tell() != size:
            raise InputError(f"{source} is only a part of a backup; it ends in {name}.")
    return reader.digest, size


def _open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    assert file is not None  # all members are ordinary files
    return file


def _check_ledger(path: Path, manifest: Manifest, source: Path) -> None:
    """Raise InputError unless the ledger holds, ends as the manifest says and contradicts none of its anchors."""
    with open_for_reading(path) as ledger:
        entries, missing = ledger.rows(), ledger.missing_guards()
    fault = check(entries)
    if fault is not None:
        raise InputError(f"the ledger in {source} does not hold: {fault.message}.")
    if missing:
        raise InputError(f"the ledger in {source} lacks triggers that forbid changes: {', '.join(missing)}.")
    if (len(entries), entries[-1].hash if entries else "") != (manifest.rows, manifest.head):
        raise InputError(f"the ledger in {source} does not end where its manifest says; take another backup.")
    anchors = usual_anchor_file(path)
    if anchors is not None and anchors.exists():
        contradiction = first_contradiction(read_anchors(anchors), entries)
        if contradiction is not None:
            raise InputError(f"the ledger in {source} is not the one of its anchors: {contradiction}.")
