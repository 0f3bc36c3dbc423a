"""Restore a backup into new folders: all of it, after every digest and the ledger were checked, or nothing."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from truthfl.errors import InputError, ServiceError
from truthfl.files import PRIVATE_FOLDER_MODE, create_private_file, new_private_folder, require_empty
from truthfl.ledger.anchors import first_contradiction, read_anchors, usual_anchor_file
from truthfl.ledger.archive import (
    FOLDER,
    LEDGER,
    MANIFEST,
    MOST_MANIFEST_BYTES,
    PARTS,
    HashingReader,
    Manifest,
    read_manifest,
)
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check

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
    """The manifest; raise InputError unless the members are the files that it lists, and safe to write."""
    names = []
    for member in tar:
        if not member.isreg() or member.issparse() or not _is_safe(member.name):
            raise InputError(f"{source} has a member that no backup has ({member.name!a}); nothing was restored.")
        names.append(member.name)
    if len(names) != len(set(names)) or not names or names[-1] != MANIFEST:
        raise InputError(f"{source} is no backup, or only a part of one; name a file that truthfl backup wrote.")
    manifest = read_manifest(_member(tar, MANIFEST).read(MOST_MANIFEST_BYTES), str(source))
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
    size, member = tar.getmember(name).size, _member(tar, name)
    reader = HashingReader(member, size)
    with path.open("r+b") as file:
        while content := reader.read(CHUNK_BYTES):
            file.write(content)
        if file.tell() != size:
            raise InputError(f"{source} is only a part of a backup; it ends in {name}.")
    return reader.digest, size


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    assert file is not None  # all members are ordinary files
    return file


def _check_ledger(path: Path, manifest: Manifest, source: Path) -> None:
    """Raise InputError unless the ledger holds, ends as the manifest says, and contradicts none of its anchors."""
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
