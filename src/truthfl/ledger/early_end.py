"""Pay of a job that the operator ended before all rounds, and the operator's commands in a receipt.

Computing is paid by the share of all rounds of the contract that she delivered. So that nobody loses by the operator's
decision, the expected loss is higher by what so few rounds do on the pilot; under a contract that does not say what,
the tested loss counts only where it is below the expected one.
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
    from truthfl.ledger.terms import Offer

IN_WORDS = (
    "The operator may end the job early, or remove a participant, by a signed command that is in her receipt; rounds "
    "of the contract that then do not take place, or without her, are not delivered, and "
)
BY_ROUNDS = "the expected loss is higher by loss_by_rounds for those that did not take place."
BY_EXPECTED_LOSS = "if the job was ended, the lower of test_loss and expected_loss counts."


def early_end_in_words(loss_by_rounds: Sequence[float]) -> str:
    """The rule, for an offer with these losses by rounds."""
    return IN_WORDS + (BY_ROUNDS if loss_by_rounds else BY_EXPECTED_LOSS)


def counted_loss(offer: Offer, test_loss: float, *, ended: bool) -> float:
    """The loss by which she is paid: the tested one or, as above, the expected one."""
    return min(test_loss, offer.job.expected_loss) if ended and not offer.job.loss_by_rounds else test_loss


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
    if END in kinds and trained_rounds(document) >= offer.job.rounds:
        return coded("fault.ended_complete", "it has a command that ended the job, and all of its rounds")
    return None
