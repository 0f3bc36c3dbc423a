"""`truthfl ledger anchor`: sign and keep how far a ledger went, so that going back is found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.ledger_options import LedgerAddress
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger

OperatorKey = Annotated[
    Path | None,
    typer.Option(help="The operator's key; the one beside the ledger, or with which a job was served there."),
]


def anchor(
    address: LedgerAddress,
    key: OperatorKey = None,
    out: Annotated[Path | None, typer.Option(help="File to add it to; LEDGER.anchors beside a file.")] = None,
) -> None:
    """Print and keep the signed hash of the last row. Keep a copy on another machine, or give it to others.

    A check with an anchor finds that rows were removed from the ledger's end, or that it was written anew.

    Example: truthfl ledger anchor served/ledger.db --key keys/operator
    """
    from truthfl.ledger.anchors import usual_anchor_file
    from truthfl.ledger.book import open_for_reading

    key_file, file = key or usual_key(address), out or usual_anchor_file(address)
    if file is None:
        raise InputError("the ledger is no file; name the file for its anchors with --out.")
    with open_for_reading(address) as opened_ledger:
        print(keep_head(opened_ledger, key_file, file))


def usual_key(address: str) -> Path:
    """The operator's key in the folder of a ledger that is a file, or the one with which a job was served there.

    Raise `InputError` if there is none.
    """
    from truthfl.federation.protocol.serving_file import read_serving
    from truthfl.ledger.address import read_address

    where = read_address(address)
    if isinstance(where, Path):
        serving = read_serving(where.parent)
        for file in (where.with_name("operator"), *([] if serving is None else [Path(serving.key)])):
            if file.is_file():
                return file
    raise InputError("there is no key beside the ledger; name the operator's with --key.")


def operator_line(key: Path | None, address: str) -> str:
    """The operator's public key, from their key file, public or private, or the usual one."""
    from truthfl.ledger.signing import public_line, read_key, read_public_line

    file = key or usual_key(address)
    return read_public_line(file) if file.suffix == ".pub" else public_line(read_key(file))


def required_jobs(opened_ledger: Ledger, key_file: Path) -> list[str]:
    """The names of the jobs of the operator with this key; raise `InputError` if there are none."""
    jobs = opened_ledger.jobs()
    if not jobs:
        raise InputError(
            f"{opened_ledger.name} has no job of the operator whose key is {key_file}; name theirs with --key."
        )
    return jobs


def require_not_gone_back(opened_ledger: Ledger, address: str) -> None:
    """Raise `InputError` if the ledger contradicts the anchors that are kept beside it: what was sent may seem due."""
    from truthfl.ledger.anchors import first_contradiction, read_anchors, usual_anchor_file

    file = usual_anchor_file(address)
    if file is None or not file.exists():
        return
    fault = first_contradiction(read_anchors(file), opened_ledger.rows())
    if fault is not None:
        raise InputError(f"{opened_ledger.name} is not the ledger of {file}: {fault}; nothing is paid from it.")


def keep_head(opened_ledger: Ledger, key_file: Path, file: Path) -> str:
    """Sign the last row and add the anchor to the file; return it as text."""
    from truthfl.ledger.anchors import anchor_text, keep_anchor, make_anchor
    from truthfl.ledger.signing import read_key

    head = opened_ledger.head()
    if head is None:
        raise InputError(f"{opened_ledger.name} has no rows yet; there is nothing to anchor.")
    made = make_anchor(head, read_key(key_file))
    keep_anchor(file, made)
    return anchor_text(made)
