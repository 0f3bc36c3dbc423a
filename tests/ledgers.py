"""What the tests write into ledgers, and how they get at the database without us."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import create_engine, text

from truthfl.ledger.entry import Item, row_key_fields
from truthfl.ledger.signing import public_line

KEY = ec.derive_private_key(7, ec.SECP384R1())  # the operator's, the same in all processes


def opening(key=KEY, **fields):
    """The document of a row that opens a job of this operator."""
    return {"job": {}, "operator_key": public_line(key), **row_key_fields(key), **fields}


def settlement(job="cats", clients=5):
    """As a job writes at its end: several kinds together."""
    paid = [Item(job, "settlement", f"client {n}", {"pay": 100 + n}) for n in range(clients)]
    due = [Item(job, "payment", f"client {n}/0", {"amount": 100 + n}) for n in range(clients)]
    return [*paid, *due]


def raw(where):
    """The database without us."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else where.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(url)


def drop_triggers(connection, *names):
    """As somebody does who owns the database."""
    for name in names:
        connection.execute(text(f"DROP TRIGGER {name}{'' if connection.dialect.name == 'sqlite' else ' ON entries'}"))
