"""Checks of a job's rounds, of the final model that the clients signed for, and of its test.

Each function yields the faults of one job.
"""

from __future__ import annotations

from collections.abc import Iterator

from truthfl.ledger.chain import Fault, fault_at
from truthfl.ledger.commitment import commitment
from truthfl.ledger.documents import final_fault
from truthfl.ledger.job_view import JobView
from truthfl.ledger.terms import Offer


def round_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the rounds: their numbers, who was asked and is counted, and the models from which each started."""
    yield from _start_faults(view)
    names = {offer.client.name for offer in _offers_in_force(view)}
    taking_part = set() if view.taking_part is None else {offer.client.name for offer in view.taking_part.offers}
    previous: str | None = None
    for number, entry in enumerate(view.rounds, start=1):
        document = entry.document
        if (document["round"], entry.key) != (number, str(number)):
            yield fault_at(entry, f"it is where round {number} should be")
        asked, missing = list(view.asked_in(entry)), list(document["missing"])
        if not set(asked) <= names or len(set(asked)) != len(asked):
            yield fault_at(entry, "clients were asked who have no contract, or twice")
        elif not set(asked) <= taking_part:
            yield fault_at(entry, "clients were asked who did not pass the audition")
        if len(set(missing)) != len(missing) or not set(missing) <= set(asked):
            yield fault_at(entry, "clients are missing who were not asked, or twice")
        if previous is not None and document["previous"] != previous:
            yield fault_at(entry, "it starts from another model than the one after the round before")
        previous = document["model"]


def _start_faults(view: JobView) -> Iterator[Fault]:
    for number, entry in enumerate(view.starts):
        if (entry.document["start"], entry.key) != (number, str(number)):
            yield fault_at(entry, f"it is where start {number} of the server should be")


def final_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the clients' word that they know the final model: it comes before the test, or is noted as missing."""
    in_force = {offer.client.name: offer for offer in _offers_in_force(view)}
    last = view.last_model
    for name, entry in view.finals.items():
        if name not in in_force:
            yield fault_at(entry, "she has no contract")
            continue
        fault = final_fault(entry.document, in_force[name])
        if fault is not None:
            yield fault_at(entry, fault)
        elif last is not None and entry.document["document"]["model"] != last:
            yield fault_at(entry, "it is of another model than the last round's")
        elif view.test is not None and entry.sequence > view.test.sequence:
            yield fault_at(entry, "it comes after the test")
    if view.test is None:
        return
    absent = {entry.document["client"] for entry in view.rejections if entry.document["stage"] == "final"}
    for name in in_force:
        if name not in view.finals and name not in absent:
            yield fault_at(view.test, f"{name} was not told the final model before it")


def test_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the test: its place, its model, and what the server had committed itself to."""
    if view.test is None:
        return
    document = view.test.document
    if not view.finished or view.agreement is None:
        yield fault_at(view.test, "it comes before all rounds are there")
        return
    if view.rounds and document["model"] != view.last_model:
        yield fault_at(view.test, "another model was tested than the last round's")
    signed_for = {entry.document["document"]["model"] for entry in view.finals.values()}
    if not signed_for <= {document["model"]}:
        yield fault_at(view.test, "another model was tested than the one that the clients signed for")
    if commitment(document["test_set"], document["samples"], document["secret"]) != view.agreement.terms.commitment:
        yield fault_at(view.test, "test set, number of draws and secret are not those committed to")


def _offers_in_force(view: JobView) -> tuple[Offer, ...]:
    return () if view.agreement is None else view.agreement.offers
