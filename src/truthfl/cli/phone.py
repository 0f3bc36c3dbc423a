"""The page from a phone: options of `label` and `join`, and what the terminal shows: a code and a fingerprint."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import InputError
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.page.one_time_login import LoginOutcome
    from truthfl.page.open_phone_page import PhoneAccess
    from truthfl.page.serving import OpenPhonePage

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

MEANING = (
    "What this means: {kind}s and labels travel within your network to your phone, encrypted; nothing goes to the "
    "operator this way.\n"
    "Whoever photographs the code and opens it before you do is let in instead of you; you read here when it is used.\n"
    "A phone that is lost, or a code that somebody else used: Ctrl+C, then the same command shows a new code."
)


def phone_access(phone: bool, address: str | None, port: int) -> PhoneAccess | None:
    """How a phone is to reach the page; None if it is not."""
    if not phone:
        if address is not None:
            raise InputError("--phone-address is for --phone; say that, too.")
        return None
    from truthfl.page.open_phone_page import PhoneAccess
    from truthfl.page.phone_address import phone_address

    return PhoneAccess(phone_address(address), port, tell_login)


def print_phone_page(page: OpenPhonePage, kind: str) -> None:
    """Show the code and the address for the phone, what to compare, and what it means.

    kind  of the samples: picture, text, row
    """
    from truthfl.page.one_time_login import VALID_SECONDS

    print(f"\nFor your phone: scan this code within {VALID_SECONDS / 60:.0f} minutes; it lets in one device, once.")
    for line in _code_lines(page.url):
        print(line)
    print(f"Or open this address there: {page.url}")
    new = "" if page.is_new_certificate else ", unless you told it to trust it before"
    print(f"Its browser will warn of the certificate{new}. Go on if the SHA-256 fingerprint that it shows is this one:")
    half = len(page.fingerprint) // 2
    print(f"    {page.fingerprint[:half]}\n    {page.fingerprint[half + 1 :]}")
    print(f"{MEANING.format(kind=kind)}\n", flush=True)


def tell_login(outcome: LoginOutcome, address: str) -> None:
    """Say on standard error what became of a device that opened the link."""
    from truthfl.page.one_time_login import LoginOutcome

    sentences = {
        LoginOutcome.LET_IN: "opened the page, and the code is used up. If that is not your phone, press Ctrl+C now.",
        LoginOutcome.USED: "opened the link after it was used, and was not let in.",
        LoginOutcome.EXPIRED: "opened the link too late, and was not let in; the same command shows a new code.",
        LoginOutcome.WRONG: "tried a link with a wrong token, and was not let in.",
        LoginOutcome.TOO_MANY: "tried too many wrong tokens, and has to wait for a minute.",
    }
    print(f"truthfl: {plain(address)} {sentences[outcome]}", file=sys.stderr, flush=True)


def _code_lines(url: str) -> list[str]:
    from truthfl.cli.qr_code import qr_lines

    lines = qr_lines(url, colours=sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    try:
        "".join(lines).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ["(This terminal cannot show the code: it has no block characters.)"]
    return lines
