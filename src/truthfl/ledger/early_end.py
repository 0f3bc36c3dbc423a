"""By which loss people are paid if rounds did not change the model or the model is lost; commands in a receipt.

Computing is paid by the share of all rounds of the contract that she delivered. So that nobody loses by rounds that did
not take place, or could not change the model, what so few rounds do on the pilot is added to the expected loss of an
audition, and taken off the tested loss under other contracts. Under a contract that does not say how much that is, the
tested loss of a job that was ended counts only where it is below the expected one. Where the model is lost nobody knows
its loss, and the expected one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import coded, english
from truthfl.ledger.canonical import Document
from truthfl.ledger.command_state import REMOVED
from truthfl.ledger.commands import END, REFUSE, REMOVE, command_fault
from truthfl.ledger.holds import refusal_of

if TYPE_CHECKING:
    from truthfl.ledger.entry import Entry
    from truthfl.ledger.job_view import JobView
    from truthfl.ledger.solo_evidence import SoloEvidence
    from truthfl.ledger.terms import Offer

IN_WORDS = (
    "The operator may end the job early, or remove a participant, by a signed command that is in her receipt; rounds "
    "of the contract that then do not take place, or without her, are not delivered, and "
)
IF_LOST = (
    " If the server loses the model, and not everybody is there whose reports it was made of, the operator may end the "
    "job by such a command, and the expected loss counts."
)
BY_ROUNDS = (
    "the expected loss is higher by loss_by_rounds for those that did not take place or did not change the model."
    + IF_LOST
)
BY_LOWER_LOSS = (
    "test_loss counts as lower by loss_by_rounds, down to 0, for those that did not take place or did not change the "
    "model." + IF_LOST
)
BY_EXPECTED_LOSS = "if the job was ended, the lower of test_loss and expected_loss counts." + IF_LOST


def early_end_in_words(loss_by_rounds: Sequence[float], *, audition: bool) -> str:
    """The rule, for an offer with these losses by rounds, with an audition or without."""
    return IN_WORDS + ((BY_ROUNDS if audition else BY_LOWER_LOSS) if loss_by_rounds else BY_EXPECTED_LOSS)


def counted_loss(
    offer: Offer,
    test_loss: float,
    rise: float = 0.0,
    *,
    ended: bool,
    lost: bool = False,
    evidence: SoloEvidence | None = None,
) -> float:
    """The loss by which she is paid: the tested one or, as above, a lower or the expected one.

    rise      of the expected loss, because rounds did not change the model
    lost      whether the model is lost
    evidence  of her audition; None without one
    """
    if lost:
        return offer.job.expected_loss if evidence is None else _expected_joint_loss(offer, evidence)
    if not offer.job.loss_by_rounds:
        return min(test_loss, offer.job.expected_loss) if ended else test_loss
    return test_loss if offer.job.has_audition else max(test_loss - rise, min(test_loss, 0.0))


def loss_in_receipt(document: Document, offer: Offer, evidence: SoloEvidence | None) -> float:
    """The counted loss of a receipt; `evidence` as in `counted_loss`."""
    rise = float(document["settlement"].get("loss_rise", 0.0))
    tested, ended, lost = float(document["test"]["loss"]), was_ended(document), lost_round(document) is not None
    return counted_loss(offer, tested, rise, ended=ended, lost=lost, evidence=evidence)


def _expected_joint_loss(offer: Offer, evidence: SoloEvidence) -> float:
    from truthfl.ledger.solo_evidence import audition_of, observation_of

    observed = observation_of(offer.job.expected_loss, None, None, evidence)
    return float(audition_of(offer).expected_joint_loss(observed)[0])


def receipt_commands(offer: Offer, view: JobView, before: int) -> list[Entry]:
    """The commands that belong in her receipt: those that ended the job, removed her, or refused her solo model.

    before   the sequence number of her settlement; later commands change nothing
    """
    refused = refusal_of(view, offer.client.name)
    removals = [
        entry
        for entry, command in view.valid_commands
        if command.kind == REMOVE and command.fields["client"] == offer.client.name and entry.sequence < before
    ]
    end = view.end_command
    return [
        *removals[:1],
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
    """The number of rounds of a job that was ended: that of the last round, whose link its receipt has; 0 for none."""
    links = document["proof"]["links"]
    rounds = [link["key"] for link in links if (link["job"], link["kind"]) == (document["job"], "round")]
    return max(map(int, rounds), default=0)


def lost_part(ended: Entry | None) -> dict[str, Any]:
    """The field `lost` of a receipt: the row that the job ended and its model is lost; no field if it is not."""
    return {"lost": ended.document} if ended is not None and "lost" in ended.document else {}


def lost_round(document: Document) -> int | None:
    """The first round that could not be repeated, so that the model of a receipt's job is lost; None if it is not."""
    return int(document["lost"]["lost"]) if "lost" in document else None


def lost_fault(document: Document) -> str | None:
    """The fault of a receipt's word that the model is lost; None if the job was ended, and it counts its rounds."""
    if "lost" not in document:
        return None
    row = document["lost"]
    sound = isinstance(row, Mapping) and set(row) == {"rounds", "asked", "lost"}
    sound = sound and type(row["rounds"]) is int and type(row["lost"]) is int
    if not sound or not 1 <= row["lost"] <= row["rounds"] or row["rounds"] != trained_rounds(document):
        return coded("fault.lost_rounds", "it says that the model is lost, and not in which of its rounds")
    if not was_ended(document):
        return coded("fault.lost_unsigned", "it says that the model is lost, and has no signed command to end the job")
    return None


def commands_fault(document: Document, offer: Offer) -> str | None:
    """The first fault of a receipt's commands; None if they are the operator's, about her, and explain her rounds."""
    commands = document.get("commands", {})
    if not isinstance(commands, Mapping) or ("commands" in document and not commands):
        return coded("fault.no_commands", "its commands are none")
    kinds = []
    for one in commands.values():
        fault = command_fault(one, offer.job.name, offer.job.operator_key)
        if fault is not None:
            return coded("fault.command", "a command in it does not hold: {fault}", fault=english(fault))
        kinds.append(one["document"]["kind"])
        if (
            kinds[-1] not in (END, REMOVE, REFUSE)
            or one["document"].get("client", offer.client.name) != offer.client.name
        ):
            return coded("fault.command_other", "it has a command that does not concern her pay")
    if len(set(kinds)) != len(kinds):
        return coded("fault.commands_twice", "it has two commands of the same kind")
    removed = any(str(one.get("reason", "")).startswith(REMOVED) for one in document.get("rounds", ()))
    if removed and REMOVE not in kinds:
        return coded("fault.removed_unsigned", "it says that you were removed, and has no signed command for it")
    if END in kinds and "lost" not in document and trained_rounds(document) >= offer.job.rounds:
        return coded("fault.ended_complete", "it has a command that ended the job, and all of its rounds")
    return lost_fault(document)
