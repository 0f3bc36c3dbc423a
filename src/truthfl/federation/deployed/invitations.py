"""Invitations: one file or line that says where a participant joins, under which name, and with which operator's key.

The code in it can be used once. Whoever uses it first takes part under the name in the invitation. The participant's
key and the operator's certificate are then written to the participant's folder.
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import make_private_folder, write_file
from truthfl.ledger.signing import new_key, normal_public_line, read_public_line, write_key
from truthfl.texts import plain, plain_name

LINE_START = "truthfl-invitation:"
KIND = "truthfl invitation"
LONGEST = 100_000  # letters


@dataclass(frozen=True)
class Invitation:
    """An invitation.

    server    HOST:PORT
    name      under which the job knows the participant
    code      can be used once
    expires   ISO 8601 in UTC
    operator  the public key that signs the job's offers; offers of another key are refused
    root      the operator's certificate (PEM); "" for a server on this machine without TLS
    """

    server: str
    name: str
    code: str = field(repr=False)
    expires: str
    operator: str
    root: str = field(default="", repr=False)

    def text(self) -> str:
        """The content of a file."""
        return json.dumps({"kind": KIND, **asdict(self)}, indent=2) + "\n"

    def line(self) -> str:
        """One line, for a message."""
        packed = zlib.compress(json.dumps({"kind": KIND, **asdict(self)}).encode(), 9)
        return LINE_START + urlsafe_b64encode(packed).decode()


def read_invitation(given: str) -> Invitation:
    """The invitation in this file or this line, or in the line from standard input if it is "-"."""
    if given == "-":
        given = sys.stdin.readline(LONGEST).strip()
        if not given.startswith(LINE_START):
            raise InputError(f"standard input has no invitation; an invitation is a line that begins with {LINE_START}")
    if given.startswith(LINE_START):
        return _invitation(_unpacked(given.removeprefix(LINE_START)), "this line")
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"{plain(path)} cannot be read: {error.strerror}; name the file of your invitation.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no invitation; truthfl invite makes one.") from None
    return _invitation(_unpacked(text.removeprefix(LINE_START)) if text.startswith(LINE_START) else text, str(path))


def _unpacked(packed: str) -> str:
    try:
        unpacker = zlib.decompressobj()
        return unpacker.decompress(urlsafe_b64decode(packed.encode()), LONGEST).decode()
    except (ValueError, zlib.error):
        return ""


def _invitation(text: str, where: str) -> Invitation:
    try:
        document = json.loads(text[:LONGEST])
        if document.pop("kind") != KIND or not all(isinstance(value, str) for value in document.values()):
            raise ValueError
        invitation = Invitation(**document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{where} is no invitation, or is not complete; ask the operator for it again.") from None
    plain_name("the invitation's name", invitation.name)
    return replace(invitation, operator=normal_public_line(invitation.operator, "the operator's key in the invitation"))


KEY, ROOT = "key", "ca.crt"


@dataclass(frozen=True)
class MeetingPlace:
    """Where and as whom a participant joins.

    root        the operator's certificate; None for a server on this machine, without TLS
    operator    the public key that signs the operator's offers; "" trusts the key of a job's first offer
    invitation  None if the participant has none
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
    """The place that an invitation (a file or a line) or the options name; both together are an error."""
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
