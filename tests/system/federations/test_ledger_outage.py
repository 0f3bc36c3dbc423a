"""A PostgreSQL server that goes away while a job runs is waited for: no row is lost, none is there twice."""

import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from helpers.auditions import QUICK
from helpers.commands import told, truthfl, within
from helpers.databases import KEY, cutting_proxy, settlement
from helpers.small_jobs import (
    known_plans,  # noqa: F401
    small_job_file,
)
from truthfl.errors import InputError, ServiceError
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.entry import broken_link
from truthfl.ledger.sql import engines as postgresql_module
from truthfl.ledger.sql.database import BACK, GONE, Outage, retry_through_outages

SECONDS = 60
AWAY_S = 3.0
ROUNDS = 150


def wait_until(holds):
    latest = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < latest
        time.sleep(0.02)


def rounds_written(address):
    try:
        with open_for_reading(address) as ledger:
            return len(ledger.entries(kind="round"))
    except InputError:  # there is none yet
        return 0


def rows_of(where):
    """The rows without what differs between any two runs: times, and contents with random keys or hashes of rows."""
    with open_for_reading(where) as ledger:
        entries, guards = ledger.entries(), ledger.missing_guards()
    assert check(entries) is None
    assert guards == []
    differing = ("answer", "receipt", "acknowledgement")
    return [(entry.kind, entry.key, None if entry.kind in differing else entry.payload) for entry in entries]


def test_a_job_goes_on_when_the_database_is_back(own_postgresql, tmp_path, capfd):
    """The server is stopped in the middle of the rounds as by a crash, and stays away for seconds."""
    job = read_job(small_job_file(tmp_path, "rounds = 30", f"rounds = {ROUNDS}"))
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    expected = run_job(job, calm, design=QUICK)
    for key in ("operator", *(f"participants/{name}/key" for name in job.clients.name)):
        (wild / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(calm / key, wild / key)
    shutil.copytree(calm / "agreement-keys", wild / "agreement-keys")
    address = own_postgresql.address
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_job, job, wild, ledger=address, design=QUICK)
        wait_until(lambda: rounds_written(address) > 0 or running.done())
        own_postgresql.stop_at_once()
        assert not running.done(), "the job was over before the server was stopped"
        time.sleep(AWAY_S)
        own_postgresql.start()
        outcome = running.result(SECONDS)
    assert len(outcome.view.rounds) == ROUNDS
    assert outcome.pay.tolist() == expected.pay.tolist()
    assert rows_of(address) == rows_of(calm / "ledger.db")
    assert capfd.readouterr().err.splitlines() == [f"truthfl: {GONE}", f"truthfl: {BACK}"]


def test_many_threads_wait_and_one_of_them_tells(own_postgresql):
    sentences = []
    with open_ledger(own_postgresql.address, KEY, sentences.append) as ledger:
        ledger.append("cats", "job", "own", {})
        own_postgresql.stop_at_once()
        with ThreadPoolExecutor(8) as pool:
            written = [pool.submit(ledger.append_all, settlement()) for _ in range(4)]
            read = [pool.submit(ledger.entries) for _ in range(4)]
            wait_until(lambda: sentences == [GONE])
            own_postgresql.start()
            assert len({tuple(one.result(SECONDS)) for one in written}) == 1
            assert all(one.result(SECONDS)[0].kind == "job" for one in read)
        assert len(ledger.entries()) == 1 + len(settlement())
        assert broken_link(ledger.entries()) is None
    assert sentences == [GONE, BACK]


def test_a_failure_from_before_the_database_was_back_is_not_told_as_another_outage(tmp_path):
    """One thread's attempt fails while the database is away, and is noted when another one has had its answer."""
    sentences = []
    with open_ledger(tmp_path / "ledger.db", KEY) as ledger:
        database = replace(ledger._database, outage=Outage(sentences.append))
        lost = OperationalError("", None, Exception(), connection_invalidated=True)
        another_is_answered = iter([False, False, True])

        def attempt():
            for answered in another_is_answered:
                if answered:
                    retry_through_outages(database, lambda: None)
                raise lost
            return "answered"

        assert retry_through_outages(database, attempt) == "answered"
    assert sentences == [GONE, BACK]


@pytest.mark.parametrize("server_hears", [True, False])
def test_an_append_whose_commit_was_not_answered_is_there_once(own_postgresql, tmp_path, server_hears):
    """Whether the server committed or not, is found by the rows' keys when the connection is made anew."""
    address = make_url(own_postgresql.address)
    open_ledger(own_postgresql.address, KEY).close()
    with cutting_proxy(own_postgresql.folder, tmp_path, server_hears=server_hears) as (armed, cut):
        through_proxy = address.set(query={"host": str(tmp_path)}).render_as_string(hide_password=False)
        with open_ledger(through_proxy, KEY) as ledger:
            armed.set()
            written = ledger.append_all(settlement())
            assert cut.is_set()
            assert written == ledger.entries()
            assert [entry.unique_key for entry in written] == [(one.job, one.kind, one.key) for one in settlement()]


def test_a_writer_that_was_cut_off_does_not_keep_the_others_out(own_postgresql, monkeypatch):
    """Its server does not know that it is gone; its lock ends with its silence."""
    monkeypatch.setattr(postgresql_module, "IDLE_S", 1)
    with open_ledger(own_postgresql.address, KEY) as silent, open_ledger(own_postgresql.address, KEY) as other:
        with suppress(DBAPIError), silent._database.writing(), within(5):
            assert other.append("cats", "job", "own", {}).sequence == 1
        assert len(silent.entries()) == 1


def test_waiting_ends_with_the_ledger(own_postgresql):
    ledger = open_ledger(own_postgresql.address, KEY, lambda _: None)
    own_postgresql.stop_at_once()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(told, ledger.head, kind=ServiceError)
        time.sleep(0.5)
        assert not waiting.done()
        ledger.stop_waiting()
        assert waiting.result(5) == "the ledger's database does not answer, and waiting for it was ended."
    ledger.close()


WAITING = """
import sys
from truthfl.ledger import open_ledger
with open_ledger(sys.argv[1]) as ledger:
    print("open", flush=True)
    sys.stdin.readline()
    ledger.head()
"""


def test_waiting_ends_with_control_c(own_postgresql):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WAITING, own_postgresql.address], **pipes) as process:
        assert process.stdout.readline() == "open\n"
        own_postgresql.stop_at_once()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stderr.readline() == f"truthfl: {GONE}\n"
        process.send_signal(signal.SIGINT)
        with within(3):
            _, error = process.communicate(timeout=SECONDS)
    assert error.strip().endswith("KeyboardInterrupt")


def test_a_database_that_never_answered_is_not_waited_for(own_postgresql, tmp_path):
    """One sentence of our own at once, with 2 where the user can mend it, and 3 otherwise."""
    own_postgresql.require_passwords()
    url = make_url(own_postgresql.address)
    gone = url.set(query={"host": str(tmp_path)})
    cases = [
        (url.set(password="wrong"), 2, "the user or the password is not accepted; a password is best in ~/.pgpass"),
        (url.set(username="stranger", password="x"), 2, "the user or the password is not accepted"),
        (url.set(password="right", database="none"), 2, "its server has no such database; create it with createdb"),
        (gone, 3, "nobody listens there; check that PostgreSQL runs"),
        (url.set(host="127.0.0.1", port=1, query={}), 3, "check that PostgreSQL runs and that host and port are right"),
    ]
    for address, code, said in cases:
        where = address.render_as_string(hide_password=False)
        run = ["run", "--out", str(tmp_path / "out"), "--ledger", where]
        for words in (run, ["ledger", "check", where]) if address == gone else (["ledger", "check", where],):
            with within(20):
                done = truthfl(*words, timeout=SECONDS)
            assert (done.returncode, said in done.stderr) == (code, True), done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert not re.search(r"FATAL|psycopg|Error|connection failed|wrong", done.stderr)
    with open_ledger(url.set(password="right").render_as_string(hide_password=False), KEY) as ledger:
        assert ledger.head() is None
