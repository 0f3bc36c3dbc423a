"""The format of a backup: a tar file without compression, whose last member says what the others are.

folder/…        files of the operator's folder, the ledger as folder/ledger.db
keys/…          her keys and certificates
participants/…  the public keys of participants
manifest.json   digest and size of each file, and the ledger's last row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import IO, Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import canonical_bytes, read_document

FOLDER, KEYS, PARTICIPANTS = "folder", "keys", "participants"
PARTS = (FOLDER, KEYS, PARTICIPANTS)
MANIFEST, LEDGER = "manifest.json", f"{FOLDER}/ledger.db"
KIND, VERSION = "truthfl backup", 1
MOST_MANIFEST_BYTES = 100_000_000


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself.

    made      when, ISO 8601 in UTC
    truthfl   the version that made it
    ledger    whether the ledger is in it; one in PostgreSQL is not
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
        """The first part of the names of all files."""
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
    """The first `size` bytes of an open file, and their digest when they have been read; the file may grow."""

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
