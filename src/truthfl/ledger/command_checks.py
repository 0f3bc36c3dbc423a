"""Checks of the operator's commands in a ledger, of admissions by invitation, and of jobs that were ended."""

from __future__ import annotations

from collections.abc import Iterator

from truthfl.ledger.chain import Fault, fault_at
from truthfl.ledger.commands import END, INVITE, Command, code_digest, next_fault, read_command
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView
from truthfl.texts import LONGEST_NAME, is_plain


def command_faults(view: JobView) -> Iterator[Fault]:
    """Faults of commands: their numbers, their form, and whether the job's operator signed them."""
    operator_key = "" if view.job is None else str(view.job.document["operator_key"])
    last: Command | None = None
    for number, entry in enumerate(view.commands, start=1):
        if entry.key != str(number):
            yield fault_at(entry, f"it is where command {number} should be")
        fault = next_fault(entry.document, view.name, operator_key, last)
        if fault is not None:
            yield fault_at(entry, fault)
        else:
            last = read_command(entry.document)


def admission_faults(view: JobView) -> Iterator[Fault]:
    """Faults of admissions."""
    for entry in view.admissions.values():
        fault = admission_fault(view, entry)
        if fault is not None:
            yield fault_at(entry, fault)


def admission_fault(view: JobView, entry: Entry) -> str | None:
    """What is wrong with an admission; None if an invitation of the operator's is before it, whose code it has."""
    document = entry.document
    if set(document) != {"client", "public_key", "invitation", "code"}:
        return "it does not have the parts of an admission"
    invited = (
        row.sequence
        for row, command in view.valid_commands
        if command.kind == INVITE
        and (command.fields["name"], command.fields["code_digest"]) == (document["client"], entry.key)
    )
    if next(invited, entry.sequence) >= entry.sequence:
        return "the operator did not invite her before it"
    code = document["code"]
    if not is_plain(code, LONGEST_NAME) or code_digest(code) != entry.key or document["invitation"] != entry.key:
        return "its code is not that of the invitation"
    return None


def end_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the entry that a job ended early: a command is before it, no round after it, and it counts them all."""
    if view.ended is None:
        return
    if not _is_commanded(view, view.ended):
        yield fault_at(view.ended, "the operator gave no command to end the job before it")
    document, later = view.ended.document, [entry for entry in view.rounds if entry.sequence > view.ended.sequence]
    if later:
        yield fault_at(later[0], "it comes after the job was ended")
    if set(document) - {"lost"} != {"rounds", "asked"} or document["rounds"] != len(view.rounds):
        yield fault_at(view.ended, "it does not have the parts of an ended job, or counts other rounds")
        return
    if view.taking_part is None:
        if view.agreement is not None or view.rounds or document["asked"]:
            yield fault_at(view.ended, "it comes before it is known who takes part")
        return
    terms, lost = view.taking_part.terms, "lost" in document
    if lost and not _is_round_with_change(view, document["lost"]):
        yield fault_at(view.ended, "it says that the model is lost, and not in which round")
        return
    if terms.rounds <= len(view.rounds) and not lost:
        yield fault_at(view.ended, "all rounds of the contract are there")
    sometimes = {offer.client.name for offer in view.taking_part.offers if offer.client.participation < 1}
    if set(document["asked"]) != sometimes:
        yield fault_at(view.ended, "it counts rounds of others than those who are asked in some")
        return
    for name, asked in document["asked"].items():
        most = view.asked[name] + terms.rounds - len(view.rounds)
        if type(asked) is not int or not view.asked[name] <= asked <= most:
            yield fault_at(view.ended, f"its {asked} rounds of {name} are not from {view.asked[name]} to {most}")


def _is_round_with_change(view: JobView, number: object) -> bool:
    if type(number) is not int or not 1 <= number <= len(view.rounds):
        return False
    document = view.rounds[number - 1].document
    return bool(document["model"] != document["previous"])


def _is_commanded(view: JobView, ended: Entry) -> bool:
    return any(command.kind == END and entry.sequence < ended.sequence for entry, command in view.valid_commands)
