"""Settlement of a real job, asked for by many at once, again after a crash, too early; the payments after it."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from small_jobs import small_job_file
from truthfl.errors import InputError
from truthfl.federation.simulated.embedded import run_job
from truthfl.job import read_job
from truthfl.learning.pilot_design import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.entry import Item
from truthfl.ledger.payments import payments
from truthfl.ledger.settlement import Settled, settle

pytest_plugins = ["ledger_fixtures"]

CALLERS = 200
QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of a job that was run, and its pay."""
    folder = tmp_path_factory.mktemp("settlement")
    job = read_job(small_job_file(folder, "rounds = 30", "rounds = 4\nstep_size = 0.5"))
    run_job(job, folder / "out", design=QUICK)
    with open_ledger(folder / "out" / "ledger.db") as book:
        return book.entries()


def until(rows, kind):
    """What the book had when the first row of this kind was not written yet."""
    kinds = [row.kind for row in rows]
    return [Item(row.job, row.kind, row.key, row.document) for row in rows[: kinds.index(kind)]]


def test_200_who_ask_at_once_pay_everybody_once(where, rows):
    job, expected = rows[0].job, {row.key: row.document for row in rows if row.kind == "settlement"}
    with open_ledger(where) as book:
        book.append_all(until(rows, "settlement"))
    start = threading.Barrier(CALLERS)

    def ask(_):
        start.wait()
        with open_ledger(where) as own:
            return settle(own, job)

    with ThreadPoolExecutor(CALLERS) as pool:
        told = list(pool.map(ask, range(CALLERS)))
    assert all(one == [Settled(**document) for document in expected.values()] for one in told)
    with open_ledger(where) as book:
        assert [row.document for row in book.entries(job, "settlement")] == list(expected.values())
        assert [row.key for row in book.entries(job, "payment")] == [f"{name}/0" for name in expected]
        assert {one.client: one.amount for one in payments(book, job)} == {k: v["pay"] for k, v in expected.items()}
        assert check(book.entries()) is None


@pytest.mark.parametrize("kind", ["round", "test"])
def test_a_job_that_is_not_tested_is_not_settled(tmp_path, rows, kind):
    with open_ledger(tmp_path / "ledger.db") as book:
        book.append_all(until(rows, kind))
        with pytest.raises(InputError, match="not been trained and tested yet"):
            settle(book, rows[0].job)
        assert book.entries(kind="payment") == []


def test_the_command_settles_and_marks(tmp_path, rows):
    where = tmp_path / "ledger.db"
    with open_ledger(where) as book:
        book.append_all(until(rows, "settlement"))

    def truthfl(*arguments):
        command = [sys.executable, "-m", "truthfl", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    done = truthfl("settle", where, "--json")
    assert done.returncode == 0, done.stderr
    assert {one["state"] for one in json.loads(done.stdout)} == {"due"}
    done = truthfl("settle", where, "--mark", "sent", "--client", "Ada", "--reference", "TX-1", "--json")
    first = json.loads(done.stdout)[0]
    assert (first["client"], first["state"], first["reference"]) == ("Ada", "sent", "TX-1")
    for wrong, sentence in (
        (["--mark", "paid"], "mark is 'paid'; it must be sent, confirmed or failed."),
        (["--mark", "sent", "--client", "Zoe"], "client is 'Zoe'"),
        (["--mark", "confirmed", "--client", "Cleo"], "is due and cannot become confirmed"),
        (["--job", "other"], "job is 'other'"),
    ):
        done = truthfl("settle", where, *wrong)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
