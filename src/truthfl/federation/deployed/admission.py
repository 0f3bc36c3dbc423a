"""Who may connect to the operator's server: who can be invited and when, and whose keys are known.

A file that is added while the server runs counts from then on. To admit a participant only adds a row to the ledger.
So the server needs no write access to the folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from truthfl.certificates import WILDCARD_ADDRESSES
from truthfl.errors import InputError, TruthflError
from truthfl.federation.deployed.invitations import Invitation, address_parts
from truthfl.federation.operator.commands import commanded_state
from truthfl.federation.operator.live_status import ENROLLING, LiveStatus, ServingInfo, read_serving
from truthfl.federation.protocol.receipt_delivery import OwedReceipts
from truthfl.ledger.book import Ledger
from truthfl.ledger.command_rows import NO_INVITATION, admit, keys_by_admission, new_code
from truthfl.ledger.commands import code_digest, time_text
from truthfl.ledger.job_view import JobView
from truthfl.ledger.signing import read_public_line
from truthfl.texts import plain_name

LOOK_UP_SECONDS = 0.5  # a lookup of unknown keys is repeated after this time at the earliest


@dataclass(eq=False)
class KnownKeys:
    """The keys of one job's participants. All methods may be called from any thread.

    folder  with NAME.pub files
    names   of the job's clients; other files are ignored
    """

    ledger: Ledger
    job: str
    folder: Path
    names: tuple[str, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _names: dict[str, str] = field(default_factory=dict, repr=False)  # by key
    _read_at: float = float("-inf")
    _owed: OwedReceipts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._owed = OwedReceipts(self.ledger, self.job)

    def lines(self) -> dict[str, str]:
        """By name: the public key. Raise InputError if two names have the same key."""
        return self._of_files() | keys_by_admission(self.ledger, self.job, self.names)

    def look_up(self, public_key: str) -> str | None:
        """The name that this key belongs to; None if it belongs to nobody, or did not at the last lookup.

        "" for a participant who is not in this job and is owed no receipt of an earlier one.
        """
        with self._lock:
            if time.monotonic() > self._read_at + LOOK_UP_SECONDS:
                try:
                    self._names = {line: name for name, line in self.lines().items()}
                    self._owed.update()
                except TruthflError:  # a file that cannot be read admits nobody
                    self._names = {}
                self._read_at = time.monotonic()
            return self._names.get(public_key, "" if self._owed.of_key(public_key) else None)

    def admit(self, request: Mapping[str, Any]) -> str:
        """Admit a participant with an invitation; return a sentence."""
        if request.get("name") not in self.names:
            raise InputError(NO_INVITATION)
        name, _ = admit(self.ledger, self.job, request)
        with self._lock:
            self._read_at = float("-inf")
        return f"{name} is admitted."

    def _of_files(self) -> dict[str, str]:
        paths = {name: self.folder / f"{name}.pub" for name in self.names if not set(name) & set("/\\\0")}
        return {name: read_public_line(path) for name, path in paths.items() if path.is_file()}


LONGEST_DAYS = 365.0
USUAL_DAYS = 7.0
MOST_NAMES = 10  # listed in a sentence


def served_in(folder: Path) -> ServingInfo:
    """What the server in this folder was started with; raise an error if there was none."""
    serving = read_serving(folder) if folder.is_dir() else None
    if serving is None:
        raise InputError(f"no job was served in {folder}; start truthfl serve first.")
    return serving


def needs_address(serving: ServingInfo) -> bool:
    """Whether the operator must give the address of the server, since the server listens at all addresses."""
    return serving.host in WILDCARD_ADDRESSES


def new_invitation(serving: ServingInfo, name: str, address: str | None, days: float) -> Invitation:
    """An invitation with a new code. It is valid once the operator's command with `invite_fields` is in the ledger.

    address  HOST:PORT of the server for this participant; None for the address at which it listens
    days     how long it is valid
    """
    plain_name("name", name)
    if not 0 < days <= LONGEST_DAYS:
        raise InputError(f"days is {days:g}; it must be more than 0 and at most {LONGEST_DAYS:g}.")
    if address is None and needs_address(serving):
        raise InputError(f"the server listens at all addresses ({serving.host}); say at which HOST:PORT they find it.")
    if address is not None:
        address_parts(address)
    try:
        root = Path(serving.root).read_text(encoding="utf-8") if serving.root else ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{serving.root} cannot be read; it is the certificate that they need.") from None
    if not serving.operator:
        raise InputError("the key that signs this job's offers is not known; start truthfl serve again.")
    expires = time_text(datetime.now(UTC) + timedelta(days=days))
    return Invitation(address or serving.address, name, new_code(), expires, serving.operator, root)


def invite_fields(
    view: JobView, live: LiveStatus | None, serving: ServingInfo, invitation: Invitation
) -> dict[str, str]:
    """The command's own fields, without the code; raise InputError if the client cannot be invited now.

    live   status of the running server; None if it does not run
    """
    name, state = invitation.name, commanded_state(view)
    if view.name != serving.job or view.job is None:
        raise InputError(f"job {view.name} is not the one that is served here, which is {serving.job}.")
    names = view.job.document["job"]["clients"]["name"]
    if name not in names:
        raise InputError(f"{name} is not among the job's clients, which are {', '.join(names[:10])}.")
    if name in state.removed:
        raise InputError(f"{name} was removed from the job; they can be invited to another one.")
    if name in view.enrolments:
        raise InputError(f"{name} takes part already.")
    if view.plans or (live is not None and live.stage != ENROLLING):
        raise InputError(f"the job has begun without {name}; they can be invited to another one.")
    return {"name": name, "code_digest": code_digest(invitation.code), "expires": invitation.expires}


def enrolment_warning(unknown: Sequence[str], enrol_seconds: float) -> str | None:
    """A warning if the job admits participants for less time than an invitation is usually valid; None otherwise.

    unknown  clients of the job whose keys are not known and who can be invited
    """
    if not unknown or enrol_seconds >= USUAL_DAYS * 86_400:
        return None
    who = ", ".join(unknown[:MOST_NAMES]) + (f" and {len(unknown) - MOST_NAMES} more" * (len(unknown) > MOST_NAMES))
    return (
        f"Beware: {who} can be invited, and invitations are good for {USUAL_DAYS:g} days unless you say otherwise, but "
        f"the job admits people for {enrol_seconds:,.0f} seconds (enrol_seconds). truthfl extend enrol adds time."
    )


def until_words(invitation: Invitation) -> str:
    """The time at which it expires, in readable form."""
    return f"{invitation.expires[:16].replace('T', ' ')} UTC"
