"""Refusals of one cause are counted: the 1st, 10th, 100th … is a row."""

from helpers.databases import KEY
from truthfl.federation.protocol.recorder import RefusalRows
from truthfl.ledger.book import open_ledger
from truthfl.ledger.job_state import JobState

REFUSAL = {"round": None, "client": None, "node": "7", "reason": "Zoe is not among the job's clients."}


def keys(book):
    return [entry.key for entry in book.entries("j", "rejection")]


def test_one_cause_has_few_rows_and_a_restart_goes_on_counting(tmp_path):
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        refusals = RefusalRows(book, "j")
        for number in range(1800):  # of an hour
            refusals.note("enrolment", "", "refusal.unknown", REFUSAL | {"node": str(number)})
        refusals.note("enrolment", "Ada", "refusal.unknown", REFUSAL)
        place = "enrolment//refusal.unknown"
        assert keys(book) == [*(f"{place}/{count}" for count in (1, 10, 100, 1000)), "enrolment/Ada/refusal.unknown/1"]
        again = RefusalRows(book, "j")
        for _ in range(8999):
            again.note("enrolment", "", "refusal.unknown", REFUSAL)
        assert len(keys(book)) == 5
        again.note("enrolment", "", "refusal.unknown", REFUSAL)
        assert keys(book)[-1] == f"{place}/10000"
        state = JobState("j")
        for entry in book.entries("j"):
            state.add(entry)
    assert state.refused_at["enrolment"] == 10_001
    assert state.unreadable == 0
