"""`truthfl join`: take part in a job from one's own machine. What it needs is loaded when it is called."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.progress import FAILED, INTERRUPTED
from truthfl.errors import InputError, ServiceError

if TYPE_CHECKING:
    from truthfl.federation.deployed.flower_servers import SuperNode
    from truthfl.ledger.terms import Offer
    from truthfl.page.open_page import OpenPage

HERS_ALONE = 0o700
LOOK_EVERY = 0.5  # seconds
SERVER_ANSWERS_WITHIN = 10.0
PATIENCE = 120.0  # after a crash, a SuperLink holds a key for taken for about a minute


def join(
    server: Annotated[str, typer.Option(help="HOST:PORT of the operator's server.")],
    data: Annotated[Path, typer.Option(help="Folder of PNG or JPEG files, an idx file, or an .npz file.")],
    name: Annotated[str, typer.Option(help="The name that the job knows you by.")],
    key: Annotated[Path, typer.Option(help="Your private key, made by truthfl keys participant.")],
    root: Annotated[Path | None, typer.Option(help="The operator's ca.crt; without it, loopback without TLS.")] = None,
    home: Annotated[Path, typer.Option(help="Your folder: offers, answers, receipts.")] = Path("truthfl-home"),
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
    stay: Annotated[bool, typer.Option("--stay", help="Stay for further jobs after the first receipt.")] = False,
) -> None:
    """Take part: answer the offer, label, train on your own data, get your receipt. Your data stay where they are.

    Where pictures have no labels yet, or the offer is yours to answer, a page opens in your browser.

    Example: truthfl join --server fl.example.org:8000 --root ca.crt --name Ada --key ada --data digits.npz
    """
    from truthfl.federation.deployed.certificates import read_root
    from truthfl.federation.deployed.flower_servers import start_supernode
    from truthfl.federation.participant.node_settings import (
        ACCEPT_ALL,
        ACCEPT_IF_IT_PAYS,
        ASK,
        Settings,
        labeled_pictures,
        participant_of,
    )
    from truthfl.ledger import participant_folder
    from truthfl.studies.reproduce.publication import require_writable

    host, port = _address(server)
    if not name.strip():
        raise InputError("name is empty; it must be the name that the job knows you by.")
    if root is not None:
        read_root(root)
    if accept and if_it_pays:
        raise InputError("--accept and --accept-if-it-pays are both given; one of them will do.")
    for field, cost in (("labeling-cost", labeling_cost), ("sample-cost", sample_cost)):
        if not 0 <= cost < float("inf"):
            raise InputError(f"{field} is {cost}; it must be a number from 0 on.")
    manner = ACCEPT_ALL if accept else ACCEPT_IF_IT_PAYS if if_it_pays else ASK
    shown = (manner == ASK or labeled_pictures(data) is None) if page is None else page
    if manner == ASK and not shown and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask you at; say --accept or --accept-if-it-pays, or open the page.")
    require_writable(home, HERS_ALONE)
    paths = (str(data.resolve()), str(home.resolve()), str(key.resolve()))
    settings = Settings(name, *paths, manner, labeling_cost, sample_cost)
    told = participant_of(settings).describe()
    _require_answer(host, port)
    print(f"truthfl: {name} joins {server} with {told['samples']} samples", flush=True)
    participant_folder.clear_news(home)
    seen = _Seen({offer.hash for offer in participant_folder.offers(home)}, len(participant_folder.receipts(home)))
    try:
        with ExitStack() as opened:
            served = _open_page(opened, home, data, key, no_browser) if shown else None
            with start_supernode(
                home,
                host,
                port,
                root_certificate=root,
                private_key=None if root is None else key,
                node_config=settings.node_config(),
                patience=PATIENCE,
            ) as node:
                print("truthfl: connected", flush=True)
                while not _look(home, key, seen, ask=manner == ASK and not shown) or stay:
                    _require_alive(node)
                    time.sleep(LOOK_EVERY)
            if served is not None:
                _leave_open(served)
        if seen.over:
            raise typer.Exit(FAILED)
    except KeyboardInterrupt:
        print("truthfl: interrupted; the same command joins again.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@dataclass
class _Seen:
    """What lay on her desk when it was last looked at: offers by their hashes, how many receipts, the last news."""

    offers: set[str]
    receipts: int
    news: str | None = None
    over: bool = False


def _look(home: Path, key: Path, seen: _Seen, *, ask: bool) -> bool:
    """Show what has come since; whether that was the last of this job: a receipt, or news that there will be none."""
    from truthfl.ledger import participant_folder

    for offer in participant_folder.offers(home):
        if offer.hash not in seen.offers:
            seen.offers.add(offer.hash)
            _answer(offer, home, key, ask)
    new = participant_folder.receipts(home)[seen.receipts :]
    for paper in new:
        _show_receipt(paper)
    seen.receipts += len(new)
    sentence, over = participant_folder.news(home) or (None, False)
    if sentence not in (None, seen.news):
        print(f"truthfl: {sentence}", file=sys.stderr, flush=True)
    seen.news, seen.over = sentence, over and not new
    return bool(new) or over


def _leave_open(served: OpenPage) -> None:
    """The page, after the job, for as long as she wants to look at her papers."""
    print("truthfl: your page stays open with your papers; Ctrl+C closes it.", flush=True)
    try:
        served.wait()
    except KeyboardInterrupt:
        print()


def _open_page(opened: ExitStack, home: Path, data: Path, key: Path, no_browser: bool) -> OpenPage:
    from truthfl.cli.label import DIGITS, show, tell_passed_over
    from truthfl.federation.participant.node_settings import labeled_pictures, samples_of
    from truthfl.ledger.signing import read_key
    from truthfl.page.open_page import open_page

    readable, _ = samples_of(data, home)  # the same pictures that the node trains on
    tell_passed_over(readable)
    labeled = labeled_pictures(data)
    given = None if labeled is None else labeled.labels.tolist()
    served = opened.enter_context(open_page(home, readable, DIGITS, read_key(key), existing_labels=given))
    print(f"Your page, for this machine alone: {served.url}", flush=True)
    if not no_browser:
        show(served.url, home)
    return served


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"server is {server!r}; it must be HOST:PORT, as in fl.example.org:8000.")
    return host.strip("[]"), int(port)


def _require_answer(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), SERVER_ANSWERS_WITHIN).close()
    except OSError as error:
        why = error.strerror or "no answer"
        raise ServiceError(f"nobody answers at {host}:{port} ({why}); the operator's server must be running.") from None


def _answer(offer: Offer, home: Path, key: Path, ask: bool) -> None:
    from truthfl.ledger import participant_folder
    from truthfl.ledger.signing import read_key
    from truthfl.page.offer_outlook import pay_deviation

    job, client, spread = offer.job, offer.client, pay_deviation(offer)
    print(
        f"Offer of job {job.name}: label {client.samples} pictures ({', '.join(job.classes)}), then {job.rounds} "
        f"rounds with batches of {client.batch_size}.\n"
        f"Expected pay {offer.expected_pay:,.2f} {job.currency}, give or take {spread:,.2f}; "
        f"your cost is taken to be {offer.cost:,.2f}.\n{job.formula}.\n{job.dropping_out}",
        flush=True,
    )
    if ask:
        given = typer.confirm("Do you accept?")
        participant_folder.put_answer(home, offer, read_key(key), accepted=given)


def _show_receipt(paper: dict[str, object]) -> None:
    from truthfl.ledger.receipts import receipt_fault
    from truthfl.ledger.terms import offer_from

    wrong = receipt_fault(paper)
    if wrong is not None:
        print(f"truthfl: the receipt does not hold: {wrong}.", file=sys.stderr)
        raise typer.Exit(FAILED)
    document = paper["document"]
    assert isinstance(document, dict)
    pay, unit = document["settlement"]["pay"], offer_from(document["offer"]).job.currency
    loss = document["test"]["loss"]
    print(f"Receipt of job {document['job']}: test loss {loss:.4f}, pay {pay:,} {unit}. It holds.", flush=True)


def _require_alive(node: SuperNode) -> None:
    dead = [child for child in node.children if child.ended]
    if dead:
        raise ServiceError(f"the node stopped; its log is {dead[0].log}.")
