"""What `truthfl label` and `truthfl join` share of their pages, without loading a web server: options, messages.

A page for a phone is in `phone`, which is loaded with --phone alone.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.page.phone import PhoneAccess
    from truthfl.page.serving import OpenPage
    from truthfl.samples.sample import Source

DIGITS = tuple("0123456789")
DEFAULT_PORT = 8473
Phone = Annotated[
    bool, typer.Option("--phone", help="Serve the page to your phone, too: encrypted, in your network, to one device.")
]
PhoneAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="With --phone: this machine's address in your network, if not the usual one."),
]
PhonePort = Annotated[
    int,
    typer.Option(min=0, max=65535, help="With --phone: its port, always the same; 0 takes one that is free."),
]


def phone_access(phone: bool, address: str | None, port: int) -> PhoneAccess | None:
    """How a phone reaches the page; None if it does not."""
    if not phone:
        if address is not None:
            raise InputError("--phone-address is for --phone; say that, too.")
        return None
    from truthfl.cli.participant.phone import access_from_phone

    return access_from_phone(address, port)


def tell_phone_page(page: OpenPage, source: Source) -> None:
    """Show how a phone opens the page, if one may."""
    if page.phone is not None:
        from truthfl.cli.participant.phone import print_phone_page

        print_phone_page(page.phone, source.kind)


def open_in_browser(url: str, home: Path) -> None:
    """Open the address in the browser through a private file that redirects to it.

    The address contains a token, and all users of the machine can see the arguments of a process.
    """
    file = home / "page.html"
    redirect = f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}">\n'
    write_file(file, redirect, private=True)
    webbrowser.open(file.resolve().as_uri())


def print_unreadable_samples(source: Source) -> None:
    for problem in source.problems:
        print(f"truthfl: passed over: {plain(problem.reason)}", file=sys.stderr)
