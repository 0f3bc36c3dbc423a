"""Files in the operator's folder by which the server asks whether a plan's offers may be sent, and is answered.

The server's terminal and page read its question and write the answer. `truthfl approve`, which may run under another
account, answers by a signed row of the ledger alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from truthfl.federation.protocol.approval import PlanSummary, summary_from
from truthfl.files import write_file
from truthfl.ledger.canonical import canonical_bytes, digest, read_document

FOLDER, QUESTION, ANSWER = "plans", "plan.json", "answer.json"
POLL_SECONDS = 0.25


def show_plan(folder: Path, plan: PlanSummary) -> None:
    """Show the plan to whoever reads `shown_plan`; nobody has answered it yet."""
    (folder / FOLDER / ANSWER).unlink(missing_ok=True)
    write_file(folder / FOLDER / QUESTION, canonical_bytes(plan.document()), private=True)


def ask_by_file(folder: Path, plan: PlanSummary, in_ledger: Callable[[str], bool | None] = lambda _: None) -> bool:
    """Show the plan, and wait for the answer.

    in_ledger  called with the plan's digest: the answer to it that the ledger has; None if there is none
    """
    show_plan(folder, plan)
    place = folder / FOLDER
    while True:
        commanded = in_ledger(digest(plan.document()))
        if commanded is not None:
            return commanded
        try:
            answer = read_document((place / ANSWER).read_bytes())
        except FileNotFoundError:
            time.sleep(POLL_SECONDS)
            continue
        if answer.get("plan") == digest(plan.document()):
            return answer.get("approved") is True
        (place / ANSWER).unlink()


def shown_plan(folder: Path) -> PlanSummary | None:
    """The plan that the server shows; None if there is none."""
    try:
        return summary_from(read_document((folder / FOLDER / QUESTION).read_bytes()))
    except FileNotFoundError:
        return None


def answer_plan(folder: Path, plan: PlanSummary, *, approved: bool) -> None:
    """Write whether the offers of this plan may be sent."""
    answer = {"plan": digest(plan.document()), "approved": approved}
    write_file(folder / FOLDER / ANSWER, canonical_bytes(answer), private=True)


def is_answered(folder: Path, plan: PlanSummary) -> bool:
    """Whether it was said of this plan if its offers may be sent."""
    try:
        return read_document((folder / FOLDER / ANSWER).read_bytes()).get("plan") == digest(plan.document())
    except FileNotFoundError:
        return False


def clear_plan(folder: Path) -> None:
    """Delete the question of an earlier attempt."""
    (folder / FOLDER / QUESTION).unlink(missing_ok=True)
