"""`truthfl join`: take part in a job as a participant, on this machine or with a phone."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import FAILED, INTERRUPTED, InputError
from truthfl.files import make_private_folder
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.federation.participant.node_settings import Settings
    from truthfl.learning.people.second_opinion import OpinionSource
    from truthfl.ledger.terms import Offer
    from truthfl.page.access import LoginOutcome
    from truthfl.page.phone import PhoneAccess
    from truthfl.page.serving import OpenPage, OpenPhonePage


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
    """How a phone reaches the page; None if it does not."""
    if not phone:
        if address is not None:
            raise InputError("--phone-address is for --phone; say that, too.")
        return None
    from truthfl.page.phone import PhoneAccess, phone_address

    return PhoneAccess(phone_address(address), port, tell_login)


def print_phone_page(page: OpenPhonePage, kind: str) -> None:
    """Show the code and the address for the phone, what to compare, and what this means.

    kind  of the samples: picture, text, row
    """
    from truthfl.page.access import VALID_SECONDS

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
    from truthfl.page.access import LoginOutcome

    sentences = {
        LoginOutcome.LET_IN: "opened the page, and the code is used up. If that is not your phone, press Ctrl+C now.",
        LoginOutcome.USED: "opened the link after it was used, and was not let in.",
        LoginOutcome.EXPIRED: "opened the link too late, and was not let in; the same command shows a new code.",
        LoginOutcome.WRONG: "tried a link with a wrong token, and was not let in.",
        LoginOutcome.TOO_MANY: "tried too many wrong tokens, and has to wait for a minute.",
    }
    print(f"truthfl: {plain(address)} {sentences[outcome]}", file=sys.stderr, flush=True)


def _code_lines(url: str) -> list[str]:
    from truthfl.cli.output import qr_lines

    lines = qr_lines(url, colours=sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    try:
        "".join(lines).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ["(This terminal cannot show the code: it has no block characters.)"]
    return lines


POLL_SECONDS = 0.1
LONGEST_NEWS, LONGEST_TERM = 1000, 2000  # letters of what the server says


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
    stay: Annotated[bool, typer.Option("--stay", help="Stay for further jobs after the first receipt.")] = False,
) -> None:
    """Take part: answer the offer, label, train on your own data, get your receipt. Your data stay where they are.

    A page opens in your browser if samples have no labels yet, or if you must answer the offer. The operator's custom
    task is loaded only from the file or module that you name; a FILE.toml has the [task] of the job.

    Example: truthfl join Ada.invitation --data my-pictures
    """
    from truthfl.federation.deployed.invitations import meeting_place
    from truthfl.federation.deployed.node import admit_once, node_connection, open_node, wait_for_server
    from truthfl.federation.deployed.node_connection import watch_server
    from truthfl.federation.participant.node_settings import (
        ACCEPT_ALL,
        ACCEPT_IF_IT_PAYS,
        ASK,
        Settings,
        labels_came_along,
        participant_of,
    )
    from truthfl.files import require_writable
    from truthfl.home import participant_folder
    from truthfl.home.node_state import ConnectionFile
    from truthfl.learning.tasks.task_choice import absolute_argument

    if accept and if_it_pays:
        raise InputError("--accept and --accept-if-it-pays are both given; one of them will do.")
    for field, cost in (("labeling-cost", labeling_cost), ("sample-cost", sample_cost)):
        if not 0 <= cost < float("inf"):
            raise InputError(f"{field} is {cost}; it must be a number from 0 on.")
    if phone and page is False:
        raise InputError("--phone shows the page, and --no-page does not; say one of them.")
    accept_policy = ACCEPT_ALL if accept else ACCEPT_IF_IT_PAYS if if_it_pays else ASK
    if accept_policy == ASK and page is False and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask you at; say --accept or --accept-if-it-pays, or open the page.")
    place = meeting_place(invitation, server, name, key, root, operator, home)
    server, name, key = place.server, place.name, place.key
    connection = node_connection(place.host, place.port, place.root, key)
    paths = (str(data.resolve()), str(home.resolve()), str(key.resolve()))
    of_task = absolute_argument(task)
    settings = Settings(name, *paths, accept_policy, labeling_cost, sample_cost, of_task, place.operator)
    with_page = phone or ((accept_policy == ASK or not labels_came_along(settings)) if page is None else page)
    access = phone_access(phone, phone_address, phone_port)
    make_private_folder(home)
    require_writable(home)
    samples = participant_of(settings).samples
    print(f"truthfl: {name} joins {server} with {samples} samples", flush=True)
    participant_folder.clear_news(home)
    offers = {offer.hash for offer in participant_folder.offers(home)}
    shown = _ShownDocuments(offers, len(participant_folder.receipts(home)))
    try:
        with ExitStack() as open_pages:
            opened_page = _open_page(open_pages, settings, no_browser, access) if with_page else None
            with ConnectionFile(home) as state:
                connection.reached = state.note
                wait_for_server(connection, lambda sentence: _tell(sentence + _owed_receipt(home)))
                if place.invitation is not None:
                    admit_once(connection, place.invitation)
                with open_node(connection, settings, _tell) as node, watch_server(connection, state):
                    print("truthfl: connected", flush=True)
                    state.note(True)
                    ask = accept_policy == ASK and not with_page
                    while not _show_new_documents(home, key, shown, ask=ask) or stay:
                        if node.failed is not None:
                            raise node.failed
                        time.sleep(POLL_SECONDS)
            if opened_page is not None:
                _keep_open(opened_page)
        if shown.over or shown.faulty:
            raise typer.Exit(FAILED)
    except KeyboardInterrupt:
        print("truthfl: interrupted; the same command joins again.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _owed_receipt(home: Path) -> str:
    """What to do if no server answers a participant who accepted an offer and has no receipt of that job."""
    from truthfl.home import participant_folder

    offer = participant_folder.last_accepted_offer(home)
    if offer is None or participant_folder.receipt_files(home, offer.job.name):
        return ""
    return (
        f" You have no receipt of job {plain(offer.job.name)}. If it is over, ask the operator to give truthfl serve "
        f"again while you wait here, or for the file that truthfl ledger receipt writes; it belongs into "
        f"{home / 'receipts'}."
    )


def _tell(sentence: str) -> None:
    print(f"truthfl: {plain(sentence, LONGEST_NEWS)}", file=sys.stderr, flush=True)


@dataclass
class _ShownDocuments:
    """The documents in the participant's folder that were shown: hashes of offers, number of receipts, last news.

    over    whether the job is over for the participant, without a receipt
    faulty  whether a receipt does not hold, or contradicts what the participant's computer sent
    """

    offers: set[str]
    receipts: int
    news: str | None = None
    over: bool = False
    faulty: bool = False


def _show_new_documents(home: Path, key: Path, shown: _ShownDocuments, *, ask: bool) -> bool:
    """Show new offers, receipts and news; return whether the job is over, by its receipt or by news.

    ask  whether offers are answered in the terminal
    """
    from truthfl.federation.protocol.messages import RECEIPTS
    from truthfl.home import participant_folder

    for offer in participant_folder.offers(home, shown.offers):
        shown.offers.add(offer.hash)
        _show_offer(offer, home, key, ask)
    new_receipts = participant_folder.receipts(home, shown.receipts)
    for receipt in new_receipts:
        shown.faulty |= not _show_receipt(receipt, home, key)
    shown.receipts += len(new_receipts)
    current = participant_folder.current_job(home)
    paid = any(receipt["document"].get("job") == current for receipt in new_receipts)
    news = participant_folder.last_news(home)
    if news is None:
        return paid
    if news.sentence != shown.news:
        _tell(news.sentence)
    shown.news, shown.over = news.sentence, news.over and not paid and news.about != RECEIPTS
    return paid or news.over


def _keep_open(page: OpenPage) -> None:
    """Keep the page open after the job, until Ctrl+C."""
    print("truthfl: your page stays open with your documents; Ctrl+C closes it.", flush=True)
    try:
        page.wait()
    except KeyboardInterrupt:
        print()


def _open_page(open_pages: ExitStack, settings: Settings, no_browser: bool, phone: PhoneAccess | None) -> OpenPage:
    from truthfl.cli.label import DIGITS, open_in_browser, print_unreadable_samples
    from truthfl.federation.participant.node_settings import samples_to_show
    from truthfl.learning.tasks.task_choice import TaskChoice
    from truthfl.ledger.signing import read_key
    from truthfl.page.serving import open_page

    home = Path(settings.home)
    source, labels = samples_to_show(settings)  # the same samples that the node trains on
    print_unreadable_samples(source)
    names = tuple(label for label in labels or () if isinstance(label, str))
    task = TaskChoice.of_argument(settings.task).load()
    of_task = task.class_names_in(names) if names else task.classes
    classes = of_task or (() if labels is None else DIGITS)  # the job's classes come with the offer
    page = open_pages.enter_context(
        open_page(
            home,
            source,
            classes,
            read_key(Path(settings.key)),
            existing_labels=labels,
            several=task.several_labels,
            phone=phone,
            make_opinion=partial(_opinion, settings),
        )
    )
    print(f"Your page, for this machine alone: {page.url}", flush=True)
    if page.phone is not None:
        print_phone_page(page.phone, source.kind)
    if not no_browser:
        open_in_browser(page.url, home)
    return page


def _opinion(settings: Settings) -> OpinionSource:
    """The participant's own model, which judges their labels."""
    from truthfl.federation.participant.node_settings import solo_opinion

    return solo_opinion(settings)


def _show_offer(offer: Offer, home: Path, key: Path, ask: bool) -> None:
    from truthfl.home import participant_folder
    from truthfl.ledger.evidence import amount_text
    from truthfl.ledger.signing import read_key
    from truthfl.page.catalogue import english
    from truthfl.page.offer import noise_words, pay_deviation, promised_to, sample_noun, what_leaves
    from truthfl.samples.label_store import LABELS_FILE, other_labels, other_labels_in_words

    def money(amount: float) -> str:
        return amount_text(amount, offer.job.minor_units)

    job, client, deviation, noun = offer.job, offer.client, pay_deviation(offer), sample_noun(offer)
    alone = " train a model on them alone," if job.has_solo_models else ""
    classes = plain(", ".join(map(str, job.classes)))
    several = f"; a {noun} may have several" if job.several_labels else ""
    print(
        f"Offer of job {plain(job.name)}: label {client.samples} {noun}s ({classes}{several}),{alone} then "
        f"{job.rounds} rounds with batches of {client.batch_size}.\n"
        f"Expected pay {money(offer.expected_pay)} {plain(job.currency, 30)}, give or take {money(deviation)}; "
        f"your cost is taken to be {money(offer.cost)}.\n{plain(job.formula, LONGEST_TERM)}.\n"
        f"{plain(job.dropping_out, LONGEST_TERM)}",
    )
    if job.payment_note:
        print(f"How and when you are paid, the operator says: {plain(job.payment_note)}")
    print(
        f"Your {noun}s and labels stay on this machine. What leaves it:", *map(english, what_leaves(offer)), sep="\n- "
    )
    print(english(noise_words(offer, promised_to(offer))), flush=True)
    if job.picture_fit:
        height, width, *_ = job.image_shape
        print(
            f"For training, pictures of other sizes are scaled to fit into {width}×{height} pixels, with black around; "
            "your files stay as they are.",
            flush=True,
        )
    other = other_labels(home / LABELS_FILE, job.classes, several=job.several_labels)
    if other:
        _tell(f"in {home / LABELS_FILE}, {other_labels_in_words(other, job.classes)}")
    if ask:
        accepted = typer.confirm("Do you accept?")
        participant_folder.put_answer(home, offer, read_key(key), accepted=accepted)


def _show_receipt(receipt: dict[str, object], home: Path, key: Path) -> bool:
    """Check a receipt, also against what the participant's computer sent, and show it; return whether it holds."""
    from truthfl.home.record import late_rounds, report_under_way, unasked_rounds
    from truthfl.ledger.evidence import amount_text, minor_money
    from truthfl.ledger.settlement import was_ended
    from truthfl.ledger.signing import read_key
    from truthfl.ledger.terms import offer_from
    from truthfl.page.receipt_check import own_receipt_fault

    fault = own_receipt_fault(home, receipt, read_key(key))
    if fault is not None:
        print(f"truthfl: THE RECEIPT DOES NOT HOLD: {plain(fault)}.", file=sys.stderr, flush=True)
        return False
    document = receipt["document"]
    assert isinstance(document, dict)
    offer = offer_from(document["offer"])
    settled, job, words = document["settlement"], offer.job, offer.contract.part_words
    paid = minor_money(settled["pay"], job.minor_units, job.currency)
    loss, parts = document["test"]["loss"], ""
    if words:
        told = (f"{amount_text(settled[part], job.minor_units)} for {what}" for part, what in words.items())
        parts = f" ({', '.join(told)})"
    print(
        plain(f"Receipt of job {document['job']}: test loss {loss:.4f}, pay {paid}{parts}. It holds."),
        flush=True,
    )
    under_way = report_under_way(home, document)
    if under_way is not None:
        why = "ended the job" if was_ended(document) else "removed you"
        print(
            f"Your report of round {under_way} was on its way when the operator {why}; it is not counted.", flush=True
        )
    late = late_rounds(home, document)
    if late:
        print(
            f"By the receipt, reports of yours came too late and are not counted: round {', '.join(map(str, late))}.",
            flush=True,
        )
    unasked = unasked_rounds(home, document)
    if unasked:
        print(f"In {unasked} rounds that count as missed, no message came to this computer.", flush=True)
    return True
