"""A ledger in a PostgreSQL database. Imports `address`, `database`.

A writer holds an advisory lock until its transaction ends; then its statements see all earlier commits (READ
COMMITTED).
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, create_engine, event

from truthfl.errors import InputError
from truthfl.ledger.address import shown_url
from truthfl.ledger.database import LOCK_WAIT_S, WRITING, Database

DRIVER = "postgresql+psycopg"
CONNECT_WAIT_S = 10
LOCK_ID = int.from_bytes(b"truthfl", "big")


def postgresql(url: URL, *, to_write: bool) -> Database:
    """A database at this address; the first transaction connects to it."""
    name = shown_url(url)
    try:
        engine = create_engine(
            url.set(drivername=DRIVER),
            isolation_level="READ COMMITTED",
            execution_options={} if to_write else {"postgresql_readonly": True},
            connect_args={} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_WAIT_S},
        )
    except ImportError:
        raise InputError(
            f"{name} needs a driver that is not installed; pip install 'truthfl[postgresql]' installs it."
        ) from None
    event.listen(engine, "begin", _begin)
    return Database(name, engine)


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get(WRITING, False):
        set_timeout = f"set_config('lock_timeout', '{LOCK_WAIT_S}s', true)"
        connection.exec_driver_sql(f"SELECT {set_timeout}, pg_advisory_xact_lock({LOCK_ID})")
