"""`Narrator`: prints what happens in a job, one line per ledger entry, from a thread of its own.

Imports the protocol's `narration`, the ledger and `texts`.
"""

from __future__ import annotations

import threading
from datetime import datetime

from truthfl.federation.protocol.narration import describe_entry
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.terms import offer_from
from truthfl.texts import plain

POLL_SECONDS = 0.2
LONGEST_LINE = 1000


class Narrator:
    """A context manager; entries that are there when it begins are not printed again."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self.ledger, self.job = ledger, job
        self.terms: JobTerms | None = None
        self.last = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_new_entries, name="truthfl narrator", daemon=True)

    def __enter__(self) -> Narrator:
        for entry in self.ledger.entries(self.job):
            self._note(entry)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _print_new_entries(self) -> None:
        over = False
        while not over:
            over = self._ended.wait(POLL_SECONDS)
            for entry in self.ledger.entries(self.job, after=self.last):
                self._note(entry)
                line = describe_entry(entry, self.terms)
                if line is not None:
                    print_at(datetime.fromisoformat(entry.at), line)

    def _note(self, entry: Entry) -> None:
        self.last = entry.sequence
        if entry.kind == "offer":
            self.terms = offer_from(entry.document).job


def print_at(at: datetime, line: str) -> None:
    """Print a line with the time of day, in this machine's time zone."""
    print(f"{at.astimezone():%H:%M:%S} {plain(line, LONGEST_LINE)}", flush=True)
