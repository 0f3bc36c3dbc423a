"""The ledger's entries of one job by kind, and the solo models that are held.

A "hold" row comes before the audition's result. A known model has no solo loss and is not paid. On a model that is too
good the operator decides by a signed command. If they do not refuse it in time, its pay is settled like any other. It
is not paid out before they accept it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.commands import ACCEPT, END, REFUSE, Command, valid_commands
from truthfl.ledger.entry import KINDS, Entry, Fault, fault_at
from truthfl.ledger.evidence import is_too_good, level_shifts
from truthfl.ledger.terms import Agreement, JobTerms, Offer, job_terms_from, list_digest, loss_rise, offer_from
from truthfl.texts import LONGEST_NAME, plain

FIELDS = frozenset(("client", "offer", "model", "solo_loss", "level_shift", "known"))
LOST_START = 0  # instead of a lost round: the solo models from which the rounds start are lost
REFUSED = "The operator refused it"  # how the reason of a refused model begins


def lost_in_words(lost: int) -> str:
    """Why the model is lost, in words: this round, or `LOST_START`."""
    return f"round {lost} could not be repeated" if lost else "the solo models from which training starts are gone"


def known_model(known: Document) -> str:
    """The earlier model that a known one is like, in words."""
    return f"{'a solo' if known['solo'] else 'the joint'} model of the earlier job {known['job']}"


def decision_on(view: JobView, name: str, before: int | None = None) -> tuple[Entry, Command] | None:
    """The operator's first decision on a held model, and its row; None if there is none yet.

    before   the sequence number before which it must have been made
    """
    held = view.holds.get(name)
    if held is None or held.document["known"] is not None:
        return None
    for entry, command in view.valid_commands:
        about = command.kind in (ACCEPT, REFUSE) and command.fields["client"] == name
        if about and entry.sequence > held.sequence and (before is None or entry.sequence < before):
            return entry, command
    return None


def waiting_names(view: JobView) -> list[str]:
    """The clients on whose models the operator can decide now."""
    return [
        name
        for name, entry in view.holds.items()
        if entry.document["known"] is None and name not in view.auditions and decision_on(view, name) is None
    ]


def unseen_names(view: JobView) -> list[str]:
    """The clients whose too good models are settled as offered and still await the operator's decision."""
    return [
        name
        for name, entry in view.holds.items()
        if entry.document["known"] is None and name in view.auditions and decision_on(view, name) is None
    ]


def unseen_sentence(job: str, name: str) -> str:
    """The sentence for the operator about one of them."""
    who = plain(name, LONGEST_NAME)
    return (
        f"Nobody decided on the solo model of {who} in job {plain(job)}, which is better than honest ones are once in "
        f"10,000 times: look before you pay. The payment is left out until you say truthfl accept {who}."
    )


def refusal_of(view: JobView, name: str) -> Entry | None:
    """The row of the command by which a held model was refused before its result was written; None if it was not."""
    result = view.auditions.get(name)
    decided = decision_on(view, name, None if result is None else result.sequence)
    return decided[0] if decided is not None and decided[1].kind == REFUSE else None


def hold_faults(view: JobView) -> Iterator[Fault]:
    """Faults of held models: only what is too good or known is held, all of it is, and pay follows the decision."""
    if view.agreement is None or not view.agreement.terms.has_solo_models:
        for entry in view.holds.values():
            yield fault_at(entry, "the client has no contract with an audition")
        return
    offers = {offer.client.name: offer for offer in view.agreement.offers}
    for name, entry in view.holds.items():
        fault = _form_fault(view, entry, offers.get(name))
        if fault is not None:
            yield fault_at(entry, fault)
            return
    if set(view.auditions) != set(offers):
        return
    losses = {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    for name, entry in view.holds.items():
        losses[name] = entry.document["solo_loss"] if entry.document["known"] is None else None
    shifts = level_shifts(tuple(offers.values()), losses)
    for name, entry in view.auditions.items():
        held, document = view.holds.get(name), entry.document
        known = held is not None and held.document["known"] is not None
        if not known and is_too_good(offers[name], losses[name], shifts[name]) != (held is not None):
            yield fault_at(held or entry, "whether the operator was to look at the model is not what the offer says")
        if held is None:
            if document["model"] is not None and document["solo_loss"] is None:
                yield fault_at(entry, "it has a model and no loss")
            continue
        if not known and held.document["level_shift"] != shifts[name]:
            yield fault_at(
                held, f"the level's shift is {held.document['level_shift']}; recomputed it is {shifts[name]}"
            )
        if held.sequence > entry.sequence or held.document["model"] != document["model"]:
            yield fault_at(held, "it is of another model than the audition's, or comes after it")
        counts = None if known or refusal_of(view, name) is not None else held.document["solo_loss"]
        if document["solo_loss"] != counts:
            yield fault_at(entry, "its loss is not what was held, and the operator did not refuse it before")


def _form_fault(view: JobView, entry: Entry, offer: Offer | None) -> str | None:
    document = entry.document
    if offer is None or set(document) != FIELDS or (document["client"], document["offer"]) != (entry.key, offer.hash):
        return "it is of another client or offer, or does not have the parts of a held model"
    known = document["known"]
    if known is not None and set(known) != {"job", "likeness", "solo"}:
        return "it does not say which earlier model it is like"
    committed = view.commitments.get(entry.key)
    if committed is None or committed.sequence > entry.sequence:
        return "its model was not committed to before"
    return None


def receipt_hold_fault(document: Document, offer: Offer) -> str | None:
    """The fault of a receipt's solo model without a loss: it must be known, or too good and refused by a command."""
    held, result = document["audition"]["held"], document["audition"]["result"]
    refused = any(one["document"]["kind"] == REFUSE for one in document.get("commands", {}).values())
    if held is None:
        sound = not refused and (result["model"] is None or result["solo_loss"] is not None)
    else:
        own = (offer.client.name, offer.hash, result["model"])
        sound = set(held) == FIELDS and (held["client"], held["offer"], held["model"]) == own
        known = sound and held["known"] is not None
        sound = sound and (known or is_too_good(offer, held["solo_loss"], held["level_shift"]))
        sound = sound and result["solo_loss"] == (None if known or refused else held["solo_loss"])
    words = "its solo model is not paid, and it has neither an earlier model that it is like nor the operator's command"
    return None if sound else coded("fault.held", words)


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

    @cached_property
    def agreement(self) -> Agreement | None:
        """The offers of the last version and the job's terms; None unless all these offers were accepted."""
        version = self.last_version
        offers = self.offers_of(version)
        if not offers or not all(offer.key in self.answers and _accepts(self.answers[offer.key]) for offer in offers):
            return None
        return Agreement(self.terms_of(version, offers), offers)

    @property
    def last_version(self) -> int:
        """The version of the newest offers; 0 if there are none."""
        return max((int(key.split("/")[0]) for key in self.offers), default=0)

    def offers_of(self, version: int) -> tuple[Offer, ...]:
        """This version's offers, in the clients' order."""
        documents = [entry.document for key, entry in self.offers.items() if key.startswith(f"{version}/")]
        return tuple(sorted(map(offer_from, documents), key=lambda offer: offer.client.index))

    def terms_of(self, version: int, offers: tuple[Offer, ...]) -> JobTerms:
        """The job's terms in this version: from the plan, if there is one."""
        plan = next((entry.document for entry in self.plans if entry.key == str(version)), {})
        return job_terms_from(plan["terms"]) if "terms" in plan else offers[0].job

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
        passed = {name for name, entry in self.auditions.items() if entry.document["passed"] is True}
        return Agreement(agreement.terms, tuple(offer for offer in agreement.offers if offer.client.name in passed))

    @cached_property
    def asked(self) -> Counter[str]:
        """Number of rounds in which each client was asked for a report; a round without a list asked all clients."""
        listed = Counter(client for entry in self.rounds for client in entry.document.get("asked", ()))
        all_asked = sum("asked" not in entry.document for entry in self.rounds)
        listed.update(dict.fromkeys(self._names_taking_part, all_asked))
        return +listed  # without zeros

    @cached_property
    def delivered(self) -> Counter[str]:
        """Number of rounds in which each client's report was taken."""
        return self.asked - Counter(client for entry in self.rounds for client in entry.document["missing"])

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

    @cached_property
    def valid_commands(self) -> list[tuple[Entry, Command]]:
        """The operator's well-formed and signed commands, each with its entry."""
        operator_key = "" if self.job is None else str(self.job.document.get("operator_key"))
        return valid_commands(self.commands, self.name, operator_key)

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
    view = JobView(name)
    for entry in entries:
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


def _accepts(entry: Entry) -> bool:
    answer = entry.document.get("document")
    return isinstance(answer, dict) and answer.get("kind") == "acceptance"
