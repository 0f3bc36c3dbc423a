"""A participant's side of a job at the terminal: the node, its page, and the documents that come."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from truthfl.amounts import amount_text, minor_money
from truthfl.cli.participant.pages import DIGITS, open_in_browser, print_unreadable_samples, tell_phone_page
from truthfl.errors import FAILED, INTERRUPTED
from truthfl.federation.deployed.invitations import MeetingPlace
from truthfl.federation.deployed.node import admit_once, node_connection, open_node, wait_for_server
from truthfl.federation.deployed.node_connection import watch_server
from truthfl.federation.participant.node_settings import (
    ACCEPT_ALL,
    ACCEPT_IF_IT_PAYS,
    ASK,
    Settings,
    labels_came_along,
    participant_of,
    samples_to_show,
    solo_opinion,
)
from truthfl.federation.protocol.messages import RECEIPTS
from truthfl.files import make_private_folder, require_writable
from truthfl.home import participant_folder
from truthfl.home.node_state import ConnectionFile
from truthfl.home.record import late_rounds, report_under_way, unasked_rounds
from truthfl.learning.tasks.task_choice import TaskChoice, absolute_argument
from truthfl.ledger.settlement import was_ended
from truthfl.ledger.signing import read_key
from truthfl.ledger.terms import Offer, offer_from
from truthfl.page.catalogue import in_english
from truthfl.page.offer import noise_words, pay_deviation, promised_to, sample_noun, what_leaves
from truthfl.page.receipt_check import own_receipt_fault
from truthfl.samples.label_store import LABELS_FILE, other_labels, other_labels_in_words
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.page.phone import PhoneAccess
    from truthfl.page.serving import OpenPage

POLL_SECONDS = 0.1
LONGEST_NEWS, LONGEST_TERM = 1000, 2000  # letters of what the server says


def settings_at(
    place: MeetingPlace,
    data: Path,
    home: Path,
    task: str,
    accept: bool,
    if_it_pays: bool,
    labeling_cost: float,
    sample_cost: float,
) -> Settings:
    """The settings of the node; parameters as the options of `truthfl join`."""
    paths = (str(data.resolve()), str(home.resolve()), str(place.key.resolve()))
    policy = ACCEPT_ALL if accept else ACCEPT_IF_IT_PAYS if if_it_pays else ASK
    of_task = absolute_argument(task)
    return Settings(place.name, *paths, policy, labeling_cost, sample_cost, of_task, place.operator)


def take_part(
    place: MeetingPlace, settings: Settings, phone: PhoneAccess | None, *, page: bool | None, browser: bool, stay: bool
) -> None:
    """Join the server and stay until the job is over for the participant.

    phone    how a phone reaches the page, if it does
    page     whether the page is opened; None where it is needed
    browser  whether a browser opens it
    stay     for further jobs, too
    """
    home, key = Path(settings.home), place.key
    connection = node_connection(place.host, place.port, place.root, key)
    asks = settings.accept == ASK
    with_page = phone is not None or ((asks or not labels_came_along(settings)) if page is None else page)
    make_private_folder(home)
    require_writable(home)
    samples = participant_of(settings).samples
    print(f"truthfl: {place.name} joins {place.server} with {samples} samples", flush=True)
    participant_folder.clear_news(home)
    offers = {offer.hash for offer in participant_folder.offers(home)}
    shown = _ShownDocuments(offers, len(participant_folder.receipts(home)))
    try:
        with ExitStack() as open_pages:
            opened_page = _open_page(open_pages, settings, browser, phone) if with_page else None
            with ConnectionFile(home) as state:
                connection.reached = state.note
                wait_for_server(connection, lambda sentence: _tell(sentence + _owed_receipt(home)))
                if place.invitation is not None:
                    admit_once(connection, place.invitation)
                with open_node(connection, settings, _tell) as node, watch_server(connection, state):
                    print("truthfl: connected", flush=True)
                    state.note(True)
                    ask = asks and not with_page
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


def _open_page(open_pages: ExitStack, settings: Settings, browser: bool, phone: PhoneAccess | None) -> OpenPage:
    from truthfl.page.serving import open_page  # a node without a page loads no web server

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
            make_opinion=partial(solo_opinion, settings),
        )
    )
    print(f"Your page, for this machine alone: {page.url}", flush=True)
    tell_phone_page(page, source)
    if browser:
        open_in_browser(page.url, home)
    return page


def _show_offer(offer: Offer, home: Path, key: Path, ask: bool) -> None:
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
    leaves = map(in_english, what_leaves(offer))
    print(f"Your {noun}s and labels stay on this machine. What leaves it:", *leaves, sep="\n- ")
    print(in_english(noise_words(offer, promised_to(offer))), flush=True)
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
