"""A ledger in a PostgreSQL database. Looks at `database`.

Writers stand in line for one advisory lock, which ends with the transaction; every statement behind it sees what the
writer before committed (READ COMMITTED).
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, create_engine, event

from truthfl.errors import InputError
from truthfl.ledger.database import LOCK_WAIT_S, WRITING, Database

DRIVER = "postgresql+psycopg"
CONNECT_WAIT_S = 10
LOCK = int.from_bytes(b"truthfl", "big")


def postgresql(url: URL, *, to_write: bool) -> Database:
    """Nothing is asked of the server yet."""
    host, port = url.host or url.query.get("host", ""), f":{url.port}" if url.port else ""
    name = f"postgresql://{host}{port}/{url.database or ''}"
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
        patience = f"set_config('lock_timeout', '{LOCK_WAIT_S}s', true)"
        connection.exec_driver_sql(f"SELECT {patience}, pg_advisory_xact_lock({LOCK})")
