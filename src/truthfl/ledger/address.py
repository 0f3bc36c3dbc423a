"""A ledger's address: the path of an SQLite file or the URL of a PostgreSQL database, which may hold a password.

What is printed, logged or written where others may read it is `shown_address`.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from truthfl.errors import InputError

POSTGRESQL = ("postgresql", "postgres")
URL_PREFIXES = ("postgresql:", "postgres:", "postgresql+")


def read_address(where: str | Path) -> Path | URL:
    """The path or URL in this text; an error, without the text, if it is neither."""
    if "\0" in str(where):
        raise InputError("the ledger's name has a null character in it; name a file or a database.")
    if isinstance(where, Path) or ("://" not in where and not where.startswith(URL_PREFIXES)):
        return Path(where)
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # the address is not in the message, since it may hold a password
        raise InputError(
            "the ledger's address cannot be read; it must look like postgresql://user@host/database."
        ) from None
    backend = url.get_backend_name()
    if backend in POSTGRESQL:
        return url
    if backend == "sqlite" and url.database not in (None, "", ":memory:") and not url.query:
        return Path(str(url.database))
    raise InputError(f"a ledger of the kind {backend!r} is not kept; name a file or postgresql://user@host/database.")


def shown_address(where: str | Path) -> str:
    """The path, or the URL's host, port and database: without user, password and options."""
    address = read_address(where)
    return shown_url(address) if isinstance(address, URL) else str(address)


def shown_url(url: URL) -> str:
    host, port = url.host or url.query.get("host", ""), f":{url.port}" if url.port else ""
    return f"postgresql://{host}{port}/{url.database or ''}"


def shown_arguments(arguments: list[str]) -> list[str]:
    """Arguments of a command, with addresses of ledgers as they may be shown."""
    return [_shown_argument(argument) for argument in arguments]


def _shown_argument(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    if not value.startswith(URL_PREFIXES):
        return argument
    try:
        return f"{option}{equals}{shown_address(value)}"
    except InputError:
        return f"{option}{equals}postgresql://"
