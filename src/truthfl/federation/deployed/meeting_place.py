"""`MeetingPlace`: where a participant joins, as whom and with which key: by an invitation, or by options.

With an invitation, the participant's key and the operator's certificate are made in the participant's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truthfl.errors import InputError
from truthfl.federation.deployed.invitation import Invitation, read_invitation
from truthfl.files import make_private_folder, write_file
from truthfl.ledger.signing import new_key, read_public_line, write_key
from truthfl.texts import plain, plain_name

KEY, ROOT = "key", "ca.crt"


@dataclass(frozen=True)
class MeetingPlace:
    """Where, as whom, with what.

    root        the operator's certificate; None for this machine alone, without TLS
    operator    the public key that signs the operator's offers; "" believes the first offer of a job
    invitation  None if the participant was not invited by one
    """

    server: str
    host: str
    port: int
    name: str
    key: Path
    root: Path | None
    operator: str = ""
    invitation: Invitation | None = None


def meeting_place(
    invitation: str | None,
    server: str | None,
    name: str | None,
    key: Path | None,
    root: Path | None,
    operator: Path | None,
    home: Path,
) -> MeetingPlace:
    """The place that an invitation names, a file or a line, or that the options do; both at once are an error."""
    if invitation is None:
        return _by_options(server, name, key, root, operator)
    for option, value in (("--server", server), ("--name", name), ("--root", root), ("--operator", operator)):
        if value is not None:
            raise InputError(f"{option} is given beside an invitation, which has it; leave it out.")
    invited = read_invitation(invitation)
    host, port = address_parts(invited.server)
    make_private_folder(home)
    own_key, own_root = key or home / KEY, home / ROOT
    if not own_key.exists():
        write_key(new_key(), own_key, invited.name)
    if invited.root:
        write_file(own_root, invited.root)
    return MeetingPlace(
        invited.server,
        host,
        port,
        invited.name,
        own_key,
        own_root if invited.root else None,
        invited.operator,
        invited,
    )


def address_parts(server: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, _, port = server.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"server is {plain(server)!r}; it must be HOST:PORT, as in fl.example.org:8000.")
    return host.strip("[]"), int(port)


def _by_options(
    server: str | None, name: str | None, key: Path | None, root: Path | None, operator: Path | None
) -> MeetingPlace:
    if server is None or name is None or key is None:
        missing = next(
            option for option, value in (("--server", server), ("--name", name), ("--key", key)) if value is None
        )
        raise InputError(f"{missing} is missing; name the file of your invitation, or give server, name and key.")
    host, port = address_parts(server)
    if not name.strip():
        raise InputError("name is empty; it must be the name that the job knows you by.")
    plain_name("name", name)
    pinned = "" if operator is None else read_public_line(operator)
    return MeetingPlace(server, host, port, name, key, root, pinned)
