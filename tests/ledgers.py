"""What the tests write into ledgers, and how they get at the database without us."""

from pathlib import Path

from sqlalchemy import create_engine

from truthfl.ledger.entry import Item
from truthfl.ledger.signing import new_key

KEY = new_key()  # the operator's


def settlement(job="cats", clients=5):
    """As a job writes at its end: several kinds together."""
    paid = [Item(job, "settlement", f"client {n}", {"pay": 100 + n}) for n in range(clients)]
    due = [Item(job, "payment", f"client {n}/0", {"amount": 100 + n}) for n in range(clients)]
    return [*paid, *due]


def raw(where):
    """The database without us."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else where.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(url)
