"""Many who write the same at once, or again after a failure: it is there once. On SQLite and on PostgreSQL."""

import os
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import text

from helpers.commands import FORKS, told
from helpers.databases import KEY, raw, settlement
from truthfl.errors import ServiceError
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.entry import broken_link
from truthfl.ledger.sql import database as database_module

WRITERS = 50
PROCESSES = 4


def settle_anew(where, start=None):
    """A writer of its own, as another process would be."""
    if start is not None:
        start.wait()
    with open_ledger(where, KEY) as ledger:
        return [entry.hash for entry in ledger.append_all(settlement())]


def settle_many_times(where, start, told_back):
    told_back.put([settle_anew(where, start if n == 0 else None) for n in range(5)])


def everything_once(where, items):
    with open_for_reading(where) as ledger:
        entries = ledger.rows()
    assert [entry.unique_key for entry in entries] == [(item.job, item.kind, item.key) for item in items]
    assert broken_link(entries) is None
    return [entry.hash for entry in entries]


def test_fifty_who_settle_at_once_settle_once(where):
    """Each with a ledger of its own, from before it is made."""
    start = threading.Barrier(WRITERS)
    with ThreadPoolExecutor(WRITERS) as pool:
        told_back = list(pool.map(lambda _: settle_anew(where, start), range(WRITERS)))
    assert {tuple(hashes) for hashes in told_back} == {tuple(everything_once(where, settlement()))}


def test_fifty_threads_may_share_one_ledger(ledger):
    start = threading.Barrier(WRITERS)

    def settle(number):
        start.wait()
        ledger.append(f"job {number}", "job", "own", {})
        return tuple(entry.hash for entry in ledger.append_all(settlement()))

    with ThreadPoolExecutor(WRITERS) as pool:
        assert len(set(pool.map(settle, range(WRITERS)))) == 1
    assert len(ledger.entries("cats")) == len(settlement())
    assert len(ledger.entries()) == len(settlement()) + WRITERS
    assert broken_link(ledger.entries()) is None


def test_processes_that_settle_at_once_settle_once(where):
    start, told_back = FORKS.Barrier(PROCESSES), FORKS.SimpleQueue()
    workers = [FORKS.Process(target=settle_many_times, args=(where, start, told_back)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    hashes = {tuple(one) for _ in workers for one in told_back.get()}
    for worker in workers:
        worker.join()
        worker.close()
    told_back.close()
    assert hashes == {tuple(everything_once(where, settlement()))}


def test_the_keys_alone_guarantee_it(where, monkeypatch):
    """Without the lock that keeps writers apart, they run into the unique keys, and still settle once."""
    monkeypatch.setattr(database_module, "WRITING", "no lock")
    open_ledger(where, KEY).close()
    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        told_back = list(pool.map(lambda _: settle_anew(where, start), range(8)))
    assert {tuple(hashes) for hashes in told_back} == {tuple(everything_once(where, settlement()))}


def test_patience_ends(file, monkeypatch):
    monkeypatch.setattr(database_module, "MAX_ATTEMPTS", 3)
    monkeypatch.setattr("truthfl.ledger.sql.engines.LOCK_WAIT_S", 0.01)
    holder = sqlite3.connect(file, isolation_level=None)
    with open_ledger(file, KEY) as ledger:
        holder.execute("BEGIN IMMEDIATE")
        busy = told(ledger.append, "a", "job", "a", {}, kind=ServiceError)
        assert busy == f"{file} is too busy (database is locked); try again later."
        holder.execute("ROLLBACK")
        assert ledger.append("a", "job", "a", {}).sequence == 4
        monkeypatch.setattr(database_module, "MAX_ATTEMPTS", 10**9)
        monkeypatch.setattr(database_module, "MAX_RETRY_S", 0.1)
        holder.execute("BEGIN IMMEDIATE")
        assert "is too busy" in told(ledger.append, "b", "job", "b", {}, kind=ServiceError)
    holder.close()


def test_writers_stand_in_line(ledger, monkeypatch):
    """So that none of them needs a second attempt."""
    monkeypatch.setattr(database_module, "MAX_ATTEMPTS", 1)
    with ThreadPoolExecutor(10) as pool:
        written = list(pool.map(lambda number: ledger.append("a", "round", str(number), {}), range(100)))
    assert sorted(entry.sequence for entry in written) == list(range(1, 101))


def test_several_ledgers_may_be_made_at_once(tmp_path):
    start = threading.Barrier(8)

    def make(number):
        start.wait()
        with open_ledger(tmp_path / str(number), KEY) as ledger:
            return ledger.append("a", "job", "a", {}).sequence

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(make, range(8))) == [1] * 8


def test_a_broken_line_to_the_server_is_made_anew(postgresql_database):
    with open_ledger(postgresql_database, KEY) as ledger:
        first = ledger.append("a", "job", "a", {})
        pooled = ledger._database.engine.raw_connection()
        with socket.socket(fileno=os.dup(pooled.driver_connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
        pooled.close()
        assert ledger.append("a", "job", "a", {}) == first


def test_a_server_that_ends_a_connection_is_asked_again(postgresql_database):
    with open_ledger(postgresql_database, KEY) as ledger:
        first = ledger.append("a", "job", "a", {})
        engine = raw(postgresql_database)
        with engine.connect() as connection:
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            ended = connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
            assert ended.all() == [(True,)]
        engine.dispose()
        assert ledger.append("a", "job", "a", {}) == first
