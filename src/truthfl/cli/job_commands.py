"""`truthfl approve`, `pause`, `resume`, `end`, `remove`, `accept`, `refuse`, `extend`: what the operator does to a job.

Each writes a signed row to the ledger. The server obeys it, now or when it goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from truthfl.amounts import amount_text
from truthfl.cli.ledger import sentence_for_malformed_rows
from truthfl.cli.output import console, table
from truthfl.errors import InputError
from truthfl.federation.operator.approval import PlanSummary, shown_plan
from truthfl.federation.operator.commands import clock_time, command_fields, commanded_state, user_name, write_command
from truthfl.federation.operator.kept_jobs import LEDGER_ADDRESS, kept_ledger_address
from truthfl.federation.operator.live_status import APPROVING, LiveStatus, read_live_status, read_serving
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.commands import (
    ACCEPT,
    APPROVE,
    DISAPPROVE,
    END,
    EXTEND,
    PAUSE,
    REFUSE,
    REMOVE,
    RESUME,
    Command,
    read_command,
    read_time,
)
from truthfl.ledger.job_view import JobView, select_job
from truthfl.ledger.signing import read_key

Out = Annotated[Path, typer.Option(help="The operator's folder, as in truthfl serve.")]
Key = Annotated[
    Path | None, typer.Option(help="The operator's key; the one that truthfl serve was started with unless given.")
]
Why = Annotated[str, typer.Option(help="The reason: in the ledger, and told to participants.")]
Who = Annotated[str | None, typer.Option("--as", help="Who gives the command; your user name unless given.")]
Job = Annotated[str | None, typer.Option("--job", help="The job's name, if the folder's ledger has several.")]
DEFAULT_OUT = Path("truthfl-serve")


@dataclass(frozen=True)
class Given:
    """The command, its job, whether the job's server runs, and whether there is a contract."""

    command: Command
    runs: bool
    has_contract: bool

    def say(self, sentence: str, later: str = "It takes effect when the server goes on.") -> None:
        print(f"Job {self.command.job}: {sentence}{'' if self.runs or not later else f' {later}'}")


def pause(out: Out = DEFAULT_OUT, key: Key = None, why: Why = "", who: Who = None, job: Job = None) -> None:
    """Pause a job: until truthfl resume, nobody is asked and deadlines stand still.

    A round that has begun is finished first.

    Example: truthfl pause --out served --why "the power goes off at noon"
    """
    _do(PAUSE, out, key, job, who, why).say("paused; truthfl resume lets it go on.")


def resume(out: Out = DEFAULT_OUT, key: Key = None, why: Why = "", who: Who = None, job: Job = None) -> None:
    """Let a paused job go on; the pause extends its deadlines.

    Example: truthfl resume --out served
    """
    _do(RESUME, out, key, job, who, why).say("resumed.")


def end(out: Out = DEFAULT_OUT, key: Key = None, why: Why = "", who: Who = None, job: Job = None) -> None:
    """End a job early. Before there is a contract, nobody is paid; later, delivered work is paid for.

    During labeling, participants who are done audition and are paid for labels. During the rounds, the current round is
    finished and the model is tested; computing is paid in proportion to the contract's rounds.

    Example: truthfl end --out served --why "the model is good enough"
    """
    given = _do(END, out, key, job, who, why)
    given.say(
        "it ends; no further round begins, and what was delivered is paid."
        if given.has_contract
        else "it ends; unless all offers are accepted by now, nobody is paid."
    )


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant's name in the job.")],
    out: Out = DEFAULT_OUT,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Remove a participant; the job goes on with the others.

    Nothing more is asked of them. They are told, keep what they earned, and get a receipt that has this command.

    Example: truthfl remove Ben --out served --why "he asked to leave"
    """
    _do(REMOVE, out, key, job, who, why, client=name).say(f"nothing more is asked of {name}.")


def accept(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant whose solo model waits.")],
    out: Out = DEFAULT_OUT,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Accept a solo model that is too good to be paid unseen. It is paid as offered, and takes part.

    If you did not decide in time, it took part anyway, and its payment waits for this command.

    Example: truthfl accept Ben --out served --why "he is a radiologist"
    """
    _do(ACCEPT, out, key, job, who, why, client=name).say(f"the solo model of {name} is paid as offered.", later="")


def refuse(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant whose solo model waits.")],
    out: Out = DEFAULT_OUT,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Refuse a solo model that is too good. It is not paid, and takes no part in the joint training.

    The participant is told the reason, and gets a receipt that has this command.

    Example: truthfl refuse Ben --out served --why "it is a public model"
    """
    _do(REFUSE, out, key, job, who, why, client=name).say(f"the solo model of {name} is not paid.")


def extend(
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="enrol, answer, label or audition.")],
    minutes: Annotated[float | None, typer.Option("--by", metavar="MINUTES", help="So much longer.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Until then: 14:05 or 2026-05-01T14:05, in UTC.")
    ] = None,
    out: Out = DEFAULT_OUT,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Give participants more time to enrol, answer, label or send their solo models.

    Example: truthfl extend label --by 30 --out served
    """
    given = _do(EXTEND, out, key, job, who, why, stage=stage, minutes=minutes, until=until)
    given.say(f"participants have until {clock_time(read_time(given.command.fields['until']))} to {stage}.")


def approve(
    out: Out = DEFAULT_OUT,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve without being asked; the plan is shown all the same.")
    ] = False,
    decline: Annotated[bool, typer.Option("--decline", help="Send no offer; the job ends.")] = False,
    key: Key = None,
    why: Why = "",
    who: Who = None,
    job: Job = None,
) -> None:
    """Show the plan that waits for approval, and decide whether its offers are sent.

    Example: truthfl approve --out served
    """
    if yes and decline:
        raise InputError("--yes and --decline are both given; one of them will do.")
    nothing = f"no server in {out} waits for approval now; truthfl status says how its job stands."
    plan = shown_plan(out)
    if plan is None:
        raise InputError(nothing)
    print_plan_summary(plan)
    if not (yes or decline):
        if not sys.stdin.isatty():
            raise InputError("there is no terminal to ask you at; say --yes or --decline.")
        if not typer.confirm("Send these offers?"):
            print("Nothing is done, and the server waits; --decline ends the job.")
            return

    def check(view: JobView, live: LiveStatus | None) -> dict[str, str]:
        commanded_state(view)
        if live is None or live.stage != APPROVING or shown_plan(out) != plan:
            raise InputError(nothing)
        return {"plan": digest(plan.document())}

    give(out, key, job, who, why, DISAPPROVE if decline else APPROVE, check).say(
        "no offer is sent, and the job ends." if decline else f"the {len(plan.offers)} offers are sent."
    )


ROWS_SHOWN = 40
COLUMNS = ["client", "labels", "batch", "cost", "expected pay", "of cost", "most", "worth"]


def print_plan_summary(plan: PlanSummary) -> None:
    """A table of the work and pay offered to each client, and some sentences."""
    out, count, units = console(), len(plan.offers), plan.minor_units
    rows = [
        [
            offer.client,
            f"{offer.labels:,}",
            f"{offer.batch_size:,}",
            amount_text(offer.cost, units),
            amount_text(offer.expected_pay, units),
            f"{offer.expected_pay / offer.cost:.2f}",
            amount_text(offer.most, units),
            "–" if offer.worth is None else f"{offer.worth:,.0f}",
        ]
        for offer in plan.offers[:ROWS_SHOWN]
    ]
    if count > ROWS_SHOWN:
        rows.append([f"… {count - ROWS_SHOWN} more", *[""] * 7])
    labels = sum(offer.labels for offer in plan.offers)
    cost, expected, most = (amount_text(a, units) for a in (plan.total_cost, plan.total_expected, plan.total_most))
    rows.append(["total", f"{labels:,}", "", cost, expected, f"{plan.total_expected / plan.total_cost:.2f}", most, ""])
    out.print(table(f"Offers to {count} client{'s' * (count > 1)}, contract {plan.contract}", COLUMNS, rows))
    for sentence in sentences(plan):
        out.print(sentence)


def sentences(plan: PlanSummary) -> list[str]:
    """Worth, cost and pay of the work, what can be owed, warnings, and the clients who are not asked."""
    expected, highest = (amount_text(amount, plan.minor_units) for amount in (plan.total_expected, plan.total_most))
    most = (
        f"and never more than {highest}"
        if plan.has_cap
        else f"and more if the model is better than expected: this contract has no cap, and would pay "
        f"{highest} for a loss of 0"
    )
    found = [
        f"Expected pay is {expected} {plan.currency} in all, up to {plan.largest_factor:.2f} times the "
        f"cost of the work, {most}."
    ]
    return found + plan.sentences + [f"Not asked: {name}; {reason}." for name, reason in plan.left_out.items()]


def _do(
    kind: str, out: Path, key: Path | None, job: str | None, who: str | None, why: str, **asked: str | float | None
) -> Given:
    """Give a command of this kind; for `asked`, see `command_fields`."""
    return give(out, key, job, who, why, kind, partial(command_fields, kind, **asked))  # type: ignore[arg-type]


def give(
    out: Path,
    key_file: Path | None,
    job: str | None,
    who: str | None,
    why: str,
    kind: str,
    fields: Callable[[JobView, LiveStatus | None], dict[str, str]],
) -> Given:
    """Write a command to the ledger of this folder.

    fields  returns the command's fields besides its reason, from the job's present state, or raises `InputError`
    """
    if not out.is_dir():
        raise InputError(f"{out} is no folder; name the one that truthfl serve writes to, with --out.")
    serving, status = read_serving(out), read_live_status(out)
    live = status if status is not None and status.is_current else None
    address = _ledger_address(out) if serving is None else serving.ledger
    open_for_reading(address).close()  # fails if there is no ledger; open_ledger would make one
    operator = read_key(key_file or _usual_key(out, None if serving is None else serving.key))
    with open_ledger(address, operator) as ledger, sentence_for_malformed_rows(ledger):
        recorded = serving.job if serving is not None else None if status is None else status.job
        jobs = ledger.jobs()
        if not jobs or (job is not None and job not in jobs):
            jobs = ledger.all_jobs()  # a message below says that they are another operator's
        name = select_job(jobs, job or (recorded if recorded in jobs else None), ledger.name)
        live = live if live is not None and live.job == name else None
        contracts: list[bool] = []

        def noted(view: JobView) -> dict[str, str]:
            contracts.append(view.agreement is not None)
            return fields(view, live)

        entry = write_command(
            ledger,
            name,
            operator,
            noted,
            kind=kind,
            by=who or user_name(),
            why=why,
            other_key=f"this key is not the key of the operator of job {name}; name theirs with --key.",
        )
    return Given(read_command(entry.document), live is not None, contracts[-1])


def _ledger_address(out: Path) -> str:
    """The ledger of an operator's folder without a record of how the server was started."""
    return kept_ledger_address(out) if (out / LEDGER_ADDRESS).exists() else str(out / "ledger.db")


def _usual_key(out: Path, recorded: str | None) -> Path:
    """The operator's key: the recorded one, or the one in the folder."""
    path = out / "operator" if recorded is None else Path(recorded)
    if not path.is_file():
        raise InputError(f"there is no key of the operator's at {path}; name it with --key.")
    return path
