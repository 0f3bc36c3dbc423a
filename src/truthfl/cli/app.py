"""The `truthfl` command: loads its subcommands and reports errors as one sentence with an exit code."""

from __future__ import annotations

import io
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated

import click
import typer
from typer.core import TyperGroup
from typer.main import get_group

from truthfl import __version__
from truthfl.errors import BAD_INPUT, SERVICE_FAILED, InputError, ServiceError, TruthflError
from truthfl.texts import plain_lines

EXIT_CODES = (
    "Exit codes: 0 done; 1 a job failed or a check found a fault; 2 the input cannot be used; "
    "3 network, disk, a port or a process failed, and trying again may help; 130 interrupted."
)

COMMANDS = {  # name: the module with a function of this name, and the first sentence of the command's help
    "run": ("run", "Run a job in one process: enrol, plan, offer, label, audition, train, test, pay, report."),
    "label": ("participant.label", "Label pictures, texts or rows of a table in a page in your own browser."),
    "plan": ("plan", "What each client would be asked to do, and their pay."),
    "verify": ("verify", "Does lying pay?"),
    "reproduce": ("reproduce", "Reproduce the paper's figures and claims on real MNIST: a report, pictures, tables."),
    "study": ("reproduce", "Questions beyond one job, answered by many trainings."),
    "serve": ("serve", "Listen for participants and run a job with them, from enrolment to pay."),
    "status": ("status", "Show the state of a job: stage, deadline, participants, their work, the loss so far, money."),
    "console": ("console", "Watch and steer a job in a page in your own browser."),
    "join": ("participant.join", "Take part: answer the offer, label, train on your own data, get your receipt."),
    "share": ("run", "Write each client's share of a job's data to a separate file."),
    "invite": ("invite", "Invite a participant: they join with one command, which makes their key."),
    "approve": ("job_commands", "Show the plan that waits for approval, and decide whether its offers are sent."),
    "pause": ("job_commands", "Pause a job: until truthfl resume, nobody is asked and deadlines stand still."),
    "resume": ("job_commands", "Let a paused job go on; the pause extends its deadlines."),
    "extend": ("job_commands", "Give participants more time to enrol, answer, label or send their solo models."),
    "remove": ("job_commands", "Remove a participant; the job goes on with the others."),
    "accept": ("job_commands", "Accept a solo model that is too good to be paid unseen."),
    "refuse": ("job_commands", "Refuse a solo model that is too good."),
    "end": ("job_commands", "End a job early."),
    "settle": ("ledger", "Settle a trained and tested job."),
    "ledger": ("ledger", "Show, check and export what was promised and paid."),
    "keys": ("keys", "Make keys and certificates for a federation over a network."),
    "backup": ("backup", "Back up ledger, models, secrets and keys as of one moment, even while the server runs."),
    "restore": ("backup", "Restore what truthfl backup wrote."),
    "errata": ("reproduce", "The paper's errors: what it prints, what is right, and what goes wrong otherwise."),
}


class ListedCommands(TyperGroup):
    """The commands of the list above; the module of one is imported when it is called or asked for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """What the help of `truthfl` shows of a command."""
        return click.Command(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            suggestion = "".join(f"did you mean {name}? " for name in get_close_matches(args[0], COMMANDS, 1))
            raise InputError(f"there is no command {args[0]!r}; {suggestion}truthfl -h shows them all.")
        return args[0], load_command(args[0]), args[1:]


def load_command(name: str) -> click.Command:
    """The command, from its module."""
    command = getattr(import_module(f"truthfl.cli.{COMMANDS[name][0]}"), name)
    group = typer.Typer()
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name)
    else:
        group.command(name)(command)
    return get_group(group).commands[name]


app = typer.Typer(
    cls=ListedCommands,
    help="Federated learning that pays people for honest work.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"truthfl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version_requested: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Federated learning that pays people for honest work."""


def main() -> None:
    """Run a command; print an error as one sentence and exit with 2 for bad input, 3 for network, disk or processes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # no UnicodeEncodeError on a terminal without some character
    try:
        app()
    except TruthflError as error:
        print(f"truthfl: {plain_lines(error)}", file=sys.stderr)
        sys.exit(SERVICE_FAILED if isinstance(error, ServiceError) else BAD_INPUT)
    except MemoryError:
        print("truthfl: there is not enough memory; fewer samples, clients or draws need less.", file=sys.stderr)
        sys.exit(SERVICE_FAILED)
    except BrokenPipeError:  # the program that reads the output ended
        sys.stderr.close()
        sys.exit(1)
