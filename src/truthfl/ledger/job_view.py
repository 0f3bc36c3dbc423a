"""What the book says of one job, sorted by kind. Looks at `book` (its entries) and `documents`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from truthfl.errors import InputError
from truthfl.ledger.documents import Offer, offer_from
from truthfl.ledger.entry import Entry


@dataclass(frozen=True, eq=False)
class JobView:
    """The entries of one job; what is not there yet is empty or None."""

    name: str
    job: Entry | None = None
    enrolments: dict[str, Entry] = field(default_factory=dict)
    plans: list[Entry] = field(default_factory=list)
    offers: dict[str, Entry] = field(default_factory=dict)
    answers: dict[str, Entry] = field(default_factory=dict)
    rounds: list[Entry] = field(default_factory=list)
    rejections: list[Entry] = field(default_factory=list)
    test: Entry | None = None
    settlements: dict[str, Entry] = field(default_factory=dict)
    receipts: dict[str, Entry] = field(default_factory=dict)
    payments: list[Entry] = field(default_factory=list)

    @cached_property
    def contract(self) -> list[Offer]:
        """The offers in force, in the clients' order: those of the last version, if all of them were accepted."""
        version = max((int(key.split("/")[0]) for key in self.offers), default=0)
        last = [key for key in self.offers if key.startswith(f"{version}/")]
        accepted = [key in self.answers and _accepts(self.answers[key]) for key in last]
        if not last or not all(accepted):
            return []
        return sorted((offer_from(self.offers[key].document) for key in last), key=lambda offer: offer.index)

    @cached_property
    def delivered(self) -> Counter[str]:
        """In how many rounds each client's report was taken."""
        return Counter(client for entry in self.rounds for client in entry.document["taken"])

    @property
    def finished(self) -> bool:
        """Whether all rounds were trained."""
        return bool(self.contract) and len(self.rounds) == self.contract[0].rounds

    def entry_of(self, offer: Offer) -> Entry:
        return self.offers[offer_key(offer)]

    def answer_to(self, offer: Offer) -> Entry:
        return self.answers[offer_key(offer)]


def offer_key(offer: Offer) -> str:
    return f"{offer.version}/{offer.client}"


def job_view(name: str, entries: Iterable[Entry]) -> JobView:
    """Sort a job's entries."""
    found = JobView(name)
    for entry in entries:
        if entry.kind in ("job", "test"):
            object.__setattr__(found, entry.kind, entry)
        elif entry.kind in ("plan", "round", "rejection", "payment"):
            getattr(found, f"{entry.kind}s").append(entry)
        else:
            getattr(found, f"{entry.kind}s")[entry.key] = entry
    return found


def only_job(jobs: list[str], asked: str | None, where: str) -> str:
    """The job that is meant: the one asked for, or the only one."""
    if asked is not None:
        if asked not in jobs:
            raise InputError(f"job is {asked!r}; {where} has {', '.join(jobs) or 'none'}.")
        return asked
    if len(jobs) != 1:
        raise InputError(f"{where} has {len(jobs)} jobs{': ' if jobs else ''}{', '.join(jobs)}; name one with --job.")
    return jobs[0]


def _accepts(entry: Entry) -> bool:
    paper = entry.document.get("document")
    return isinstance(paper, dict) and paper.get("kind") == "acceptance"
