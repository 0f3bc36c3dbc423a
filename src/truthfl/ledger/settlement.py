"""Settlement of a job: each client's pay is computed from the ledger and written into it once.

One transaction writes all settlements and opens the payments. Calling it again changes nothing: entries have unique
keys, and their content depends only on earlier entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truthfl.errors import InputError
from truthfl.ledger.early_end import counted_loss
from truthfl.ledger.entry import Entry, Item
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.payments import due_items
from truthfl.ledger.solo_evidence import SoloEvidence, label_and_computing_pay, passes
from truthfl.ledger.terms import Offer

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger


@dataclass(frozen=True)
class Settled:
    """One client's settlement.

    delivered, asked   number of rounds in which she sent a report, and was asked for one; in a job that was ended,
                       asked counts the rounds of the contract that did not take place too
    amount             in the job's currency, before rounding
    pay                in whole minor units

    loss_rise          of the expected loss, because rounds did not change the model; None if the terms have no losses
                       by rounds

    With an audition, and None without:

    solo_loss, level_shift, present_labels   as in `SoloEvidence`
    passed                     whether she took part in the joint training
    label_pay, computing_pay   the two parts of the amount
    """

    client: str
    delivered: int
    asked: int
    amount: float
    pay: int
    solo_loss: float | None = None
    level_shift: float | None = None
    present_labels: float | None = None
    loss_rise: float | None = None
    passed: bool | None = None
    label_pay: float | None = None
    computing_pay: float | None = None


OF_AUDITION = ("solo_loss", "level_shift", "present_labels", "passed", "label_pay", "computing_pay")


def settled_for(
    offer: Offer,
    test_loss: float,
    delivered: int,
    asked: int,
    evidence: SoloEvidence | None = None,
    rise: float = 0.0,
) -> Settled:
    """The settlement of this offer for this loss, these numbers of rounds and this evidence of an audition.

    test_loss  that counts, as in `counted_loss`
    rise       that it was counted with
    """
    pay, loss_rise = offer.pay(test_loss, delivered, asked, evidence), rise if offer.job.loss_by_rounds else None
    if evidence is None:
        amount = offer.amount(test_loss, delivered, asked)
        return Settled(offer.client.name, delivered, asked, amount, pay, loss_rise=loss_rise)
    label_pay, computing_pay = label_and_computing_pay(offer, test_loss, delivered, asked, evidence)
    return Settled(
        client=offer.client.name,
        delivered=delivered,
        asked=asked,
        amount=offer.amount(test_loss, delivered, asked, evidence),
        pay=pay,
        solo_loss=evidence.solo_loss,
        level_shift=evidence.level_shift,
        present_labels=evidence.present_labels,
        loss_rise=loss_rise,
        passed=passes(offer, evidence.solo_loss, evidence.level_shift),
        label_pay=label_pay,
        computing_pay=computing_pay,
    )


def settled_from_entries(offer: Offer, view: JobView) -> Settled:
    """The settlement of this offer, for the test loss and the rounds in the ledger."""
    if view.test is None or not view.finished:
        raise InputError(f"job {view.name} has not been trained and tested yet; it cannot be settled.")
    name = offer.client.name
    tested, ended, lost = float(view.test.document["loss"]), view.ended is not None, view.lost_round is not None
    evidence = evidence_of(offer, view) if offer.job.has_audition else None
    loss = counted_loss(offer, tested, view.loss_rise, ended=ended, lost=lost, evidence=evidence)
    return settled_for(offer, loss, view.delivered[name], view.asked_by_contract[name], evidence, view.loss_rise)


def evidence_of(offer: Offer, view: JobView) -> SoloEvidence:
    """The evidence of her audition and of the rounds in the ledger."""
    recorded = view.auditions[offer.client.name].document
    return SoloEvidence(recorded["solo_loss"], recorded["level_shift"], view.present_labels(offer), view.loss_rise)


def settlement_document(settled: Settled) -> dict[str, Any]:
    """The settlement as ledger document, without what is None because the terms have no audition, or no such losses."""
    left_out = set() if settled.passed is not None else set(OF_AUDITION)
    left_out |= {"loss_rise"} if settled.loss_rise is None else set()
    return {name: value for name, value in vars(settled).items() if name not in left_out}


def settle(ledger: Ledger, job: str) -> list[Settled]:
    """Compute the settlements of all clients, and write them unless they are written already."""
    view = job_view(job, ledger.entries(job))
    agreement = view.agreement
    if agreement is None and view.ended is not None:
        raise InputError(f"job {job} was ended by the operator before there was a contract; nobody is paid.")
    if agreement is None:
        raise InputError(f"job {job} has no contract yet; it cannot be settled.")
    settlements = [settled_from_entries(offer, view) for offer in agreement.offers]
    items = [Item(job, "settlement", settled.client, settlement_document(settled)) for settled in settlements]
    opened = {entry.key for entry in view.payments}
    amounts = {one.client: one.pay for one in settlements if f"{one.client}/0" not in opened}
    due = due_items(job, amounts, agreement.terms.currency)
    ledger.append_all([*items, *due])
    return settlements


def read_settlement(entry: Entry) -> Settled:
    """The settlement in this entry."""
    return Settled(**entry.document)
