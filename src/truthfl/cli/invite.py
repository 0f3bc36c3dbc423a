"""`truthfl keys`, `truthfl invite` and `truthfl share`: what participants need before they join."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.job_commands import DEFAULT_OUT, Job, Key, Out, Who, Why, give
from truthfl.errors import InputError, TruthflError
from truthfl.files import write_file

if TYPE_CHECKING:
    from truthfl.federation.operator.live_status import LiveStatus
    from truthfl.ledger.job_view import JobView


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
    from truthfl.certificates import require_absent
    from truthfl.ledger.signing import new_key, write_key

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
    from truthfl.certificates import certificates_in, hosts_in, make_certificates, require_absent, valid_until
    from truthfl.ledger.signing import new_key, write_key

    operator, files = out / OPERATOR, certificates_in(out)
    require_absent(operator, Path(f"{operator}.pub"), files.root, files.server, files.server_key)
    make_certificates(out, host or [])
    write_key(new_key(), operator, OPERATOR)
    print(f"Operator's key: {operator}, to sign offers and receipts with. Server's key: {files.server_key}.")
    print(f"Keep both to yourself. Give {files.root} to participants, and {operator}.pub to whoever checks receipts.")
    print(f"The certificate is for {', '.join(hosts_in(files.server))}, until {valid_until(files.server):%Y-%m-%d}.")


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
    from truthfl.federation.deployed.admission import USUAL_DAYS, invite_fields, new_invitation, served_in, until_words
    from truthfl.ledger.commands import INVITE

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


def share(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job on data.")],
    out: Annotated[
        Path, typer.Option(help="Folder for one file per client: NAME.npz of pictures, NAME.csv of others.")
    ] = Path("truthfl-shares"),
    seed: Annotated[int, typer.Option(help="Seed of the labels that clients with a behaviour draw.")] = 0,
    labels: Annotated[
        bool, typer.Option(help="With labels, as each client's behaviour makes them, or without.")
    ] = True,
) -> None:
    """Write each client's share of a job's data to a separate file, in the order in which samples are asked for.

    Use this to try a federation: real participants bring their own data.

    Example: truthfl share hospital.toml --out shares
    """

    import numpy as np

    from truthfl.federation.simulated.participants import in_labeling_order
    from truthfl.files import require_writable, write_file
    from truthfl.job import DataJob, read_job
    from truthfl.learning.data.class_sets import joined
    from truthfl.learning.data.datasets import npz_bytes
    from truthfl.learning.people.labels import sets_given
    from truthfl.learning.people.profile import Profile

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; there is nothing to share.")
    require_writable(out)
    federation = job.simulated_federation()
    federated = in_labeling_order(job, federation.federated)
    profile = Profile(job.clients.behaviour, 1)
    all_labels = profile.labels(federated, seed)
    sets = sets_given(federated, all_labels, profile.labeling_effort(federated.partition.sizes), seed)
    classes = federated.data.classes
    for client, name in enumerate(job.clients.name):
        if "/" in name or name in (".", ".."):
            raise InputError(f"{name!r} cannot be the name of a file; give the client another.")
        rows, own = federated.partition.rows_of(client), federated.samples_of(client)
        own_sets = None if sets is None else sets.take(np.arange(own.start, own.stop))
        if federation.clients_read is None or job.task.is_pictures:
            path = out / f"{name}.npz"
            given = all_labels[own] if own_sets is None else own_sets.matrix(len(classes))
            arrays = {"images": federated.data.features[rows]} | ({"labels": given} if labels else {})
            write_file(path, npz_bytes(arrays, compressed=True))
        else:
            path = out / f"{name}.csv"
            lists = [[label] for label in all_labels[own]] if own_sets is None else own_sets.lists()
            named = tuple(joined(classes[label] for label in one) for one in lists) if labels else None
            federation.task.write(path, replace(federation.clients_read.take(rows), labels=named))
        print(path)
