"""Ledgers for the tests: empty ones on SQLite and on PostgreSQL, and a small file."""

import pytest

from ledgers import KEY
from truthfl.ledger.book import open_ledger

pytest_plugins = ["postgresql"]


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """An address where nothing is yet."""
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
