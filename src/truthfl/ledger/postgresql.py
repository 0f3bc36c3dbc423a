"""A ledger in a PostgreSQL database.

A writer holds an advisory lock until its transaction ends; then its statements see all earlier commits (READ
COMMITTED). If a connection breaks without a word, the system finds out (keepalive), and the server ends what it left
open, so that nobody waits for its lock.
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, create_engine, event

from truthfl.errors import InputError
from truthfl.ledger.address import shown_url
from truthfl.ledger.database import LOCK_WAIT_S, WRITING, Database
from truthfl.ledger.outage import Outage, Tell

DRIVER = "postgresql+psycopg"
CONNECTION = {  # of libpq; what the address says goes before
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
IDLE_S = 20  # a writer that says nothing for so long is gone; less than other writers wait
LOCK_ID = int.from_bytes(b"truthfl", "big")


def postgresql(url: URL, tell: Tell, *, to_write: bool) -> Database:
    """A database at this address; the first transaction connects to it. `tell` is called when it goes away."""
    name = shown_url(url)
    try:
        engine = create_engine(
            url.set(drivername=DRIVER),
            isolation_level="READ COMMITTED",
            execution_options={} if to_write else {"postgresql_readonly": True},
            connect_args={name: value for name, value in CONNECTION.items() if name not in url.query},
        )
    except ImportError:
        raise InputError(
            f"{name} needs a driver that is not installed; pip install 'truthfl[postgresql]' installs it."
        ) from None
    event.listen(engine, "begin", _begin)
    return Database(name, engine, outage=Outage(tell))


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get(WRITING, False):
        limits = {"lock_timeout": LOCK_WAIT_S, "idle_in_transaction_session_timeout": IDLE_S}
        settings = ", ".join(f"set_config('{name}', '{seconds}s', true)" for name, seconds in limits.items())
        connection.exec_driver_sql(f"SELECT {settings}, pg_advisory_xact_lock({LOCK_ID})")
