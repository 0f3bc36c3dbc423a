"""`truthfl backup` and `truthfl restore`: an operator's ledger, secrets and keys in one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import URL

from truthfl import __version__
from truthfl.cli.contracts import CustomContract
from truthfl.errors import InputError, ServiceError
from truthfl.federation.operator.kept_jobs import LEDGER_ADDRESS, kept_ledger_address, lock_folder
from truthfl.ledger.backup import FOLDER, KEYS, PARTICIPANTS, back_up
from truthfl.ledger.backup import restore as restore_backup
from truthfl.ledger.sql.database import read_address, shown_url
from truthfl.texts import plain


def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET.tar", help="The new file; an existing one is kept.")],
    out: Annotated[Path, typer.Option(help="The operator's folder, as in truthfl serve or run.")],
    keys: Annotated[Path | None, typer.Option(help="The folder with the operator's keys and certificates.")] = None,
    participants: Annotated[Path | None, typer.Option(help="The folder with the participants' public keys.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger, where it is not ledger.db in the folder or the server's last.")
    ] = None,
) -> None:
    """Back up ledger, models, secrets and keys as of one moment, even while the server runs.

    Whoever has the file can sign in your name: encrypt it before it leaves the machine. The file has no ledger that is
    in PostgreSQL: for that, end the server and copy the database with pg_dump.

    Example: truthfl backup --out served --keys keys backups/monday.tar
    """
    named = {FOLDER: out, KEYS: keys, PARTICIPANTS: participants}
    parts = {part: folder for part, folder in named.items() if folder is not None}
    for folder in parts.values():
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder; name the one to back up.")
    address = ledger or _usual_ledger(out)
    _require_no_server_on_postgresql(out, address)
    manifest = back_up(target, parts, address, __version__)
    print(f"Backup: {target}, {len(manifest.files)} files, for your eyes alone. It holds private keys; encrypt it.")
    if manifest.ledger:
        print(f"The ledger in it has {manifest.rows} rows.")
    else:
        print("The ledger is in PostgreSQL and not in it: copy it with pg_dump before the server starts again.")


def _usual_ledger(out: Path) -> str:
    """The address that the server stored, unless it is an earlier path of this folder's own ledger file."""
    usual = out / "ledger.db"
    if usual.exists() or not (out / LEDGER_ADDRESS).exists():
        return str(usual)
    return kept_ledger_address(out)


def _require_no_server_on_postgresql(out: Path, address: str) -> None:
    """Raise InputError if a server runs whose ledger another program copies: the two copies would not match."""
    where = read_address(address)
    if not isinstance(where, URL):
        return
    try:
        with lock_folder(out):
            return
    except ServiceError:
        raise InputError(
            f"a server runs on {out} with its ledger in {shown_url(where)}; end it, then copy the database with "
            "pg_dump and back up, so that both are of one moment."
        ) from None


def restore(
    source: Annotated[Path, typer.Argument(metavar="TARGET.tar", help="A file that truthfl backup wrote.")],
    out: Annotated[Path, typer.Option(help="The operator's folder to be; it must be new or empty.")],
    keys: Annotated[Path | None, typer.Option(help="The folder for the keys; it must be new or empty.")] = None,
    participants: Annotated[
        Path | None, typer.Option(help="The folder for the participants' public keys; it must be new or empty.")
    ] = None,
    _contract: CustomContract = None,
) -> None:
    """Restore what truthfl backup wrote. The same truthfl serve, with these folders, then goes on from there.

    It first checks every file's digest and the ledger's chain, signatures and pay, and overwrites nothing. Rows written
    after the backup are gone; an anchor made after the backup shows that.

    Example: truthfl restore backups/monday.tar --out served --keys keys
    """
    named = {FOLDER: out, KEYS: keys, PARTICIPANTS: participants}
    manifest = restore_backup(source, {part: folder for part, folder in named.items() if folder is not None})
    print(f"Restored: {len(manifest.files)} files, as they were at {plain(manifest.made)}.")
    if manifest.ledger:
        print(f"The ledger has {manifest.rows} rows: the chain, signatures and pay hold.")
    else:
        print("The ledger is in PostgreSQL; restore its copy of the same moment before the server starts.")
