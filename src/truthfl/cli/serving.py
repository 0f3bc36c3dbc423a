"""What `truthfl serve` does while a job runs: listen for nodes, show the page, ask for approval, tell what happens.

After the end it stays for those who have not got their receipts."""

from __future__ import annotations

import select
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TextIO

from truthfl.cli.job_log import REFUSED, TEXT, WARNING
from truthfl.cli.label import open_in_browser
from truthfl.cli.narrator import Narrator, tell, tell_at
from truthfl.cli.plan_approval import print_plan_summary
from truthfl.federation.deployed.inviting import enrolment_warning
from truthfl.federation.deployed.job_server import open_job_server
from truthfl.federation.deployed.known_keys import KnownKeys
from truthfl.federation.deployed.mailbox_grid import MailboxGrid
from truthfl.federation.protocol.approval import PlanSummary
from truthfl.federation.protocol.job_control import commanded_answer
from truthfl.federation.protocol.kept_jobs import KeptJob
from truthfl.federation.protocol.known_models import uncomparable_warnings
from truthfl.federation.protocol.live_status import LiveWriter
from truthfl.federation.protocol.operator_folder import kept_key
from truthfl.federation.protocol.plan_files import answer_plan, ask_by_file, clear_plan, shown_plan
from truthfl.federation.protocol.receipt_delivery import owed_receipts
from truthfl.federation.protocol.server import WAITING, Operator, conduct_job, deliver_receipts
from truthfl.federation.protocol.serving_file import ServingInfo
from truthfl.ledger.book import Ledger
from truthfl.ledger.signing import PrivateKey, public_line

POLL_SECONDS = 0.2
MOST_REFUSALS = 100  # printed
MOST_NAMES = 10  # of people, in a sentence
QUESTION = "Send these offers? [y/N]: "


@dataclass(frozen=True)
class ServeChoices:
    """How a job is served.

    ask         whether offers are sent only after the operator has approved the plan
    page        whether the operator's page is opened
    browser     whether it is opened in a browser
    metrics     the port of metrics; None for none
    log_format  one of `job_log.FORMATS`
    linger      for how many minutes the server stays for those who have not got their receipts
    """

    ask: bool
    page: bool = False
    browser: bool = True
    metrics: int | None = None
    log_format: str = TEXT
    linger: float = 0.0


def serve_job(
    kept: KeptJob,
    ledger: Ledger,
    out: Path,
    serving: ServingInfo,
    keys: Path | None,
    choices: ServeChoices,
    show_result: Callable[[], None],
) -> None:
    """Listen for nodes, conduct the job unless it is complete, and deliver the receipts that nobody took yet.

    keys         the folder with the certificates; None without TLS
    show_result  called when the job is over
    """
    key, draws, names = kept_key(Path(serving.key)), kept.draws, tuple(kept.job.clients.name)
    known = KnownKeys(ledger, kept.name, Path(serving.participants), names)
    live, log_format = LiveWriter(out, kept.name, names, serving.address), choices.log_format
    note = _refusal_teller(live, kept.name, log_format)
    clear_plan(out)
    with ExitStack() as stack:
        server = stack.enter_context(
            open_job_server(
                serving.host, serving.port, keys, known.lines(), known.look_up, note=note, admit=known.admit
            )
        )
        tell(log_format, "listening", kept.name, f"job {kept.name} at {serving.address}")
        if kept.is_new:
            own = known.lines()
            uncomparable = uncomparable_warnings(ledger, out, kept.job)
            _warn(kept, [] if keys is None else [name for name in names if name not in own], uncomparable, log_format)
        _open_more(stack, out, serving, key, choices)
        in_ledger = partial(commanded_answer, ledger, kept.name, public_line(key))
        approve = partial(_ask, out, kept.name, log_format, in_ledger) if choices.ask else _show_unless(log_format)
        operator = Operator(ledger, out, key, draws.secret, draws.seed, keys is not None, approve, live=live)
        if not kept.complete:
            progress = partial(_tell_waiting, log_format, kept.name, len(names))
            with Narrator(ledger, kept.name, log_format, live):
                conduct_job(server.grid, kept.job, kept.name, operator, lambda job, side: job.plan(side), progress)
        show_result()
        _linger(server.grid, kept, replace(operator, live=True), choices)


def _warn(kept: KeptJob, unknown: Sequence[str], uncomparable: Sequence[str], log_format: str) -> None:
    """Warn of deadlines that cannot be kept, and of what is `uncomparable`.

    unknown  those who can still be invited
    """
    short = enrolment_warning(unknown, kept.job.server.enrol_seconds)
    for sentence in (*kept.job.warnings, *([] if short is None else [short]), *uncomparable):
        tell(log_format, WARNING, kept.name, sentence)


def _linger(grid: MailboxGrid, kept: KeptJob, operator: Operator, choices: ServeChoices) -> None:
    """Stay for those who have not got their receipts, for the time that was chosen; say who they are and what to do."""
    say = partial(tell, choices.log_format, "receipts", kept.name)
    missing = owed_receipts(operator.ledger, kept.name)
    if missing and choices.linger:
        until = datetime.now().astimezone() + timedelta(minutes=choices.linger)
        say(
            f"{_names(missing)} {'has' if len(missing) == 1 else 'have'} no receipt yet. This server delivers until "
            f"{until:%Y-%m-%d %H:%M} (--linger); Ctrl+C ends it."
        )
        with suppress(KeyboardInterrupt):
            deliver_receipts(
                grid,
                kept.job,
                kept.name,
                operator,
                60 * choices.linger,
                lambda name: say(f"{name} has got the receipt."),
            )
        missing = owed_receipts(operator.ledger, kept.name)
    if missing:
        say(
            f"without a receipt: {_names(missing)}. The same command delivers it when they join again; truthfl ledger "
            "receipt writes it as a file."
        )


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _open_more(stack: ExitStack, out: Path, serving: ServingInfo, key: PrivateKey, choices: ServeChoices) -> None:
    """Open the operator's page and the metrics, if they are wanted."""
    if choices.metrics is not None:
        from truthfl.console.serve_metrics import serve_metrics

        url = stack.enter_context(serve_metrics(choices.metrics, out, serving.ledger, serving.job))
        tell(choices.log_format, "metrics", serving.job, f"metrics are at {url}")
    if choices.page:
        from truthfl.console.open_operator_page import open_operator_page

        page = stack.enter_context(open_operator_page(out, serving.ledger, serving.job, key))
        print(f"Your page, for this machine alone: {page.url}", file=_for_people(choices.log_format), flush=True)
        if choices.browser:
            open_in_browser(page.url, out)


def _tell_waiting(log_format: str, job: str, clients: int, activity: str, _done: int, _all: int) -> None:
    """Tell when the job is in the ledger and participants can be invited."""
    if activity == WAITING:
        tell(log_format, "waiting", job, f"waiting for {clients} clients")


def _refusal_teller(live: LiveWriter, job: str, log_format: str) -> Callable[[str, str], None]:
    """A function that tells who was not let in and why, the same only once, and notes it in the live status."""
    told = set[tuple[str, str]]()

    def tell_refusal(address: str, reason: str) -> None:
        live.note_refused_connection(address, reason)
        if (address, reason) not in told and len(told) < MOST_REFUSALS:
            told.add((address, reason))
            tell_at(log_format, REFUSED, job, f"{address} was not let in: {reason}")

    return tell_refusal


def _show_unless(log_format: str) -> Callable[[PlanSummary], bool]:
    """A function that approves every plan, and shows it to people."""

    def show(plan: PlanSummary) -> bool:
        if log_format == TEXT:
            print_plan_summary(plan)
        return True

    return show


def _ask(out: Path, job: str, log_format: str, in_ledger: Callable[[str], bool | None], plan: PlanSummary) -> bool:
    """Show a plan; wait until it is answered at the terminal, on the page, or by `truthfl approve`."""
    if log_format == TEXT:
        print_plan_summary(plan)
    else:
        tell(log_format, "approval", job, f"a plan with {len(plan.offers)} offers waits for approval")
    if not sys.stdin.isatty():
        where = shlex.quote(str(out))
        tell(log_format, "approval", job, f"it waits for you: truthfl approve --out {where}, or truthfl console.")
    answered = threading.Event()
    asking = (out, plan, log_format, answered)
    threading.Thread(target=_read_terminal, args=asking, name="truthfl terminal", daemon=True).start()
    try:
        approved = ask_by_file(out, plan, in_ledger)
    finally:
        answered.set()
    told = "The offers are sent." if approved else "No offer is sent."
    if log_format == TEXT:
        print(f"\n{told}", flush=True)
    else:
        tell(log_format, "approval", job, told)
    return approved


def _read_terminal(out: Path, plan: PlanSummary, log_format: str, answered: threading.Event) -> None:
    """Ask at the terminal, until the plan is answered here or elsewhere; anything but yes is no."""
    while shown_plan(out) != plan:
        if answered.wait(POLL_SECONDS):
            return
    if not sys.stdin.isatty():
        return
    print(QUESTION, end="", file=_for_people(log_format), flush=True)
    while not answered.is_set():
        if not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
            continue
        line = sys.stdin.readline()
        if line:
            answer_plan(out, plan, approved=line.strip().lower() in ("y", "yes"))
        return


def _for_people(log_format: str) -> TextIO:
    """Where to print what is no line of the log: not among the lines for programs."""
    return sys.stdout if log_format == TEXT else sys.stderr
