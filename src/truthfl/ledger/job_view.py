"""The rows of one job in the ledger by kind, and what pay follows from them.

Who agreed, took part and delivered is in the `JobState` that is folded from the same rows. It passes over rows that
cannot be read; here their errors are raised.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from truthfl.errors import InputError
from truthfl.ledger.commands import END, Command
from truthfl.ledger.entry import KINDS, Entry
from truthfl.ledger.job_state import ACCEPTED, JobState
from truthfl.ledger.terms import Agreement, JobTerms, Offer, list_digest, loss_rise

LOST_START = 0  # instead of a lost round: the solo models from which the rounds start are lost


def lost_in_words(lost: int) -> str:
    """Why the model is lost, in words: this round, or `LOST_START`."""
    return f"round {lost} could not be repeated" if lost else "the solo models from which training starts are gone"


@dataclass(frozen=True, eq=False)
class JobView:
    """The entries of one job by kind; kinds without entries are empty or None.

    admissions                          by the digest of the invitation's code
    enrolments, commitments, auditions, finals, settlements, receipts, acknowledgements   by client
    holds                               of solo models that are known or too good; by client
    offers, answers                     by the offer's key, "version/client"
    starts                              of the rounds: one for each time the server began or resumed training
    commands                            the operator's, in order
    ended                               the entry that the operator's command ended the job
    """

    name: str
    job: Entry | None = None
    commands: list[Entry] = field(default_factory=list)
    admissions: dict[str, Entry] = field(default_factory=dict)
    enrolments: dict[str, Entry] = field(default_factory=dict)
    plans: list[Entry] = field(default_factory=list)
    offers: dict[str, Entry] = field(default_factory=dict)
    answers: dict[str, Entry] = field(default_factory=dict)
    commitments: dict[str, Entry] = field(default_factory=dict)
    holds: dict[str, Entry] = field(default_factory=dict)
    auditions: dict[str, Entry] = field(default_factory=dict)
    starts: list[Entry] = field(default_factory=list)
    rounds: list[Entry] = field(default_factory=list)
    rejections: list[Entry] = field(default_factory=list)
    ended: Entry | None = None
    finals: dict[str, Entry] = field(default_factory=dict)
    test: Entry | None = None
    settlements: dict[str, Entry] = field(default_factory=dict)
    receipts: dict[str, Entry] = field(default_factory=dict)
    acknowledgements: dict[str, Entry] = field(default_factory=dict)
    payments: list[Entry] = field(default_factory=list)

    entries: list[Entry] = field(default_factory=list)

    @cached_property
    def state(self) -> JobState:
        """What all these rows amount to."""
        state = JobState(self.name)
        for entry in self.entries:
            state.add(entry)
        return state

    def state_by(self, kind: str) -> JobState:
        """The state; raise the error of the first row of this kind that cannot be read."""
        if kind in self.state.errors:
            raise self.state.errors[kind]
        return self.state

    @cached_property
    def agreement(self) -> Agreement | None:
        """The offers of the last version and the job's terms; None unless all these offers were accepted."""
        clients = self.state_by("offer").in_force
        if not clients or not all(client.answer == ACCEPTED for client in clients):
            return None
        offers = tuple(client.offers[client.version] for client in clients)
        return Agreement(self.terms_of(self.state.version, offers), offers)

    @property
    def last_version(self) -> int:
        """The version of the newest offers; 0 if there are none."""
        return self.state_by("offer").version

    def offers_of(self, version: int) -> tuple[Offer, ...]:
        """This version's offers, in the clients' order."""
        clients = self.state_by("offer").clients.values()
        offers = [client.offers[version] for client in clients if version in client.offers]
        return tuple(sorted(offers, key=lambda offer: offer.client.index))

    def terms_of(self, version: int, offers: tuple[Offer, ...]) -> JobTerms:
        """The job's terms in this version: from the plan, if there is one."""
        known = self.state.terms_of
        if version not in known and any(entry.key == str(version) for entry in self.plans):
            known = self.state_by("plan").terms_of
        return known.get(version, offers[0].job)

    @property
    def minor_units(self) -> int:
        """How many minor units are one unit of the job's currency; 1 before there is a contract."""
        return 1 if self.agreement is None else self.agreement.terms.minor_units

    @cached_property
    def taking_part(self) -> Agreement | None:
        """The agreement restricted to the joint training: all clients, or those who passed the audition.

        None if they are not known yet.
        """
        agreement = self.agreement
        if agreement is None or not agreement.terms.has_solo_models:
            return agreement
        if not self.auditions:
            return None
        clients = self.state_by("audition").clients
        passed = tuple(offer for offer in agreement.offers if clients[offer.client.name].passed)
        return Agreement(agreement.terms, passed)

    @cached_property
    def asked(self) -> Counter[str]:
        """Number of rounds in which each client was asked for a report; a round without a list asked all clients."""
        state = self.state_by("round")
        asked = Counter({name: client.asked_listed for name, client in state.clients.items()})
        asked.update(dict.fromkeys(self._names_taking_part, state.all_asked))
        return +asked  # without zeros

    @cached_property
    def delivered(self) -> Counter[str]:
        """Number of rounds in which each client's report was taken."""
        clients = self.state_by("round").clients
        return self.asked - Counter({name: client.missing for name, client in clients.items()})

    @cached_property
    def round_sets(self) -> list[tuple[Entry, frozenset[str], frozenset[str]]]:
        """Each round with the names of the clients asked, and of those among them who are missing."""
        everybody = frozenset(self._names_taking_part)
        sets = []
        for entry in self.rounds:
            asked = frozenset(entry.document["asked"]) if "asked" in entry.document else everybody
            sets.append((entry, asked, frozenset(entry.document["missing"])))
        return sets

    @cached_property
    def missing_digests(self) -> list[str]:
        """By round: the digest of the list of missing participants, which they sign if reports are masked."""
        offers = () if self.agreement is None else self.agreement.offers
        index_of = {offer.client.name: offer.client.index for offer in offers}
        return [list_digest(index_of[name] for name in missing) for _, _, missing in self.round_sets]

    @cached_property
    def round_refusals(self) -> dict[tuple[str, int], str]:
        """By client and round: why the report was not taken."""
        of_rounds = (entry.document for entry in self.rejections if entry.document["stage"] == "round")
        refusals: dict[tuple[str, int], str] = {}
        for document in of_rounds:
            refusals.setdefault((document["client"], document["round"]), document["reason"])
        return refusals

    def asked_in(self, entry: Entry) -> Sequence[str]:
        """The names of the clients who were asked in this round."""
        listed: Sequence[str] = entry.document.get("asked", self._names_taking_part)
        return listed

    @cached_property
    def _names_taking_part(self) -> list[str]:
        return [] if self.taking_part is None else [offer.client.name for offer in self.taking_part.offers]

    @cached_property
    def asked_by_contract(self) -> Counter[str]:
        """Number of rounds of the contract in which each client was asked or, in a job that was ended, would have been.

        Clients who always take part are asked in all rounds. For others, the entry of the ended job has the number.
        """
        if self.ended is None or self.taking_part is None:
            return self.asked
        stated = self.ended.document["asked"]
        rounds = self.taking_part.terms.rounds
        return Counter({name: stated.get(name, rounds) for name in self._names_taking_part})

    @property
    def valid_commands(self) -> list[tuple[Entry, Command]]:
        """The operator's well-formed and signed commands, each with its entry."""
        return self.state_by("command").commands.given

    @cached_property
    def end_command(self) -> Entry | None:
        """The entry of the command that ended the job; None if it was not ended."""
        if self.ended is None:
            return None
        return next((entry for entry, command in self.valid_commands if command.kind == END), None)

    @property
    def lost_round(self) -> int | None:
        """The first round that could not be repeated, or `LOST_START`, if the model is lost; None if it is not."""
        return None if self.ended is None else self.ended.document.get("lost")

    @property
    def last_model(self) -> str | None:
        """The model that is tested: the last round's or, if lost, the last one before the loss; None if not known."""
        if self.lost_round is not None:
            return self.rounds[self.lost_round - 1].document["previous"] if self.lost_round else None
        return (self.rounds or self.starts)[-1].document["model"] if self.rounds or self.starts else None

    @property
    def finished(self) -> bool:
        """Whether all rounds were trained; none if too few passed the audition, fewer in an ended job."""
        if self.taking_part is None:
            return False
        if self.ended is not None:
            return True
        return len(self.rounds) == self.taking_part.rounds

    @cached_property
    def delivered_labels(self) -> dict[str, float]:
        """The labels of each client who takes part in the joint training, times the share of rounds delivered."""
        offers = () if self.taking_part is None else self.taking_part.offers
        return {
            name: offer.client.samples * self.delivered[name] / self.asked[name] if self.asked[name] else 0.0
            for offer in offers
            for name in (offer.client.name,)
        }

    @cached_property
    def _all_delivered_labels(self) -> float:
        return math.fsum(self.delivered_labels.values())

    @cached_property
    def loss_rise(self) -> float:
        """By how much the expected joint loss is higher because rounds did not change the model.

        A round without clients to ask follows the contract.
        """
        if self.agreement is None:
            return 0.0
        terms = self.agreement.terms
        changed = sum(
            entry.document["model"] != entry.document["previous"] or not self.asked_in(entry) for entry in self.rounds
        )
        return loss_rise(terms.loss_by_rounds, terms.rounds, changed)

    def present_labels(self, offer: Offer) -> float:
        """The client's own labels, and those of the other participants, each times the share of rounds delivered."""
        others = self._all_delivered_labels - self.delivered_labels.get(offer.client.name, 0.0)
        return offer.client.samples + max(others, 0.0)

    def entry_of(self, offer: Offer) -> Entry:
        return self.offers[offer.key]

    def answer_to(self, offer: Offer) -> Entry:
        return self.answers[offer.key]


def job_view(name: str, entries: Iterable[Entry]) -> JobView:
    """The entries of the job with this name, sorted by kind; `entries` are that job's, in order."""
    view = JobView(name, entries=list(entries))
    for entry in view.entries:
        if entry.kind in ("job", "ended", "test"):
            object.__setattr__(view, entry.kind, entry)
        elif entry.kind in ("command", "plan", "start", "round", "rejection", "payment"):
            getattr(view, f"{entry.kind}s").append(entry)
        elif entry.kind in KINDS:
            getattr(view, f"{entry.kind}s")[entry.key] = entry
        else:
            raise InputError(f"entry {entry.sequence} is of the kind {entry.kind!r}, which truthfl does not write.")
    return view


def select_job(jobs: list[str], requested: str | None, where: str) -> str:
    """The requested job, or the only one; an error if it does not exist. `where` is the ledger's name."""
    if requested is not None:
        if requested not in jobs:
            raise InputError(f"job is {requested!r}; {where} has {', '.join(jobs) or 'none'}.")
        return requested
    if len(jobs) != 1:
        raise InputError(f"{where} has {len(jobs)} jobs{': ' if jobs else ''}{', '.join(jobs)}; name one with --job.")
    return jobs[0]
