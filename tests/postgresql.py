"""A PostgreSQL server for the tests: the one in TRUTHFL_TEST_POSTGRESQL, or a private one of our own, or none.

A private server listens on a socket in its own folder only, runs as an ordinary user and ends with the tests.
"""

import os
import uuid
from contextlib import contextmanager

import pytest
from scripts.soaking.private_postgresql import NoPostgreSQL, restartable_server, server_without_files
from sqlalchemy import create_engine, make_url, text

VARIABLE = "TRUTHFL_TEST_POSTGRESQL"


@pytest.fixture(scope="session")
def postgresql_server():
    """The address of a database on a server where we may make others."""
    if given := os.environ.get(VARIABLE):
        yield given
        return
    with private_server() as server:
        yield server.address


@pytest.fixture(scope="session")
def empty_cluster():
    """The files of a server in which nothing is written, to be copied: making them takes longer than many tests."""
    with skipped_without_postgresql(), server_without_files() as server:
        server.prepare()
        yield server.folder / "data"


@pytest.fixture
def own_postgresql(empty_cluster):
    """A server of this test's own, which it may stop and start."""
    with private_server(empty_cluster) as server:
        yield server


@contextmanager
def private_server(files=None):
    """A private server; the test is skipped where there can be none."""
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
    """The address of an empty database of this test's own."""
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
