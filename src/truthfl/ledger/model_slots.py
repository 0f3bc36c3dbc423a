"""The last model that a participant's node received under an offer, in one of two slots of a file in her folder.

A model is found by its digest, which stands in the record of its round. A new one is written over the slot that does
not have the last: a crash before its round is recorded loses nothing, and no file is made in every round.
"""

from __future__ import annotations

import os
from hashlib import sha256

from truthfl.errors import ServiceError
from truthfl.files import PRIVATE_FILE_MODE

MODELS_IN_MEMORY = 2  # for all offers of this process together

_in_memory: tuple[tuple[str, bytes], ...] = ()  # digests and models, the newest first


class ModelSlots:
    """The file of one offer, for models of one size; whoever uses it has locked the offer's rounds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._found: tuple[str, int] | None = None  # the digest of the model that was found or written last, its slot

    def model(self, digest: str, size: int) -> bytes | None:
        """The model of this digest and number of bytes; None if neither slot has it."""
        kept = _remembered(digest)
        if kept is None:
            slot = self._slot_of(digest, size)
            kept = None if slot is None else self._read(slot, size)
            if kept is not None:
                _remember(digest, kept)
        return kept

    def keep(self, digest: str, model: memoryview, last: str | None) -> None:
        """Write a model; that of the digest `last` stays in the other slot."""
        slot = None if last is None else self._slot_of(last, model.nbytes)
        if digest == last and slot is not None:
            return
        free = 0 if slot is None else 1 - slot
        try:
            written = os.pwrite(self._opened(), model, free * model.nbytes)
        except OSError as error:
            raise ServiceError(f"{self._path} cannot be written: {error.strerror}.") from None
        if written != model.nbytes:
            raise ServiceError(f"{self._path} cannot be written: there is no room for all of it.")
        self._found = digest, free
        if _remembered(digest) is None:
            _remember(digest, model.tobytes())

    def close(self) -> None:
        """Close the file and forget which slot has which model; it is opened again when it is needed."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = self._found = None

    def _slot_of(self, digest: str, size: int) -> int | None:
        if self._found is None or self._found[0] != digest:
            slots = (slot for slot in (0, 1) if sha256(self._read(slot, size)).hexdigest() == digest)
            slot = next(slots, None)
            self._found = None if slot is None else (digest, slot)
        return None if self._found is None else self._found[1]

    def _read(self, slot: int, size: int) -> bytes:
        try:
            return os.pread(self._opened(), size, slot * size)
        except OSError as error:
            raise ServiceError(f"{self._path} cannot be read: {error.strerror}.") from None

    def _opened(self) -> int:
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
        return self._handle


def _remembered(digest: str) -> bytes | None:
    return next((model for one, model in _in_memory if one == digest), None)


def _remember(digest: str, model: bytes) -> None:
    global _in_memory  # replaced as a whole, so that threads see a whole one
    _in_memory = ((digest, model), *_in_memory)[:MODELS_IN_MEMORY]
