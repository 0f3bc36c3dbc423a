"""`truthfl join`: take part in a job as a participant, on this machine or with a phone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from truthfl.cli.contracts import CustomContract
from truthfl.cli.participant.pages import DEFAULT_PORT, Phone, PhoneAddress, PhonePort, phone_access
from truthfl.errors import InputError


def join(
    data: Annotated[
        Path, typer.Option(help="Folder of pictures, an idx or .npz file; with --task, the file it reads.")
    ],
    invitation: Annotated[
        str | None,
        typer.Argument(metavar="[INVITATION]", help="The file or line that you got; - reads standard input."),
    ] = None,
    server: Annotated[str | None, typer.Option(help="HOST:PORT of the operator's server, without invitation.")] = None,
    name: Annotated[str | None, typer.Option(help="Your name in the job, without invitation.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="Your private key, made by truthfl keys participant; by join, if invited.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="The operator's ca.crt; without it and an invitation, loopback without TLS.")
    ] = None,
    operator: Annotated[
        Path | None,
        typer.Option(
            help="The operator's public key, operator.pub; offers by other keys are refused. Invitations have it."
        ),
    ] = None,
    home: Annotated[Path, typer.Option(help="Your folder: offers, answers, receipts.")] = Path("truthfl-home"),
    task: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="What is learned: pictures, tables, texts, FILE.py:Class, module:Class, or FILE.toml."
        ),
    ] = "pictures",
    accept: Annotated[bool, typer.Option("--accept", help="Accept any offer; you are asked otherwise.")] = False,
    if_it_pays: Annotated[
        bool, typer.Option("--accept-if-it-pays", help="Accept if the expected pay covers the costs you state.")
    ] = False,
    labeling_cost: Annotated[float, typer.Option(help="What labeling costs you; 0 leaves it to the job.")] = 0.0,
    sample_cost: Annotated[float, typer.Option(help="What one sample in one round costs you.")] = 0.0,
    page: Annotated[
        bool | None, typer.Option(help="Open the page to answer and label; only where it is needed unless given.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the page's address, open nothing.")] = False,
    phone: Phone = False,
    phone_address: PhoneAddress = None,
    phone_port: PhonePort = DEFAULT_PORT,
    _contract: CustomContract = None,
    stay: Annotated[bool, typer.Option("--stay", help="Stay for further jobs after the first receipt.")] = False,
) -> None:
    """Take part: answer the offer, label, train on your own data, get your receipt. Your data stay where they are.

    A page opens in your browser if samples have no labels yet, or if you must answer the offer. The operator's custom
    task is loaded only from the file or module that you name; a FILE.toml has the [task] of the job.

    Example: truthfl join Ada.invitation --data my-pictures
    """
    if accept and if_it_pays:
        raise InputError("--accept and --accept-if-it-pays are both given; one of them will do.")
    for field, cost in (("labeling-cost", labeling_cost), ("sample-cost", sample_cost)):
        if not 0 <= cost < float("inf"):
            raise InputError(f"{field} is {cost}; it must be a number from 0 on.")
    if phone and page is False:
        raise InputError("--phone shows the page, and --no-page does not; say one of them.")
    if not (accept or if_it_pays) and page is False and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask you at; say --accept or --accept-if-it-pays, or open the page.")
    access = phone_access(phone, phone_address, phone_port)
    # These load Flower and NumPy, for which help and wrong options need not wait.
    from truthfl.cli.participant.participation import settings_at, take_part
    from truthfl.federation.deployed.invitations import meeting_place

    place = meeting_place(invitation, server, name, key, root, operator, home)
    settings = settings_at(place, data, home, task, accept, if_it_pays, labeling_cost, sample_cost)
    take_part(place, settings, access, page=page, browser=not no_browser, stay=stay)
