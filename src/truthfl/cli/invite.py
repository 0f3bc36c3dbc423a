"""`truthfl invite`: invite a participant to a job, by one file or line that has all she needs.

Imports `job_commands` and, when called, `federation` and the ledger.
"""

from __future__ import annotations

import json as json_format
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.job_commands import DEFAULT_OUT, Job, Key, Out, Who, Why, give
from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.texts import plain_name

if TYPE_CHECKING:
    from truthfl.federation.protocol.live_status import LiveStatus
    from truthfl.ledger.job_view import JobView

LONGEST_DAYS = 365.0


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant, as the job knows her.")],
    out: Out = DEFAULT_OUT,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; NAME.invitation unless given.")
    ] = None,
    line: Annotated[bool, typer.Option("--line", help="Print it as one line instead of writing a file.")] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where she reaches the server, if not where it listens.")
    ] = None,
    days: Annotated[float, typer.Option(help="How long it is good.")] = 7.0,
    key: Key = None,
    why: Why = "",
    by: Who = None,
    job: Job = None,
) -> None:
    """Invite a participant: she joins with one command, which makes her key. It is good once, for one key.

    Whoever uses it first takes part under her name, so give it to her by a way that you both trust.

    Example: truthfl invite Ada --out served
    """
    from truthfl.federation.deployed.certificates import WILDCARD_ADDRESSES
    from truthfl.federation.deployed.invitation import Invitation
    from truthfl.federation.protocol.command_rules import commanded_state
    from truthfl.federation.protocol.serving_file import read_serving
    from truthfl.ledger.admissions import new_code
    from truthfl.ledger.commands import INVITE, code_digest, time_text

    plain_name("name", name)
    if not 0 < days <= LONGEST_DAYS:
        raise InputError(f"days is {days:g}; it must be more than 0 and at most {LONGEST_DAYS:g}.")
    serving = read_serving(out) if out.is_dir() else None
    if serving is None:
        raise InputError(f"no job was served in {out}; start truthfl serve first.")
    if address is None and serving.host in WILDCARD_ADDRESSES:
        raise InputError(f"the server listens at all addresses ({serving.host}); name hers with --address HOST:PORT.")
    target = file or Path(f"{name}.invitation")
    if not line and target.exists():
        raise InputError(f"{target} exists already, and is not replaced; name another file.")
    code, expires = new_code(), time_text(datetime.now(UTC) + timedelta(days=days))
    root = Path(serving.root).read_text(encoding="utf-8") if serving.root else ""

    def check(view: JobView, _: LiveStatus | None) -> dict[str, str]:
        commanded_state(view)
        assert view.job is not None
        names = view.job.document["job"]["clients"]["name"]
        if name not in names:
            raise InputError(f"{name} is not among the job's clients, which are {', '.join(names[:10])}.")
        if name in view.enrolments:
            raise InputError(f"{name} takes part already.")
        if view.agreement is not None:
            raise InputError(f"the job has begun without {name}; she can be invited to another one.")
        return {"name": name, "code_digest": code_digest(code), "expires": expires}

    given = give(out, key, job, by, why, INVITE, check)
    invitation = Invitation(address or serving.address, name, code, expires, root)
    if line:
        print(invitation.line())
        return
    write_file(target, invitation.text(), private=True)
    given.say(f"{name} is invited by {target}, which is good once, until {expires[:16].replace('T', ' ')} UTC.", "")
    data = json_format.dumps("HER-DATA")
    print(f"She joins with: truthfl join {target.name} --data {data[1:-1]}")
