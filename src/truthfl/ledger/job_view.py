"""The ledger's entries of one job, sorted by kind. Imports `entry` and `terms`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from truthfl.errors import InputError
from truthfl.ledger.entry import Entry
from truthfl.ledger.terms import Agreement, JobTerms, Offer, job_terms_from, offer_from


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
    def agreement(self) -> Agreement | None:
        """The last version of the offers with the job's terms, if all of its offers were accepted."""
        version = max((int(key.split("/")[0]) for key in self.offers), default=0)
        offers = self.offers_of(version)
        if not offers or not all(offer.key in self.answers and _accepts(self.answers[offer.key]) for offer in offers):
            return None
        return Agreement(self.terms_of(version, offers), offers)

    def offers_of(self, version: int) -> tuple[Offer, ...]:
        """This version's offers, in the clients' order."""
        documents = [entry.document for key, entry in self.offers.items() if key.startswith(f"{version}/")]
        return tuple(sorted((offer_from(one) for one in documents), key=lambda offer: offer.client.index))

    def terms_of(self, version: int, offers: tuple[Offer, ...]) -> JobTerms:
        """The job's terms in this version: the plan's; ledgers of version 0.1 have them in their offers alone."""
        plan = next((entry.document for entry in self.plans if entry.key == str(version)), {})
        return job_terms_from(plan["terms"]) if "terms" in plan else offers[0].job

    @cached_property
    def delivered(self) -> Counter[str]:
        """In how many rounds each client's report was taken."""
        return Counter(client for entry in self.rounds for client in entry.document["taken"])

    @cached_property
    def asked(self) -> Counter[str]:
        """In how many rounds each client was asked for a report: in all, unless a round says whom it asked."""
        everybody = [offer.client.name for offer in self.agreement.offers] if self.agreement else []
        return Counter(client for entry in self.rounds for client in entry.document.get("asked", everybody))

    @property
    def finished(self) -> bool:
        """Whether all rounds were trained."""
        return self.agreement is not None and len(self.rounds) == self.agreement.terms.rounds

    def entry_of(self, offer: Offer) -> Entry:
        return self.offers[offer.key]

    def answer_to(self, offer: Offer) -> Entry:
        return self.answers[offer.key]


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
