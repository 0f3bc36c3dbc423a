"""Settlement of a job: each participant's pay is computed from the ledger and written to it once.

Computing is paid by the share of all the contract's rounds that the participant delivered. Nobody shall lose by rounds
that did not take place or could not change the model. So the pilot's rise of the loss for so few rounds is added to the
expected loss if the contract's formula has it, and subtracted from the tested loss under other contracts. If a contract
does not state this rise, the tested loss of an ended job counts only where it is below the expected one. If the model
is lost, nobody knows its loss, and the expected one counts.

One transaction writes all settlements and opens the payments. A repetition changes nothing: entries have unique keys,
and their content depends only on earlier entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import coded, untranslated
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.commands import END, REFUSE, REMOVE, REMOVED, command_fault
from truthfl.ledger.entry import Entry, Item
from truthfl.ledger.evidence import SoloEvidence, observation_of, passes, pay_parts
from truthfl.ledger.held_models import refusal_of
from truthfl.ledger.job_view import LOST_START, JobView, job_view
from truthfl.ledger.payments import due_items
from truthfl.ledger.terms import Offer

if TYPE_CHECKING:
    from truthfl.contracts.contract import Contract
    from truthfl.ledger.book import Ledger


IN_WORDS = (
    "The operator may end the job early, or remove a participant, by a signed command that is in the participant's "
    "receipt. Rounds of the contract that then do not take place, or take place without the participant, count as not "
    "delivered"
)
IF_LOST = (
    " If the server loses the model, and some of the participants who helped to make it are gone, the operator may "
    "end the job by such a command"
)
EXPECTED_COUNTS = "; then the expected loss counts."
BY_REPORTS = f"{IN_WORDS}.{IF_LOST}."
BY_ROUNDS = (
    f"{IN_WORDS}, and the expected loss is higher by loss_by_rounds for those that did not take place or did not "
    f"change the model.{IF_LOST}{EXPECTED_COUNTS}"
)
BY_LOWER_LOSS = (
    f"{IN_WORDS}, and test_loss counts as lower by loss_by_rounds, down to 0, for those that did not take place or did "
    f"not change the model.{IF_LOST}{EXPECTED_COUNTS}"
)
BY_EXPECTED_LOSS = (
    f"{IN_WORDS}, and if the job was ended, the lower of test_loss and expected_loss counts.{IF_LOST}{EXPECTED_COUNTS}"
)


def early_end_in_words(contract: type[Contract], loss_by_rounds: Sequence[float]) -> str:
    """The rule, for an offer of this contract with these losses by rounds."""
    if not contract.pays_by_joint_loss:
        return BY_REPORTS
    if not loss_by_rounds:
        return BY_EXPECTED_LOSS
    return BY_ROUNDS if contract.counts_loss_rise else BY_LOWER_LOSS


def counted_loss(
    offer: Offer,
    test_loss: float,
    rise: float = 0.0,
    *,
    ended: bool,
    lost: bool = False,
    evidence: SoloEvidence | None = None,
) -> float:
    """The loss that determines pay: the tested one or, as above, a lower or the expected one.

    rise      of the expected loss, due to rounds that did not change the model
    lost      whether the model is lost
    evidence  of the audition; None without one
    """
    if lost:
        return _expected_joint_loss(offer, evidence)
    if not offer.job.loss_by_rounds:
        return min(test_loss, offer.job.expected_loss) if ended else test_loss
    return test_loss if offer.contract.counts_loss_rise else max(test_loss - rise, min(test_loss, 0.0))


def loss_in_receipt(document: Document, offer: Offer, evidence: SoloEvidence | None) -> float:
    """The counted loss of a receipt; `evidence` as in `counted_loss`."""
    rise = float(document["settlement"].get("loss_rise", 0.0))
    tested, ended, lost = float(document["test"]["loss"]), was_ended(document), lost_round(document) is not None
    return counted_loss(offer, tested, rise, ended=ended, lost=lost, evidence=evidence)


def _expected_joint_loss(offer: Offer, evidence: SoloEvidence | None) -> float:
    """The contract's expected loss for the actual participants, or the offer's if it does not depend on them."""
    expected = offer.contract.expected_joint_loss(observation_of(offer.job.expected_loss, None, None, evidence))
    return offer.job.expected_loss if expected is None or evidence is None else float(expected[0])


def receipt_commands(offer: Offer, view: JobView, before: int) -> list[Entry]:
    """The commands in a client's receipt: those that ended the job, removed the client, or refused the solo model.

    before   the sequence number of the settlement; later commands change nothing
    """
    refused = refusal_of(view, offer.client.name)
    removal, end = view.state.removals.get(offer.client.name), view.end_command
    return [
        *([removal] if removal is not None and removal.sequence < before else []),
        *([] if refused is None else [refused]),
        *([end] if end is not None and end.sequence < before else []),
    ]


def commands_part(entries: Sequence[Entry]) -> dict[str, Any]:
    """The field `commands` of a receipt: signed commands by the keys of their entries; no field if there are none."""
    return {"commands": {entry.key: entry.document for entry in entries}} if entries else {}


def was_ended(document: Document) -> bool:
    """Whether a receipt says that the operator ended the job."""
    return any(one["document"]["kind"] == END for one in document.get("commands", {}).values())


def trained_rounds(document: Document) -> int:
    """The number of rounds of an ended job, from the last round, whose link its receipt has; 0 for none."""
    links = document["proof"]["links"]
    rounds = [link["key"] for link in links if (link["job"], link["kind"]) == (document["job"], "round")]
    return max(map(int, rounds), default=0)


def lost_part(ended: Entry | None) -> dict[str, Any]:
    """The field `lost` of a receipt: the row that ended the job with a lost model; no field otherwise."""
    return {"lost": ended.document} if ended is not None and "lost" in ended.document else {}


def lost_round(document: Document) -> int | None:
    """As `JobView.lost_round`, by a receipt."""
    return int(document["lost"]["lost"]) if "lost" in document else None


def lost_fault(document: Document, offer: Offer) -> str | None:
    """The fault of a receipt's field `lost`; None if the job was ended and the field counts its rounds."""
    if "lost" not in document:
        return None
    row = document["lost"]
    sound = isinstance(row, Mapping) and set(row) == {"rounds", "asked", "lost"}
    sound = sound and type(row["rounds"]) is int and type(row["lost"]) is int
    first = LOST_START if offer.job.starts_from_solo_models else 1
    if not sound or not first <= row["lost"] <= row["rounds"] or row["rounds"] != trained_rounds(document):
        return coded("fault.lost_rounds", "it says that the model is lost, and not in which of its rounds")
    if not was_ended(document):
        return coded("fault.lost_unsigned", "it says that the model is lost, and has no signed command to end the job")
    return None


def commands_fault(document: Document, offer: Offer) -> str | None:
    """The first fault of a receipt's commands; None if the operator gave them, and they fit client and rounds."""
    commands = document.get("commands", {})
    if not isinstance(commands, Mapping) or ("commands" in document and not commands):
        return coded("fault.no_commands", "its commands are none")
    kinds = []
    for one in commands.values():
        fault = command_fault(one, offer.job.name, offer.job.operator_key)
        if fault is not None:
            return coded("fault.command", "a command in it does not hold: {fault}", fault=untranslated(fault))
        kinds.append(one["document"]["kind"])
        if (
            kinds[-1] not in (END, REMOVE, REFUSE)
            or one["document"].get("client", offer.client.name) != offer.client.name
        ):
            return coded("fault.command_other", "it has a command that does not concern the participant's pay")
    if len(set(kinds)) != len(kinds):
        return coded("fault.commands_twice", "it has two commands of the same kind")
    removed = any(str(one.get("reason", "")).startswith(REMOVED) for one in document.get("rounds", ()))
    if removed and REMOVE not in kinds:
        return coded("fault.removed_unsigned", "it says that you were removed, and has no signed command for it")
    if END in kinds and "lost" not in document and trained_rounds(document) >= offer.job.rounds:
        return coded("fault.ended_complete", "it has a command that ended the job, and all of its rounds")
    return lost_fault(document, offer)


@dataclass(frozen=True)
class Settled:
    """One client's settlement.

    delivered, asked   number of rounds in which the client sent a report, and was asked for one; in an ended job,
                       asked also counts the contract's rounds that did not take place
    amount             in the job's currency, before rounding
    pay                in whole minor units

    loss_rise          of the expected loss, as rounds did not change the model; None if the terms have no losses
                       by rounds

    With an audition, and None without:

    solo_loss, level_shift, present_labels   as in `SoloEvidence`
    passed                     whether the client took part in the joint training

    parts              of the amount by name, as in `Contract.parts`; empty if the contract has none
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
    parts: Mapping[str, float] = field(default_factory=dict)


OF_AUDITION = ("solo_loss", "level_shift", "present_labels", "passed")


def settled_for(
    offer: Offer,
    test_loss: float,
    delivered: int,
    asked: int,
    evidence: SoloEvidence | None = None,
    rise: float = 0.0,
) -> Settled:
    """The settlement of this offer for this loss, these numbers of rounds and this evidence of an audition.

    test_loss  the loss that counts, as in `counted_loss`
    rise       the rise with which it was counted
    """
    pay, loss_rise = offer.pay(test_loss, delivered, asked, evidence), rise if offer.job.loss_by_rounds else None
    if evidence is None:
        amount = offer.amount(test_loss, delivered, asked)
        parts = pay_parts(offer, test_loss, delivered, asked, None)
        return Settled(offer.client.name, delivered, asked, amount, pay, loss_rise=loss_rise, parts=parts)
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
        parts=pay_parts(offer, test_loss, delivered, asked, evidence),
    )


def settled_from_entries(offer: Offer, view: JobView) -> Settled:
    """The settlement of this offer, for the test loss and the rounds in the ledger."""
    if view.test is None or not view.finished:
        raise InputError(f"job {view.name} has not been trained and tested yet; it cannot be settled.")
    name = offer.client.name
    tested, ended, lost = float(view.test.document["loss"]), view.ended is not None, view.lost_round is not None
    evidence = evidence_of(offer, view) if offer.job.has_solo_models else None
    loss = counted_loss(offer, tested, view.loss_rise, ended=ended, lost=lost, evidence=evidence)
    return settled_for(offer, loss, view.delivered[name], view.asked_by_contract[name], evidence, view.loss_rise)


def evidence_of(offer: Offer, view: JobView) -> SoloEvidence:
    """The evidence of the client's audition and of the rounds in the ledger."""
    recorded = view.auditions[offer.client.name].document
    return SoloEvidence(recorded["solo_loss"], recorded["level_shift"], view.present_labels(offer), view.loss_rise)


def settlement_document(settled: Settled) -> dict[str, Any]:
    """The settlement as ledger document, with each part of pay under its name.

    Fields that are None because the terms have no audition or no such losses are left out.
    """
    left_out = {"parts"} if settled.passed is not None else {"parts", *OF_AUDITION}
    left_out |= {"loss_rise"} if settled.loss_rise is None else set()
    return {name: value for name, value in vars(settled).items() if name not in left_out} | dict(settled.parts)


def settle(ledger: Ledger, job: str) -> list[Settled]:
    """Compute the settlements of all clients, and write them unless they already exist."""
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
    known = {one.name for one in fields(Settled)}
    parts = {name: value for name, value in entry.document.items() if name not in known}
    return Settled(**{name: value for name, value in entry.document.items() if name in known}, parts=parts)
