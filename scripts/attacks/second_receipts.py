"""An operator who signs two receipts of one job, each of which holds by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attacks.finished_job import FinishedJob, chained_anew
from attacks.outcomes import Outcome, outcome
from truthfl.home import participant_folder
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import receipt_fault, signed_receipt
from truthfl.ledger.settlement import settled_from_entries, settlement_document
from truthfl.ledger.signing import read_key
from truthfl.page.receipt_check import own_receipt_fault

LOSS_MORE = 0.05


def second_valid_receipt(job: FinishedJob, attack: str) -> Outcome:
    """Rewrite the chain with a higher test loss, and pay by the formula: only the first receipt contradicts it."""
    job.copy(attack)
    home = job.folder.with_name(attack) / "participants" / "Cleo"
    first, second = job.receipt("Cleo"), _of_another_loss(job)
    alone = receipt_fault(second)
    participant_folder.put_receipt(home, second, second["document"]["job"])
    kept = participant_folder.receipts(home)
    pays = [one["document"]["settlement"]["pay"] for one in kept]
    shouts = [own_receipt_fault(home, one, None) or "" for one in kept]
    held = kept == [first, second] and pays[0] != pays[1] and all("DIFFERENT RECEIPTS" in one for one in shouts)
    by_itself = "holds by itself" if alone is None else f"does not hold: {alone}"
    return outcome(
        attack,
        held and alone is None,
        f"receipts of {pays[0]} and {pays[-1]}, the second {by_itself}; both are kept, and Cleo is told: {shouts[-1]}",
    )


def _of_another_loss(job: FinishedJob) -> dict[str, Any]:
    """Cleo's receipt from a chain with another test loss and the settlements that follow from it."""

    def worse(document: dict[str, Any], entry: Entry) -> None:
        if entry.kind == "test":
            document["loss"] += LOSS_MORE

    tested = chained_anew(job.entries, worse, key=job.key)
    view = job_view(tested[0].job, tested)
    offers = {offer.client.name: offer for offer in view.agreement.offers} if view.agreement else {}

    def settled(document: dict[str, Any], entry: Entry) -> None:
        if entry.kind == "settlement":
            offer = offers[entry.key]
            document.update(settlement_document(settled_from_entries(offer, view)))

    anew = chained_anew(tested, settled, key=job.key)
    return signed_receipt(offers["Cleo"], job_view(view.name, anew), anew, read_key(job.operator_key))


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "receipt-second-valid": (
        "the operator signs a second receipt of another amount, which holds by itself",
        second_valid_receipt,
    ),
}
