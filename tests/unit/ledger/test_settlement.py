"""Settlement of a real job, asked for by many at once, again after a crash, too early; the payments after it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.commands import truthfl
from helpers.databases import KEY
from helpers.small_jobs import (
    finished_job,
    known_plans,  # noqa: F401
)
from truthfl.errors import InputError
from truthfl.federation.operator.row_words import describe_entry
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.entry import Item
from truthfl.ledger.payments import payments
from truthfl.ledger.settlement import Settled, settle
from truthfl.ledger.signing import write_key
from truthfl.ledger.terms import offer_from

CALLERS = 50


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of a job that was run, and its pay."""
    with open_ledger(finished_job(tmp_path_factory) / "out" / "ledger.db") as book:
        return book.entries()


def until(rows, kind):
    """What the book had when the first row of this kind was not written yet."""
    kinds = [row.kind for row in rows]
    return [Item(row.job, row.kind, row.key, row.document) for row in rows[: kinds.index(kind)]]


def test_fifty_who_ask_at_once_pay_everybody_once(where, rows):
    job, expected = rows[0].job, {row.key: row.document for row in rows if row.kind == "settlement"}
    with open_ledger(where, KEY) as book:
        book.append_all(until(rows, "settlement"))
    start = threading.Barrier(CALLERS)

    def ask(_):
        start.wait()
        with open_ledger(where, KEY) as own:
            return settle(own, job)

    with ThreadPoolExecutor(CALLERS) as pool:
        told = list(pool.map(ask, range(CALLERS)))
    assert all(one == [Settled(**document) for document in expected.values()] for one in told)
    with open_ledger(where, KEY) as book:
        assert [row.document for row in book.entries(job, "settlement")] == list(expected.values())
        assert [row.key for row in book.entries(job, "payment")] == [f"{name}/0" for name in expected]
        assert {one.client: one.amount for one in payments(book, job)} == {k: v["pay"] for k, v in expected.items()}
        assert check(book.entries()) is None


@pytest.mark.parametrize("kind", ["round", "test"])
def test_a_job_that_is_not_tested_is_not_settled(tmp_path, rows, kind):
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append_all(until(rows, kind))
        with pytest.raises(InputError, match="not been trained and tested yet"):
            settle(book, rows[0].job)
        assert book.entries(kind="payment") == []


def test_what_the_server_tells_of_pay_is_in_units_of_the_currency(rows):
    paid = next(row for row in rows if row.kind == "settlement")
    terms = next(offer_from(row.document).job for row in rows if row.kind == "offer")
    cents = paid.document["pay"]
    expected = f"{paid.key} is paid {cents // 100:,}.{cents % 100:02} EUR for 4 of 4 rounds"
    assert describe_entry(paid, terms) == expected


def test_the_command_settles_and_marks(tmp_path, rows):
    where = tmp_path / "ledger.db"
    write_key(KEY, tmp_path / "operator")
    with open_ledger(where, KEY) as book:
        book.append_all(until(rows, "settlement"))

    done = truthfl("settle", where, "--json")
    assert done.returncode == 0, done.stderr
    due = json.loads(done.stdout)
    assert {(one["currency"], one["minor_units"]) for one in due} == {("EUR", 100)}
    cents = {one["client"]: one["amount_minor"] for one in due}
    states = {one["client"]: one["state"] for one in due}
    assert cents["Ben"] == 0
    assert states == {"Ada": "due", "Ben": "not due", "Cleo": "due", "Dora": "due"}
    shown = {name: f"{amount // 100:,}.{amount % 100:02}" for name, amount in cents.items()}
    for words in (["settle", where], ["ledger", "show", where]):
        said = truthfl(*words).stdout
        assert all(amount in said for amount in shown.values()), said
        assert f"{cents['Ada']:,}" not in said
        assert "EUR" in said
    done = truthfl("settle", where, "--mark", "sent", "--client", "Ada", "--reference", "TX-1", "--json")
    first = json.loads(done.stdout)[0]
    assert (first["client"], first["state"], first["reference"]) == ("Ada", "sent", "TX-1")
    done = truthfl("settle", where, "--mark", "sent", "--reference", "TX-2")
    assert done.returncode == 0, done.stderr
    assert "Ada stays as is: sent.\nBen stays as is: not due.\nAn anchor was added to" in done.stdout
    done = truthfl("settle", where, "--mark", "confirmed", "--client", "Ada", "--json")
    assert [(one["state"], one["reference"]) for one in json.loads(done.stdout)] == [
        ("confirmed", "TX-1"),
        ("not due", ""),
        ("sent", "TX-2"),
        ("sent", "TX-2"),
    ]
    for wrong, sentence in (
        (["--mark", "paid"], "mark is 'paid'; it must be sent, confirmed or failed."),
        (["--mark", "sent", "--client", "Zoe"], "client is 'Zoe'"),
        (["--mark", "failed", "--client", "Ada"], "is confirmed (reference 'TX-1') and cannot become failed"),
        (["--job", "other"], "job is 'other'"),
    ):
        done = truthfl("settle", where, *wrong)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
