"""`KnownKeys`: whose keys the operator's server lets in: those in her folder of .pub files, and those admitted.

A file that is added while the server runs counts from then on. Imports `files` and the ledger (`admissions`, `book`,
`signing`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, TruthflError
from truthfl.files import write_file
from truthfl.ledger.admissions import KIND, admit, admitted_keys
from truthfl.ledger.book import Ledger
from truthfl.ledger.signing import read_public_line

SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(eq=False)
class KnownKeys:
    """The keys of one job's participants.

    folder  with NAME.pub files
    names   of the job's clients; files of others are ignored
    """

    ledger: Ledger
    job: str
    folder: Path
    names: tuple[str, ...]
    last_look: float = float("-inf")

    def lines(self) -> dict[str, str]:
        """By name: the public key. Raise InputError if two names have the same."""
        return self._of_files() | admitted_keys(self.ledger.entries(self.job, KIND))

    def look_up(self, public_key: str) -> str | None:
        """The name of whose key this is; None if it is nobody's.

        Strangers can cause this as often as they like, so it looks no more often than once a second.
        """
        if time.monotonic() < self.last_look + SECONDS_BETWEEN_LOOKS:
            return None
        self.last_look = time.monotonic()
        try:
            found = self.lines()
        except TruthflError:  # a file that cannot be read lets nobody in
            return None
        return next((name for name, line in found.items() if line == public_key), None)

    def admit(self, request: Mapping[str, Any]) -> str:
        """Admit who has an invitation; return a sentence."""
        name, key = admit(self.ledger, self.job, request)
        if name not in self.names:
            raise InputError(f"{name} is not among the job's clients.")
        if self._is_file_name(name):
            write_file(self.folder / f"{name}.pub", f"{key} {name}\n")
        return f"{name} is admitted."

    def _of_files(self) -> dict[str, str]:
        paths = {name: self.folder / f"{name}.pub" for name in self.names if self._is_file_name(name)}
        return {name: read_public_line(path) for name, path in paths.items() if path.is_file()}

    @staticmethod
    def _is_file_name(name: str) -> bool:
        return not set(name) & set("/\\\0") and name not in (".", "..")
