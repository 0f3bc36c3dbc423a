"""The participant's check of a receipt: the receipt alone, and against the participant's folder, record and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truthfl.coded_text import coded
from truthfl.home import participant_folder
from truthfl.home.record import record_fault
from truthfl.ledger.receipts import had_no_rounds, receipt_fault
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.terms import offer_from
from truthfl.page.catalogue import overflow_allowed

MOST_ROUNDS = 100_000  # of a job that truthfl runs


def own_receipt_fault(home: Path, receipt: dict[str, Any], key: PrivateKey | None) -> str | None:
    """The first fault of a receipt in the participant's folder `home`; None if it holds.

    key   the participant's, if available
    """

    with overflow_allowed():
        return (
            receipt_fault(receipt)
            or _mismatch(home, receipt, key)
            or asked_rounds_fault(receipt)
            or contradiction(home, receipt)
        )


def contradiction(home: Path, receipt: dict[str, Any]) -> str | None:
    """How a receipt contradicts another receipt, or what the participant's computer sent and signed; None if it does
    not.
    """
    return record_fault(home, receipt["document"]) or _other_receipts(home, receipt)


def _mismatch(home: Path, receipt: dict[str, Any], key: PrivateKey | None) -> str | None:
    """How the receipt's offer differs from the offers in the participant's folder; None if it is one of them."""
    offer = offer_from(receipt["document"]["offer"])
    if participant_folder.read_offer(home, offer.hash) is None:
        return coded("fault.offer_not_here", "its offer is not one in your folder")
    if not participant_folder.has_accepted(home, offer):
        return coded("fault.offer_not_accepted", "its offer is not one that you accepted")
    if key is not None and public_line(key) != offer.client.public_key:
        return coded("fault.offer_other_key", "its offer is to another key than yours")
    return None


def asked_rounds_fault(receipt: dict[str, Any]) -> str | None:
    """How the receipt's rounds differ from those that the job's seed draws for the participant; None if they agree."""
    offer, asked = offer_from(receipt["document"]["offer"]), receipt["document"]["settlement"]["asked"]
    job, client = offer.job, offer.client
    if client.participation == 1 or had_no_rounds(receipt["document"], offer):
        return None
    if receipt["document"]["settlement"].get("passed") is False:
        if asked == 0:
            return None
        words = "it counts {asked} rounds for you, who were stopped at the audition"
        return coded("fault.stopped_rounds", words, asked=asked)
    if job.rounds > MOST_ROUNDS:
        words = "its job has {rounds:,} rounds; truthfl runs none of more than {most:,}"
        return coded("fault.too_many_rounds", words, rounds=job.rounds, most=MOST_ROUNDS)
    from truthfl.learning.training.local_training import takes_part

    drawn = sum(takes_part(job.seed, client.index, round_, client.participation) for round_ in range(job.rounds))
    if asked == drawn:
        return None
    words = "it counts {asked} rounds; the job's seed draws {drawn} for you"
    return coded("fault.drawn_rounds", words, asked=asked, drawn=drawn)


def _other_receipts(home: Path, receipt: dict[str, Any]) -> str | None:
    """That the operator signed different receipts for the same job; None if not."""
    paths = participant_folder.receipt_files(home, str(receipt["document"]["job"]))
    if len(paths) < 2:
        return None
    names = ", ".join(path.name for path in paths)
    words = "YOU WERE SENT {number} DIFFERENT RECEIPTS OF THIS JOB; all of them are in your folder: {names}"
    return coded("fault.two_receipts", words, number=len(paths), names=names)
