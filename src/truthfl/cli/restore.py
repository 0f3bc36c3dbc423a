"""`truthfl restore`: an operator's folder and keys from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truthfl.texts import plain


def restore(
    source: Annotated[Path, typer.Argument(metavar="TARGET.tar", help="A file that truthfl backup wrote.")],
    out: Annotated[Path, typer.Option(help="The operator's folder to be; it must be new or empty.")],
    keys: Annotated[Path | None, typer.Option(help="The folder for the keys; it must be new or empty.")] = None,
    participants: Annotated[
        Path | None, typer.Option(help="The folder for the participants' public keys; it must be new or empty.")
    ] = None,
) -> None:
    """Restore what truthfl backup wrote; the same truthfl serve, with these folders, then goes on from there.

    Every file's digest, the ledger's chain, signatures and pay are checked first, and nothing is overwritten. Rows that
    were written after the backup are gone; an anchor that was made after it shows that.

    Example: truthfl restore backups/monday.tar --out served --keys keys
    """
    from truthfl.ledger.archive import FOLDER, KEYS, PARTICIPANTS
    from truthfl.ledger.restore import restore as restore_backup

    named = {FOLDER: out, KEYS: keys, PARTICIPANTS: participants}
    manifest = restore_backup(source, {part: folder for part, folder in named.items() if folder is not None})
    print(f"Restored: {len(manifest.files)} files, as they were at {plain(manifest.made)}.")
    if manifest.ledger:
        print(f"The ledger has {manifest.rows} rows: the chain, signatures and pay hold.")
    else:
        print("The ledger is in PostgreSQL; restore its copy of the same moment before the server starts.")
