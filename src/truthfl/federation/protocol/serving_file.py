"""`ServingInfo`: what a server was started with, in a file of the operator's folder that her other commands read.

The ledger's address may hold a password, so that only the owner can read the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file

FILE_NAME = "serving.json"


@dataclass(frozen=True)
class ServingInfo:
    """How a server was started.

    job           its name in the ledger
    ledger        a file, or the address of a database
    key           the file of the operator's private key
    host, port    where participants connect
    root          the file of the certificate that they need; "" without TLS
    participants  the folder with their public keys; "" if nobody is known
    operator      the public key that belongs to the private one, as invitations tell it
    """

    job: str
    ledger: str
    key: str
    host: str
    port: int
    root: str = ""
    participants: str = ""
    operator: str = ""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def write_serving(folder: Path, info: ServingInfo) -> None:
    """Write the file, or replace that of an earlier start."""
    write_file(folder / FILE_NAME, json.dumps(asdict(info)), private=True)


def read_serving(folder: Path) -> ServingInfo | None:
    """What the last server in this folder was started with; None if there was none."""
    path = folder / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        info = ServingInfo(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise InputError(f"{path} cannot be read; truthfl serve writes it again.") from None
    if any(type(getattr(info, field.name)) is not (int if field.name == "port" else str) for field in fields(info)):
        raise InputError(f"{path} cannot be read; truthfl serve writes it again.")
    return info
