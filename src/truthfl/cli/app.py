"""The `truthfl` command: which commands there are, and how errors leave. One module per command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from truthfl import __version__
from truthfl.cli import errata, join, keys, label, ledger, plan, reproduce, run, serve, settle, share, verify
from truthfl.errors import InputError

BAD_INPUT = 2

app = typer.Typer(
    help="Federated learning that pays people for honest work.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command(name="run")(run.run)
app.command(name="label")(label.label)
app.command(name="plan")(plan.plan)
app.command(name="verify")(verify.verify)
app.command(name="reproduce")(reproduce.reproduce)
app.command(name="serve")(serve.serve)
app.command(name="join")(join.join)
app.command(name="share")(share.share)
app.command(name="settle")(settle.settle)
app.add_typer(ledger.ledger, name="ledger")
app.add_typer(keys.keys, name="keys")
app.command(name="errata")(errata.show_errata)


def _version(asked: bool) -> None:
    if asked:
        print(f"truthfl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version_asked: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Federated learning that pays people for honest work."""


def main() -> None:
    """Run a command; bad input leaves as one sentence with exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our letters shows others, and no traceback
    try:
        app()
    except InputError as error:
        print(f"truthfl: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        sys.exit(1)
