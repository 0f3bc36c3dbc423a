"""A row of the ledger in one line of text, and for whom a round waits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from truthfl.amounts import amount_text, minor_money
from truthfl.federation.operator.live_status import RoundWaits
from truthfl.ledger.entry import Entry
from truthfl.ledger.held_models import known_model
from truthfl.ledger.job_state import UNREADABLE
from truthfl.ledger.job_view import lost_in_words
from truthfl.ledger.terms import JobTerms, offer_from
from truthfl.texts import plain

NAMES_TOLD = 5  # named in a sentence


def _missing(names: list[str]) -> str:
    """How many of the clients asked are missing in a round."""
    return f"{len(names)} missing" if names else "all reports"


def waits_words(waits: RoundWaits) -> str:
    """The clients for whom a round waits."""
    names, more = waits.names[:NAMES_TOLD], len(waits.names) - NAMES_TOLD
    return f"round {waits.round:,} waits for {', '.join(names)}{f' and {more:,} more' if more > 0 else ''}"


def describe_command(document: Mapping[str, Any]) -> str:
    """One line about a command of the operator's, which may not be well-formed."""
    inner = document.get("document")
    told = inner if isinstance(inner, Mapping) else {}
    about = " ".join(str(told[name]) for name in ("client", "stage", "name") if name in told)
    until = f" until {told['until']}" if "until" in told else ""
    why = f": {told['why']}" if told.get("why") else ""
    return f"command of {told.get('by')}: {told.get('kind')}{f' {about}' if about else ''}{until}{why}"


def describe_hold(document: Mapping[str, Any]) -> str:
    """One line about a solo model that is held."""
    name, known = document["client"], document["known"]
    if known is not None:
        like = f"{known_model(known)} (likeness {known['likeness']:.2f})"
        return f"{name}: the solo model is nearly {like}; it is not paid"
    better = f"{name}: the solo loss of {document['solo_loss']:.4f} is far better than honest ones usually are"
    return f"{better}; truthfl accept {name}, or truthfl refuse {name}"


def describe_entry(entry: Entry, terms: JobTerms | None) -> str | None:
    """Return one line about this entry, or None for kinds that are not shown.

    terms   the job's terms, which define the minor unit; None before there are any
    """
    document = entry.document
    if entry.kind == "enrolment":
        return f"{document['name']} is there with {document['samples']} samples"
    if entry.kind == "plan":
        worth = document.get("worth")
        of_work = f", each client's work worth {min(worth):,.0f} to {max(worth):,.0f}" if worth else ""
        return f"planned: step size {document['step_size']:.3g}, expected loss {document['expected_loss']:.4f}{of_work}"
    if entry.kind == "offer":
        offer = offer_from(document)
        return (
            f"offer to {offer.client.name}: {offer.client.samples} labels, batches of {offer.client.batch_size}, "
            f"expected pay {amount_text(offer.expected_pay, offer.job.minor_units)} {offer.job.currency}"
        )
    if entry.kind == "answer":
        answer = document["document"]
        return f"{answer['client']} {'accepts' if answer['kind'] == 'acceptance' else 'declines'}"
    if entry.kind == "audition":
        loss = "no solo model" if document["solo_loss"] is None else f"solo loss {document['solo_loss']:.4f}"
        stopped = "" if document["passed"] else "; they take no part in the rounds"
        return f"{document['client']}: {loss}{stopped}"
    if entry.kind == "hold":
        return describe_hold(document)
    if entry.kind == "round":
        loss = f", loss {document['loss']:.4f}, accuracy {document['accuracy']:.1%}" if "loss" in document else ""
        skipped = f"; the model stays as it was: {document['refused']}" if document.get("refused") else ""
        return f"round {document['round']}: {_missing(document['missing'])}{loss}{skipped}"
    if entry.kind == "admission":
        return f"{document['client']} was admitted by invitation"
    if entry.kind == "command":
        return describe_command(document)
    if entry.kind == "ended":
        lost = f"; the model is lost, for {lost_in_words(document['lost'])}" if "lost" in document else ""
        return f"the operator ended the job after {document['rounds']} rounds{lost}"
    if entry.kind == "rejection":
        stage = f"round {document['round']}" if document["round"] is not None else document["stage"]
        who = document["client"] or document["node"]
        return f"{stage}{'' if who is None else f': {who}'} refused: {document['reason']}"
    if entry.kind == "test":
        accuracy = "" if document["accuracy"] is None else f", accuracy {document['accuracy']:.1%}"
        return f"test loss {document['loss']:.4f}{accuracy}"
    if entry.kind == "settlement":
        rounds = f"{document['delivered']} of {document['asked']} rounds"
        units, currency = (1, "") if terms is None else (terms.minor_units, terms.currency)
        return f"{document['client']} is paid {minor_money(document['pay'], units, currency).strip()} for {rounds}"
    return None


def describe_row(entry: Entry, terms: JobTerms | None) -> str:
    """Return one line about this entry, whatever its kind; `terms` as in `describe_entry`."""
    return describe_entry(entry, terms) or _describe_other(entry, terms)


def _describe_other(entry: Entry, terms: JobTerms | None) -> str:
    """One line about an entry of a kind that the terminal does not show."""
    document = entry.document
    if entry.kind == "job":
        return f"the job begins, with {len(document['job']['clients']['name'])} clients"
    if entry.kind == "commitment":
        return f"{document['client']} has trained alone and committed to the model"
    if entry.kind == "start":
        return f"training {'begins' if document['start'] == 0 else 'goes on'} at round {document['round']}"
    if entry.kind == "final":
        return f"{document['document']['client']} signs that the final model's digest arrived"
    if entry.kind == "receipt":
        return f"the receipt of {document['client']} is signed"
    if entry.kind == "acknowledgement":
        return f"{document['client']} has the receipt"
    if entry.kind == "payment":
        units = 1 if terms is None else terms.minor_units
        amount = minor_money(document["amount"], units, document["currency"])
        return f"payment of {document['client']}: {amount}, {document['state']}"
    return f"{entry.kind} {entry.key}"


@dataclass(frozen=True)
class LedgerRow:
    """A row of the ledger in words."""

    sequence: int
    at: str
    kind: str
    words: str


def ledger_row(entry: Entry, terms: JobTerms | None, *, readable: bool) -> LedgerRow:
    """The row in words; `readable` as the job's state has found it."""
    words = "not written by truthfl; truthfl ledger check says more"
    if readable:
        with suppress(*UNREADABLE):
            words = describe_row(entry, terms)
    return LedgerRow(entry.sequence, entry.at, plain(entry.kind), plain(words))
