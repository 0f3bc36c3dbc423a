"""A page that a participant's phone can open: what is said of it, and the QR code of its address."""

from __future__ import annotations

import os
import sys

import segno

from truthfl.page.access import VALID_SECONDS, LoginOutcome
from truthfl.page.phone import PhoneAccess, phone_address
from truthfl.page.serving import OpenPhonePage
from truthfl.texts import plain

MEANING = (
    "What this means: {kind}s and labels travel within your network to your phone, encrypted; nothing goes to the "
    "operator this way.\n"
    "Whoever photographs the code and opens it before you do is let in instead of you; you read here when it is used.\n"
    "A phone that is lost, or a code that somebody else used: Ctrl+C, then the same command shows a new code."
)


def access_from_phone(address: str | None, port: int) -> PhoneAccess:
    """How a phone reaches the page: at this address, or the usual one of this machine."""
    return PhoneAccess(phone_address(address), port, tell_login)


def print_phone_page(page: OpenPhonePage, kind: str) -> None:
    """Show the code and the address for the phone, what to compare, and what this means.

    kind  of the samples: picture, text, row
    """
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
    """Report on standard error the outcome for a device that opened the link."""
    sentences = {
        LoginOutcome.LET_IN: "opened the page, and the code is used up. If that is not your phone, press Ctrl+C now.",
        LoginOutcome.USED: "opened the link after it was used, and was not let in.",
        LoginOutcome.EXPIRED: "opened the link too late, and was not let in; the same command shows a new code.",
        LoginOutcome.WRONG: "tried a link with a wrong token, and was not let in.",
        LoginOutcome.TOO_MANY: "tried too many wrong tokens, and has to wait for a minute.",
    }
    print(f"truthfl: {plain(address)} {sentences[outcome]}", file=sys.stderr, flush=True)


def _code_lines(url: str) -> list[str]:
    lines = qr_lines(url, colours=sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    try:
        "".join(lines).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ["(This terminal cannot show the code: it has no block characters.)"]
    return lines


QUIET = 4  # light modules that must surround the code
LIGHT_ON_DARK = "\x1b[38;5;231;48;5;16m"  # white and black that no colour scheme changes
RESET = "\x1b[0m"
HALVES = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # of upper and lower module: 1 is dark


def qr_matrix(text: str) -> list[list[int]]:
    """The modules of the code with its light border, row by row: 1 is dark."""
    return [list(map(int, row)) for row in segno.make_qr(text, error="l").matrix_iter(border=QUIET)]


def qr_lines(text: str, *, colours: bool) -> list[str]:
    """The code with two modules in each character, light ones drawn.

    colours  sets white and black by escape codes; without them, the terminal's background must be dark
    """
    rows = qr_matrix(text)
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    lines = [
        "".join(HALVES[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]
    return [f"{LIGHT_ON_DARK}{line}{RESET}" for line in lines] if colours else lines
