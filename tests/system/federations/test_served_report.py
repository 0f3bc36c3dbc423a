"""What the operator is shown at the end of a job that was served: a table, sentences, and a report."""

import pytest

from helpers.auditions import Plans, Setting
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.federation.operator.served_report import client_rows, columns, summary_sentences, write_served_report
from truthfl.ledger.job_view import JobView

BEHAVIOURS = ["truthful", "lazy labeler", "truthful", "truthful"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return Setting(tmp_path_factory.mktemp("served"), Plans(), BEHAVIOURS).go()


def test_the_table_has_what_the_ledger_settled(found):
    rows = client_rows(found)
    assert {len(row) for row in rows} == {len(columns(found))}
    assert [row[0] for row in rows] == ["Ada", "Ben", "Cleo", "Dora", "total"]
    pay = columns(found).index("pay")
    settled = [entry.document["pay"] / found.agreement.terms.minor_units for entry in found.settlements.values()]
    assert [row[pay] for row in rows] == [f"{amount:,.2f}" for amount in (*settled, sum(settled))]
    assert rows[0][columns(found).index("rounds")] == f"{len(found.rounds)} of {len(found.rounds)}"


def test_the_sentences_tell_the_loss_the_money_and_who_was_stopped(found):
    loss, zero, money, times, *more = summary_sentences(found)
    assert zero.startswith("Round zero, the mean of the solo models: loss ")
    assert f"Test loss {found.test.document['loss']:.4f}" in loss
    total = sum(entry.document["pay"] for entry in found.settlements.values()) / found.agreement.terms.minor_units
    assert money.startswith(f"You pay {total:,.2f} ")
    assert f" for {len(found.rounds)} rounds." in times
    assert [sentence.split(".")[0] for sentence in more] == ["Ben was stopped at the audition"]


def test_the_report_is_in_a_folder_of_the_job(found, tmp_path):
    path = write_served_report(found, tmp_path, "truthfl serve <b>", "1.0")
    assert path == tmp_path / "reports" / found.name / "report.html"
    text = path.read_text(encoding="utf-8")
    assert "Ben was stopped at the audition" in text
    assert "truthfl serve &lt;b&gt;" in text
    assert (path.parent / "training.png").read_bytes().startswith(b"\x89PNG")


def test_a_job_that_ended_without_a_contract_has_no_report(tmp_path):
    view = JobView("j-1")
    assert summary_sentences(view) == ["Job j-1 was ended before there was a contract; nobody is paid."]
    assert write_served_report(view, tmp_path, "", "") is None
