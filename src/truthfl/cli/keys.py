"""`truthfl keys`: keys and certificates for a federation over a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from truthfl.certificates import certificates_in, hosts_in, make_certificates, require_absent, valid_until
from truthfl.errors import InputError
from truthfl.ledger.signing import new_key, write_key

OPERATOR = "operator"
_FILE_NAME = re.compile(r"\w[\w .@+-]*")

keys = typer.Typer(help="Make keys and certificates for a federation over a network.", no_args_is_help=True)


@keys.command()
def participant(
    name: Annotated[str, typer.Argument(help="Your name in the job.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME and NAME.pub.")] = Path("keys"),
) -> None:
    """Make a participant's key: the participant keeps NAME; NAME.pub goes to the operator.

    Example: truthfl keys participant Ada --out my-keys
    """
    if not _FILE_NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name for a key; letters, digits, spaces and . @ + - _ will do.")
    path = out / name
    require_absent(path, Path(f"{path}.pub"))
    write_key(new_key(), path, name)
    print(f"Private key: {path}. Show it to nobody; whoever has it can sign in your name.")
    print(f"Public key: {path}.pub. Give it to the operator.")


@keys.command()
def server(
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address at which participants reach the server; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the five files.")] = Path("keys"),
) -> None:
    """Make the operator's key and the server's certificates: operator, operator.pub, ca.crt, server.crt, server.key.

    Without --host, the server can be reached from its own machine only.

    Example: truthfl keys server --host fl.example.org --host 10.0.0.5 --out keys
    """
    operator, files = out / OPERATOR, certificates_in(out)
    require_absent(operator, Path(f"{operator}.pub"), files.root, files.server, files.server_key)
    make_certificates(out, host or [])
    write_key(new_key(), operator, OPERATOR)
    print(f"Operator's key: {operator}, to sign offers and receipts with. Server's key: {files.server_key}.")
    print(f"Keep both to yourself. Give {files.root} to participants, and {operator}.pub to whoever checks receipts.")
    print(f"The certificate is for {', '.join(hosts_in(files.server))}, until {valid_until(files.server):%Y-%m-%d}.")
