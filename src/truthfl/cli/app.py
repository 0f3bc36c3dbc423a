"""The `truthfl` command: loads its subcommands and reports errors as one sentence with an exit code."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_group

from truthfl import __version__
from truthfl.errors import BAD_INPUT, SERVICE_FAILED, InputError, ServiceError, TruthflError
from truthfl.texts import plain_lines

if TYPE_CHECKING:
    import click

EXIT_CODES = (
    "Exit codes: 0 done; 1 a job failed or a check found a fault; 2 the input cannot be used; "
    "3 network, disk, a port or a process failed, and trying again may help; 130 interrupted."
)

COMMANDS = (  # names of module and function, unless MODULES says otherwise
    "run",
    "label",
    "plan",
    "verify",
    "reproduce",
    "study",
    "serve",
    "status",
    "console",
    "join",
    "share",
    "invite",
    "approve",
    "pause",
    "resume",
    "extend",
    "remove",
    "accept",
    "refuse",
    "end",
    "settle",
    "ledger",
    "keys",
    "backup",
    "restore",
    "errata",
)


JOB_COMMANDS = ("approve", "pause", "resume", "extend", "remove", "accept", "refuse", "end")
MODULES = dict.fromkeys(JOB_COMMANDS, "job_commands") | {
    "study": "reproduce",
    "errata": "reproduce",
    "keys": "invite",
    "share": "invite",
    "restore": "backup",
    "settle": "ledger",
}


class LazyCommands(TyperGroup):
    """A group that imports the module of a command only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return _load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            from difflib import get_close_matches

            suggestion = "".join(f"did you mean {name}? " for name in get_close_matches(args[0], COMMANDS, 1))
            raise InputError(f"there is no command {args[0]!r}; {suggestion}truthfl -h shows them all.")
        return super().resolve_command(ctx, args)


def _load_command(name: str) -> click.Command:
    command = getattr(import_module(f"truthfl.cli.{MODULES.get(name, name)}"), name)
    group = typer.Typer()
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name)
    else:
        group.command(name)(command)
    return get_group(group).commands[name]


app = typer.Typer(
    cls=LazyCommands,
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
