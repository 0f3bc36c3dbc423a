"""Ledgers on SQLite and PostgreSQL: empty ones, broken connections, rows that an operator changed.

A private server listens only on a socket in its own folder, runs as an ordinary user and ends with the tests.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from scripts.soaking.private_postgresql import NoPostgreSQL, restartable_server, server_without_files
from sqlalchemy import create_engine, make_url, text

from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import Item, link_hash, payload_digest, row_key, row_key_fields, sign_row
from truthfl.ledger.signing import public_line

VARIABLE = "TRUTHFL_TEST_POSTGRESQL"


@pytest.fixture(scope="session")
def postgresql_server():
    """The address of a database on a server on which tests may create others."""
    if given := os.environ.get(VARIABLE):
        yield given
        return
    with private_server() as server:
        yield server.address


@pytest.fixture(scope="session")
def empty_cluster():
    """The files of an unused server, to copy: making them takes longer than many tests."""
    with skipped_without_postgresql(), server_without_files() as server:
        server.prepare()
        yield server.folder / "data"


@pytest.fixture
def own_postgresql(empty_cluster):
    """A server for one test, which may stop and start it."""
    with private_server(empty_cluster) as server:
        yield server


@contextmanager
def private_server(files=None):
    """A private server; the test is skipped if there can be none."""
    with skipped_without_postgresql(), restartable_server(files) as server:
        yield server


@contextmanager
def skipped_without_postgresql():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        yield
    except NoPostgreSQL as missing:
        pytest.skip(f"{missing}; nor does {VARIABLE} name a server")


@pytest.fixture
def postgresql_database(postgresql_server):
    """The address of an empty database for one test."""
    server = make_url(postgresql_server).set(drivername="postgresql+psycopg")
    name = f"truthfl_test_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        engine.dispose()


SOCKET = ".s.PGSQL.5432"
COMMIT_S = 0.5  # seconds in which the server commits


@contextmanager
def cutting_proxy(server_folder, folder, *, server_hears):
    """Relay between clients and the server until an event is set; the next COMMIT then breaks its connection.

    Yields that event, and one that is set when this has happened.

    server_hears   whether the COMMIT is relayed; its answer never is
    """
    listening, armed, cut = socket.socket(socket.AF_UNIX), threading.Event(), threading.Event()
    listening.bind(str(folder / SOCKET))
    listening.listen()

    def serve():
        with suppress(OSError):  # the listening socket is shut down
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(server_folder / SOCKET))
                silent = threading.Event()
                threading.Thread(target=copy_from_client, args=(client, server, silent), daemon=True).start()
                threading.Thread(target=copy_from_server, args=(client, server, silent), daemon=True).start()

    def copy_from_client(client, server, silent):
        with suppress(OSError):
            while content := client.recv(65536):
                if b"COMMIT\0" in content and armed.is_set() and not cut.is_set():
                    silent.set()
                    if server_hears:
                        server.sendall(content)
                        time.sleep(COMMIT_S)
                    cut.set()
                    break
                server.sendall(content)
        shut_down(client, server)

    def copy_from_server(client, server, silent):
        with suppress(OSError):
            while content := server.recv(65536):
                if not silent.is_set():
                    client.sendall(content)
        shut_down(client, server)
        client.close()
        server.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield armed, cut
    finally:
        shut_down(listening)
        thread.join()
        listening.close()


def shut_down(*sockets):
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


KEY = ec.derive_private_key(7, ec.SECP384R1())  # the operator's, the same in all processes


def opening(key=KEY, **fields):
    """The document of a row that opens this operator's job."""
    return {"job": {}, "operator_key": public_line(key), **row_key_fields(key), **fields}


def settlement(job="cats", clients=5):
    """Add rows as a job does at its end: several kinds together."""
    paid = [Item(job, "settlement", f"client {n}", {"pay": 100 + n}) for n in range(clients)]
    due = [Item(job, "payment", f"client {n}/0", {"amount": 100 + n}) for n in range(clients)]
    return [*paid, *due]


def raw(where):
    """Open the database without truthfl's code."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else where.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(url)


def drop_triggers(connection, *names):
    """Change the database as its owner can."""
    for name in names:
        connection.execute(text(f"DROP TRIGGER {name}{'' if connection.dialect.name == 'sqlite' else ' ON entries'}"))


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """An address at which there is nothing yet."""
    return (
        tmp_path / "new" / "ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgresql_database")
    )


@pytest.fixture
def ledger(where):
    with open_ledger(where, KEY) as opened:
        yield opened


@pytest.fixture
def file(tmp_path):
    """A SQLite file with three entries, closed."""
    path = tmp_path / "ledger.db"
    with open_ledger(path, KEY) as ledger:
        for number in range(3):
            ledger.append("cats", "round", str(number), {"round": number})
    return path


def rewritten(entries, kind, key, change):
    """A book in which an operator changed a row, recomputed all later hashes, and signed them."""
    made, previous = [], None
    for entry in entries:
        document = deepcopy(entry.document)
        if (entry.kind, entry.key) == (kind, key):
            change(document)
        payload = canonical_bytes(document).decode()
        before = entry.previous if previous is None else previous
        link = entry.link() | {"payload": payload_digest(payload, entry.salt), "previous": before}
        link.pop("hash")
        previous = link_hash(link)
        signature = sign_row(row_key(KEY), previous)
        made.append(replace(entry, payload=payload, previous=before, hash=previous, signature=signature))
    return made
