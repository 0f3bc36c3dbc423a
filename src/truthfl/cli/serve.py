"""`truthfl serve`: run a job with participants on other machines, show its page, and print what happens.

A printed line has only named fields of an entry, so no secret of a document is printed. After the job's end, the server
stays for participants who have not received their receipts.
"""

from __future__ import annotations

import json
import math
import select
import shlex
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from truthfl import __version__
from truthfl.cli.job_commands import print_plan_summary
from truthfl.cli.output import console, table
from truthfl.cli.participant.pages import open_in_browser
from truthfl.console.application import open_operator_page
from truthfl.console.metrics import serve_metrics
from truthfl.custom_code import in_folder
from truthfl.errors import FAILED, INTERRUPTED, SERVICE_FAILED, InputError, ServiceError, TruthflError
from truthfl.federation.deployed.admission import KnownKeys, enrolment_warning
from truthfl.federation.deployed.job_server import open_job_server, require_can_listen
from truthfl.federation.deployed.mailboxes import MailboxGrid
from truthfl.federation.operator.approval import PlanSummary, answer_plan, ask_by_file, clear_plan, shown_plan
from truthfl.federation.operator.kept_jobs import (
    JobSource,
    KeptJob,
    choose_job,
    keep_ledger_address,
    kept_key,
    lock_folder,
)
from truthfl.federation.operator.live_status import LiveWriter, RoundWaits, ServingInfo, StageChange, write_serving
from truthfl.federation.operator.row_words import describe_entry, describe_row, waits_words
from truthfl.federation.operator.served_report import client_rows, columns, summary_sentences, write_served_report
from truthfl.federation.protocol.job_control import commanded_answer
from truthfl.federation.protocol.known_models import uncomparable_warnings
from truthfl.federation.protocol.receipt_delivery import owed_receipts
from truthfl.federation.protocol.server import WAITING, Operator, conduct_job, deliver_receipts
from truthfl.files import make_private_folder, require_writable
from truthfl.job import DataJob, read_job_text
from truthfl.ledger.book import Ledger, open_ledger
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_state import JobState
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import PrivateKey, public_line, read_public_line
from truthfl.ledger.sql.database import shown_arguments
from truthfl.ledger.terms import JobTerms
from truthfl.texts import plain, plain_lines

ROWS_SHOWN = 40
TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
REFUSED = "refused"  # the event that somebody was not admitted
WARNING = "warning"
LONGEST_LINE = 1000  # letters
NUMBERS = {  # by kind: the fields of its document that are in a JSON line
    "enrolment": ("samples",),
    "plan": ("step_size", "expected_loss"),
    "hold": ("solo_loss",),
    "audition": ("solo_loss", "passed"),
    "round": ("round", "loss", "accuracy"),
    "rejection": ("round",),
    "test": ("loss", "accuracy", "samples"),
    "settlement": ("delivered", "asked", "pay"),
    "payment": ("amount",),
}
WORDS = {"rejection": ("stage", "reason"), "payment": ("state", "currency")}
SIGNED_KINDS = ("answer", "final", "offer", "command")  # their entries hold a document with its signature


def require_format(name: str) -> str:
    """The name if it is one of a format; an error otherwise."""
    if name not in FORMATS:
        raise InputError(f"log is {plain(name, 40)!r}; it must be {' or '.join(FORMATS)}.")
    return name


def log_line(entry: Entry, terms: JobTerms | None, log_format: str = TEXT) -> str | None:
    """One line about this entry; None if the text format leaves out its kind.

    terms   the job's terms, None before there are any; they define the minor unit
    """
    try:
        if log_format == TEXT:
            line = describe_entry(entry, terms)
            return None if line is None else plain(f"{_local_clock(entry.at)} {line}", LONGEST_LINE)
        return _json(_entry_fields(entry, terms))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        words = f"entry {entry.sequence} was not written by truthfl"
        return (
            plain(words) if log_format == TEXT else _json(_common(entry.at, "warning", "unreadable", entry.job, words))
        )


def stage_line(job: str, change: StageChange | RoundWaits, log_format: str = TEXT) -> str:
    """One line about a stage that the server has entered, a pause, or a round that waits for people."""
    if isinstance(change, RoundWaits):
        return _waits_line(job, change, log_format)
    until = "" if change.deadline is None else f", until {_local_clock(change.deadline)}"
    words = f"stage: {change.stage}{', paused' if change.paused else until}"
    if log_format == TEXT:
        return plain(f"{_local_clock(change.at)} {words}", LONGEST_LINE)
    fields = _common(change.at, "info", "stage", job, words)
    return _json(fields | {"stage": plain(change.stage), "paused": change.paused, "deadline": change.deadline})


def event_line(event: str, job: str, message: str) -> str:
    """A JSON line, with the present time, about something that is in no ledger."""
    level = "warning" if event in (REFUSED, WARNING) else "info"
    return _json(_common(datetime.now(UTC).isoformat(), level, event, job, message))


def _waits_line(job: str, waits: RoundWaits, log_format: str) -> str:
    words = f"{waits_words(waits)}, until {_local_clock(waits.until)} at most"
    if log_format == TEXT:
        return plain(f"{_local_clock(waits.at)} {words}", LONGEST_LINE)
    fields = _common(waits.at, "warning", "waits", job, words)
    return _json(fields | {"round": waits.round, "deadline": plain(waits.until)})


def _entry_fields(entry: Entry, terms: JobTerms | None) -> dict[str, Any]:
    level = "warning" if entry.kind in ("rejection", "hold") else "info"
    fields = _common(entry.at, level, entry.kind, entry.job, describe_row(entry, terms))
    document = entry.document
    fields |= {"client": _client_of(entry), "sequence": entry.sequence}
    fields |= {name: document[name] for name in NUMBERS.get(entry.kind, ()) if _is_number(document.get(name))}
    return fields | {name: plain(document[name]) for name in WORDS.get(entry.kind, ()) if name in document}


def _common(at: str, level: str, event: str, job: str, message: str) -> dict[str, Any]:
    words = plain(message, LONGEST_LINE)
    return {
        "time": plain(at),
        "level": level,
        "event": plain(event),
        "job": plain(job),
        "client": None,
        "message": words,
    }


def _client_of(entry: Entry) -> str | None:
    """The client whom the entry is about; None if it is about all, or about a node that is no client."""
    document = entry.document
    inner = document.get("document", {}) if entry.kind in SIGNED_KINDS else document
    name = entry.key.partition("/")[2] if entry.kind == "offer" else inner.get("client")
    if entry.kind == "enrolment":
        name = document["name"]
    return None if name is None else plain(name)


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _local_clock(at: str) -> str:
    """The time of day, as the operator's clock shows it."""
    return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}"


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


POLL_SECONDS = 0.2


class Narrator:
    """A context manager that prints new entries; entries that exist when it begins are not printed again.

    log_format  one of `job_log.FORMATS`
    live        the server's status, for its stages
    """

    def __init__(self, ledger: Ledger, job: str, log_format: str, live: LiveWriter) -> None:
        self.ledger, self.job, self.log_format, self.live = ledger, job, log_format, live
        self.state = JobState(job)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_new_entries, name="truthfl narrator", daemon=True)

    def __enter__(self) -> Narrator:
        for entry in self.ledger.entries(self.job):
            self.state.add(entry)
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.ledger.stop_waiting()
        self._ended.set()
        self._thread.join()

    def _print_new_entries(self) -> None:
        over = False
        while not over:
            over = self._ended.wait(POLL_SECONDS)
            try:
                self._print_once()
            except ServiceError:  # the ledger is out of reach; the thread that conducts the job reports it
                if over:
                    return

    def _print_once(self) -> None:
        entries = self.ledger.entries(self.job, after=self.state.last)
        changes = deque(self.live.take_stage_changes())
        for entry in entries:
            while changes and changes[0].at <= entry.at:
                self._print_stage(changes.popleft())
            self.state.add(entry)
            line = log_line(entry, self.state.terms, self.log_format)
            if line is not None:
                print(line, flush=True)
        for change in changes:
            self._print_stage(change)

    def _print_stage(self, change: StageChange | RoundWaits) -> None:
        print(stage_line(self.job, change, self.log_format), flush=True)


def tell(log_format: str, event: str, job: str, sentence: str) -> None:
    """Print a sentence that is in no ledger: as it is for people, as an event for programs."""
    print(
        event_line(event, job, sentence) if log_format == JSON else f"truthfl: {plain(sentence, LONGEST_LINE)}",
        flush=True,
    )


def tell_at(log_format: str, event: str, job: str, sentence: str) -> None:
    """As `tell`, but people also see the time of day."""
    if log_format == JSON:
        tell(log_format, event, job, sentence)
    else:
        print(f"{datetime.now():%H:%M:%S} {plain(sentence, LONGEST_LINE)}", flush=True)


MOST_REFUSALS = 100  # printed
MOST_NAMES = 10  # of people, in a sentence
QUESTION = "Send these offers? [y/N]: "


@dataclass(frozen=True)
class ServeChoices:
    """How a job is served.

    ask         whether the operator must approve the plan before offers are sent
    page        whether the operator's page is served
    browser     whether a browser opens it
    metrics     the port of the metrics; None for no metrics
    log_format  one of `job_log.FORMATS`
    linger      for how many minutes the server stays for participants without a receipt
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
    """Listen for nodes, conduct the job unless it is complete, and deliver the outstanding receipts.

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

    unknown  the clients who can still be invited
    """
    short = enrolment_warning(unknown, kept.job.server.enrol_seconds)
    for sentence in (*kept.job.warnings, *([] if short is None else [short]), *uncomparable):
        tell(log_format, WARNING, kept.name, sentence)


def _linger(grid: MailboxGrid, kept: KeptJob, operator: Operator, choices: ServeChoices) -> None:
    """Stay for the chosen time for participants without a receipt; say who they are and what to do."""
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
    """Open the operator's page and the metrics, if requested."""
    if choices.metrics is not None:
        url = stack.enter_context(serve_metrics(choices.metrics, out, serving.ledger, serving.job))
        tell(choices.log_format, "metrics", serving.job, f"metrics are at {url}")
    if choices.page:
        page = stack.enter_context(open_operator_page(out, serving.ledger, serving.job, key))
        print(f"Your page, for this machine alone: {page.url}", file=_for_people(choices.log_format), flush=True)
        if choices.browser:
            open_in_browser(page.url, out)


def _tell_waiting(log_format: str, job: str, clients: int, activity: str, _done: int, _all: int) -> None:
    """Say when the job is in the ledger and participants can be invited."""
    if activity == WAITING:
        tell(log_format, "waiting", job, f"waiting for {clients} clients")


def _refusal_teller(live: LiveWriter, job: str, log_format: str) -> Callable[[str, str], None]:
    """A function that prints each refused connection and its reason once, and notes it in the live status."""
    told = set[tuple[str, str]]()

    def tell_refusal(address: str, reason: str) -> None:
        live.note_refused_connection(address, reason)
        if (address, reason) not in told and len(told) < MOST_REFUSALS:
            told.add((address, reason))
            tell_at(log_format, REFUSED, job, f"{address} was not let in: {reason}")

    return tell_refusal


def _show_unless(log_format: str) -> Callable[[PlanSummary], bool]:
    """A function that approves every plan and shows it to people."""

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
    """Where to print what is not a line of the log, so that it stays apart from lines for programs."""
    return sys.stdout if log_format == TEXT else sys.stderr


MOST_MINUTES = 60 * 24 * 366


def serve(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job; names identify its clients.")],
    out: Annotated[Path, typer.Option(help="The operator's folder: ledger, secrets, checkpoints, models.")] = Path(
        "truthfl-serve"
    ),
    keys: Annotated[
        Path | None, typer.Option(help="Folder that truthfl keys server wrote; without it, loopback without TLS.")
    ] = None,
    participants: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the participants' public keys, NAME.pub each; participants in the operator's folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    ledger: Annotated[str | None, typer.Option(help="File or postgresql:// address; ledger.db in the folder.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="To repeat a job exactly; whoever knows the seed knows the test draw.")
    ] = None,
    contract: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Another contract than the job's: lceme, …, or FILE.py:Class."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin another job in a folder that has one; it is paid separately.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send the offers of the plan without asking; it is shown all the same.")
    ] = False,
    page: Annotated[
        bool | None, typer.Option(help="Open your page, on this machine alone; at a terminal unless --no-page.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the page's address, open nothing.")] = False,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65535, help="Prometheus metrics at this loopback port.")
    ] = None,
    log: Annotated[str, typer.Option(metavar="FORMAT", help="What is printed: text, or json for programs.")] = "text",
    linger: Annotated[
        float,
        typer.Option(metavar="MINUTES", help="How long to stay after the end for those who have no receipt yet."),
    ] = 10.0,
) -> None:
    """Listen for participants and run a job with them, from enrolment to pay.

    When the plan is made, you see the work and pay offered to each client, and decide whether to send these offers:
    here, on your page, or with truthfl approve. To go on with an interrupted job, give the same command again. After
    the job's end, the same command shows the result, and delivers receipts to participants who have none yet.

    Example: truthfl serve hospital.toml --keys keys --participants people --host fl.example.org
    """
    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    if not 0 <= linger <= MOST_MINUTES:
        raise InputError(f"linger is {linger:g}; it must be a number of minutes from 0 to {MOST_MINUTES:,}.")
    if not 0 < port < 65536:
        raise InputError(f"port is {port}; it must be from 1 to 65535.")
    source = JobSource(read_job_text(job_file), job_file.parent, str(job_file), in_folder(contract or ""), seed)
    _require_distinct_keys(participants, source.job())
    people = participants or out / "participants"
    require_format(log)
    with_page = (sys.stdin.isatty() and sys.stdout.isatty()) if page is None else page
    require_can_listen(host, port, keys)
    make_private_folder(out)
    require_writable(out)
    ledger_address = ledger or str((out / "ledger.db").resolve())
    operator_key = (out if keys is None else keys) / "operator"
    with lock_folder(out), open_ledger(ledger_address, kept_key(operator_key)) as opened:
        kept = choose_job(out, opened, source, new=new)
        _tell_differences(kept, job_file, log)
        show_result = partial(_show_result, opened, kept.name, out, log)
        delivers = linger > 0 and bool(owed_receipts(opened, kept.name))
        if kept.complete and not delivers:
            show_result()
        else:
            keep_ledger_address(out, ledger_address)
            serving = ServingInfo(
                kept.name,
                ledger_address,
                str(operator_key.resolve()),
                host,
                port,
                "" if keys is None else str((keys / "ca.crt").resolve()),
                str(people.resolve()),
                public_line(kept_key(operator_key)),
            )
            write_serving(out, serving)
            choices = ServeChoices(not yes, with_page, not no_browser, metrics, log, linger)
            try:
                serve_job(kept, opened, out, serving, keys, choices, show_result)
            except (KeyboardInterrupt, typer.Abort):
                print("truthfl: interrupted; the same command goes on where it was.", file=sys.stderr)
                raise typer.Exit(INTERRUPTED) from None
            except TruthflError as error:
                print(f"truthfl: the job did not end well: {plain_lines(error)}", file=sys.stderr)
                raise typer.Exit(SERVICE_FAILED if isinstance(error, ServiceError) else FAILED) from None


def _tell_differences(kept: KeptJob, job_file: Path, log: str) -> None:
    """Say how the job differs from what its file describes today."""
    if kept.complete:
        tell(log, "complete", kept.name, f"job {kept.name} is complete; --new begins another.")
    elif not kept.is_new:
        tell(log, "resumed", kept.name, f"going on with job {kept.name} as it was begun.")
        for difference in kept.differences:
            tell(log, "difference", kept.name, f"{job_file} differs: {difference}.")
        if kept.differences:
            tell(log, "difference", kept.name, "these changes have no effect; --new begins another job with them.")


def _show_result(ledger: Ledger, name: str, out: Path, log_format: str) -> None:
    """Show the table and the sentences of a job that is over, and write its report."""
    view = job_view(name, ledger.entries(name))
    command = shlex.join(["truthfl", *shown_arguments(sys.argv[1:])])
    report = write_served_report(view, out, command, __version__)
    sentences = summary_sentences(view)
    if log_format == JSON:
        for sentence in sentences:
            tell(log_format, "result", name, sentence)
        return
    screen = console()
    if report is not None:
        rows = client_rows(view)
        shown = rows if len(rows) <= ROWS_SHOWN else [*rows[: ROWS_SHOWN - 1], rows[-1]]
        screen.print(table(f"Job {name}", columns(view), shown))
        if len(rows) > len(shown):
            screen.print(f"{len(rows) - len(shown)} more clients are in the report.")
    for sentence in sentences:
        screen.print(sentence)
    if report is not None:
        screen.print(f"Report: {report}")
    screen.print(f"Ledger: {ledger.name}, job {name}")


def _require_distinct_keys(folder: Path | None, job: DataJob) -> None:
    """Raise InputError if two of the job's clients have the same public key in the folder."""
    if folder is None:
        return
    if not folder.is_dir():
        raise InputError(f"participants is {str(folder)!r}, which is no folder; name the one with the .pub files.")
    paths = [folder / f"{name}.pub" for name in job.clients.name if (folder / f"{name}.pub").is_file()]
    owner: dict[str, Path] = {}
    for path in paths:
        other = owner.setdefault(read_public_line(path), path)
        if other is not path:
            raise InputError(f"{other} and {path} are the same key; each participant needs their own key.")
