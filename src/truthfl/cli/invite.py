"""`truthfl invite`: what a participant needs to join with one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truthfl.cli.job_commands import DEFAULT_OUT, Job, Key, Out, Who, Why, give
from truthfl.errors import InputError, TruthflError
from truthfl.federation.deployed.admission import USUAL_DAYS, invite_fields, new_invitation, served_in, until_words
from truthfl.federation.operator.live_status import LiveStatus
from truthfl.files import write_file
from truthfl.ledger.commands import INVITE
from truthfl.ledger.job_view import JobView


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant's name in the job.")],
    out: Out = DEFAULT_OUT,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; NAME.invitation unless given.")
    ] = None,
    line: Annotated[bool, typer.Option("--line", help="Print it as one line instead of writing a file.")] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where they reach the server, if not where it listens.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="How long it is valid; 7 unless given.")] = None,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Invite a participant: they join with one command, which makes their key. It works once, for one key.

    Whoever uses it first takes part under the participant's name, so send it in a way that you both trust.

    Example: truthfl invite Ada --out served
    """
    serving = served_in(out)
    invitation = new_invitation(serving, name, address, USUAL_DAYS if days is None else days)
    target = file or Path(f"{name}.invitation")
    # Checked first, so that no row is signed for an invitation that cannot be stored.
    if not line and not write_file(target, invitation.text(), private=True, keep_existing=True):
        raise InputError(f"{target} exists already, and is not replaced; name another file.")

    def check(view: JobView, live: LiveStatus | None) -> dict[str, str]:
        return invite_fields(view, live, serving, invitation)

    try:
        given = give(out, key, job, who, why, INVITE, check)
    except TruthflError:
        if not line:
            target.unlink(missing_ok=True)
        raise
    if line:
        print(invitation.line())
        return
    given.say(f"{name} is invited by {target}, which is good once, until {until_words(invitation)}.", "")
    print(f"They join with: truthfl join {target.name} --data THEIR-DATA")
