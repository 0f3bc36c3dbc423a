"""`KnownKeys`: whose keys the operator's server lets in: those in her folder of .pub files, and those admitted.

A file that is added while the server runs counts from then on. Admission is a row of the ledger and nothing else, so
the folder may be one that the server cannot write to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, TruthflError
from truthfl.ledger.admissions import NO_INVITATION, admit, keys_by_admission
from truthfl.ledger.book import Ledger
from truthfl.ledger.owed_receipts import OwedReceipts
from truthfl.ledger.signing import read_public_line

LOOK_UP_SECONDS = 0.5  # for so long, files and ledger are not read again for keys of strangers


@dataclass(eq=False)
class KnownKeys:
    """The keys of one job's participants. All methods may be called from any thread.

    folder  with NAME.pub files
    names   of the job's clients; files of others are ignored
    """

    ledger: Ledger
    job: str
    folder: Path
    names: tuple[str, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _names: dict[str, str] = field(default_factory=dict, repr=False)  # by key
    _read_at: float = float("-inf")
    _owed: OwedReceipts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._owed = OwedReceipts(self.ledger, self.job)

    def lines(self) -> dict[str, str]:
        """By name: the public key. Raise InputError if two names have the same."""
        return self._of_files() | keys_by_admission(self.ledger, self.job, self.names)

    def look_up(self, public_key: str) -> str | None:
        """The name of whose key this is; None if it is nobody's, or was not a moment ago.

        "" for somebody who has no part in this job, and has not got the receipt of an earlier one.
        """
        with self._lock:
            if time.monotonic() > self._read_at + LOOK_UP_SECONDS:
                try:
                    self._names = {line: name for name, line in self.lines().items()}
                    self._owed.update()
                except TruthflError:  # a file that cannot be read lets nobody in
                    self._names = {}
                self._read_at = time.monotonic()
            return self._names.get(public_key, "" if self._owed.of_key(public_key) else None)

    def admit(self, request: Mapping[str, Any]) -> str:
        """Admit who has an invitation; return a sentence."""
        if request.get("name") not in self.names:
            raise InputError(NO_INVITATION)
        name, _ = admit(self.ledger, self.job, request)
        with self._lock:
            self._read_at = float("-inf")
        return f"{name} is admitted."

    def _of_files(self) -> dict[str, str]:
        paths = {name: self.folder / f"{name}.pub" for name in self.names if not set(name) & set("/\\\0")}
        return {name: read_public_line(path) for name, path in paths.items() if path.is_file()}
