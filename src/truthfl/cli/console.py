"""`truthfl console`: the operator's page for a job that another process runs, or that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truthfl.cli.contracts import CustomContract
from truthfl.cli.participant.pages import open_in_browser
from truthfl.cli.status import DEFAULT_FOLDER, OneJob, OperatorFolder
from truthfl.console.application import open_operator_page
from truthfl.federation.operator.job_watch import ledger_address_of
from truthfl.federation.operator.live_status import read_serving
from truthfl.ledger.signing import PrivateKey, read_key


def console(
    out: OperatorFolder = DEFAULT_FOLDER,
    job: OneJob = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The operator's private key, which signs commands; the file operator in the folder."),
    ] = None,
    _contract: CustomContract = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")] = False,
) -> None:
    """Watch and steer a job in a page in your own browser.

    The page shows who is there, the loss so far and money; you can pause and end the job, and remove participants. It
    works while the job's server runs in another process, and after the job is over. Whoever has the page's address
    acts with the operator's key. The address works on this machine only and is new each time. Without a key, the page
    only shows the job.

    Example: truthfl console --out served --key keys/operator
    """
    ledger_address_of(out)  # an error if this is not an operator's folder
    with open_operator_page(out, None, job, _key(out, key), port) as opened:
        print(f"The page, for this machine alone: {opened.url}")
        print("Ctrl+C closes it; the job goes on.", flush=True)
        if not no_browser:
            open_in_browser(opened.url, out)
        try:
            opened.wait()
        except KeyboardInterrupt:
            print("\nClosed.")


def _key(folder: Path, option: Path | None) -> PrivateKey | None:
    """The named key, the key that the job was served with, or the one in the folder; None if there is none."""
    if option is not None:
        return read_key(option)
    serving = read_serving(folder)
    default = folder / "operator" if serving is None or not serving.key else Path(serving.key)
    return read_key(default) if default.is_file() else None
