"""An outside observer of the ledger: notes each committed row that it sees, and checks at the end that it is there.

It reads with its own SQL, not with truthfl's code, and writes to a file, so that its memory does not grow.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

ROWS = "SELECT sequence, job, kind, key, hash FROM entries WHERE sequence > %s ORDER BY sequence"
KEYS = "SELECT job, kind, key FROM entries"


class Observer:
    """Rows that an outsider saw, in the order of their sequence numbers."""

    def __init__(self, address: str, file: Path) -> None:
        self.address, self.file = make_conninfo(address), file
        self.rows = 0
        self.jobs: set[str] = set()
        self._connection: psycopg.Connection | None = None
        file.touch()

    def look(self) -> None:
        """Note newly committed rows; none while the database is down."""
        try:
            found = self._read(ROWS, (self.rows,))
        except psycopg.Error:
            self.close()
            return
        with self.file.open("a", encoding="utf-8") as file:
            for row in found:
                file.write("\t".join(map(str, row)) + "\n")
                self.jobs.add(row[1])
        self.rows += len(found)

    def lost(self) -> list[str]:
        """Rows that are gone or changed since they were seen, and gaps between sequence numbers."""
        there = ["\t".join(map(str, row)) for row in self._read(ROWS, (0,))]
        with self.file.open(encoding="utf-8") as file:
            seen = file.read().splitlines()
        faults = [f"a row that was seen is not there: {row}" for row in set(seen) - set(there)]
        sequence = [int(row.split("\t")[0]) for row in there]
        if sequence != list(range(1, len(there) + 1)):
            faults.append("the rows' sequence numbers have a gap")
        return faults

    def doubled(self) -> list[str]:
        """Rows that occur twice under the same job, kind and key."""
        counts = Counter(self._read(KEYS, ()))
        return [f"{' '.join(key)} is there {count} times" for key, count in counts.items() if count > 1]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, query: str, values: tuple[int, ...]) -> list[tuple[object, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(self.address, autocommit=True, connect_timeout=5)
        try:
            return self._connection.execute(query, values or None).fetchall()
        except psycopg.errors.UndefinedTable:  # nobody has begun a job
            return []
