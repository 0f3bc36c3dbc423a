"""`Invitation`: all that a participant needs to join, in one file or one line of text.

It has a code that is good once: whoever uses it first takes part under the name it is for.
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from truthfl.errors import InputError
from truthfl.ledger.signing import normal_public_line
from truthfl.texts import plain, plain_name

LINE_START = "truthfl-invitation:"
KIND = "truthfl invitation"
LONGEST = 100_000  # letters


@dataclass(frozen=True)
class Invitation:
    """An invitation.

    server    HOST:PORT
    name      that the job knows the participant by
    code      good once
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
    """The invitation in this file, in this line itself, or in the line that standard input has if it is "-"."""
    if given == "-":
        given = sys.stdin.readline(LONGEST).strip()
        if not given.startswith(LINE_START):
            raise InputError(f"standard input has no invitation; it is a line that begins with {LINE_START}")
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
        raise InputError(f"{where} is no invitation, or is not whole; ask the operator for it again.") from None
    plain_name("the invitation's name", invitation.name)
    return replace(invitation, operator=normal_public_line(invitation.operator, "the operator's key in the invitation"))
