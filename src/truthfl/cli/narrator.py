"""`Narrator`: prints what happens in a job, one line per ledger entry and stage, from a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime

from truthfl.cli.job_log import JSON, event_line, log_line, stage_line
from truthfl.errors import ServiceError
from truthfl.federation.protocol.live_status import LiveWriter, RoundWaits, StageChange
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.terms import offer_from
from truthfl.texts import plain

POLL_SECONDS = 0.2
LONGEST = 1000  # letters of a line


class Narrator:
    """A context manager; entries that are there when it begins are not printed again.

    log_format  one of `job_log.FORMATS`
    live        the server's status, for its stages
    """

    def __init__(self, ledger: Ledger, job: str, log_format: str, live: LiveWriter) -> None:
        self.ledger, self.job, self.log_format, self.live = ledger, job, log_format, live
        self.terms: JobTerms | None = None
        self.last = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_new_entries, name="truthfl narrator", daemon=True)

    def __enter__(self) -> Narrator:
        for entry in self.ledger.entries(self.job):
            self._note(entry)
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.ledger.stop_waiting()
        self._ended.set()
        self._thread.join()

    def _print_new_entries(self) -> None:
        over = False
        while not over:
            over = self._ended.wait(POLL_SECONDS)
            try:
                self._print_once()
            except ServiceError:  # the ledger is out of reach; who conducts the job tells so
                if over:
                    return

    def _print_once(self) -> None:
        entries = self.ledger.entries(self.job, after=self.last)
        changes = deque(self.live.take_stage_changes())
        for entry in entries:
            while changes and changes[0].at <= entry.at:
                self._print_stage(changes.popleft())
            self._note(entry)
            line = log_line(entry, self.terms, self.log_format)
            if line is not None:
                print(line, flush=True)
        for change in changes:
            self._print_stage(change)

    def _print_stage(self, change: StageChange | RoundWaits) -> None:
        print(stage_line(self.job, change, self.log_format), flush=True)

    def _note(self, entry: Entry) -> None:
        self.last = entry.sequence
        if entry.kind == "offer":
            self.terms = offer_from(entry.document).job


def tell(log_format: str, event: str, job: str, sentence: str) -> None:
    """Print a sentence about a job that is in no ledger: as it is for people, as an event for programs."""
    print(
        event_line(event, job, sentence) if log_format == JSON else f"truthfl: {plain(sentence, LONGEST)}", flush=True
    )


def tell_at(log_format: str, event: str, job: str, sentence: str) -> None:
    """As `tell`, with the time of day for people too."""
    if log_format == JSON:
        tell(log_format, event, job, sentence)
    else:
        print(f"{datetime.now():%H:%M:%S} {plain(sentence, LONGEST)}", flush=True)
