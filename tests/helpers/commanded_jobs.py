"""Jobs that tests control: commands at chosen moments, held steps, the operator's page, strange enrolments."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx

from helpers import databases as ledgers
from helpers.auditions import QUICK, Setting, audition_job, audition_job_file
from helpers.shared import built_folder, shared_folder
from helpers.small_jobs import small_job_file
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.live_status import ServingInfo, write_serving
from truthfl.federation.protocol.enrolment import Roster, limits_of
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import FIRST_NODE, InProcessGrid, grid_of, simulated_participants
from truthfl.home import participant_folder
from truthfl.job import participants, read_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command, time_text
from truthfl.ledger.signing import public_line, read_key
from truthfl.page.access import CSRF_HEADER
from truthfl.page.receipt_check import own_receipt_fault


class At(InProcessGrid):
    """A grid that does something before the nth sending of messages whose type has this word."""

    def __init__(self, grid, word, nth, act):
        self.__dict__.update(vars(grid))
        self.word, self.nth, self.act, self.count = word, nth, act, 0
        self.sent = []

    def push_messages(self, messages):
        messages = list(messages)
        types = {message.metadata.message_type for message in messages}
        if any(self.word in kind for kind in types):
            self.count += 1
            if self.count == self.nth:
                self.act()
        self.sent += [(message.metadata.message_type, message.metadata.dst_node_id) for message in messages]
        return super().push_messages(messages)

    def times_asked(self, word, node):
        """How often this node got messages of such a type."""
        return sum(word in kind and to == node for kind, to in self.sent)


class Commanded(Setting):
    """The audition job of four, with an operator who gives commands from another process."""

    def command(self, kind, why="", **fields):
        key = kept_key(self.folder / "operator")
        with open_ledger(self.folder / "ledger.db", key) as book:
            name = job_name(book, self.job, self.seed)
            return give_command(book, name, key, lambda: new_command(kind, name, "Olga", why, **fields))

    def commanding(self, word, nth, kind, why="", **fields):
        """A grid on which this command comes at that moment."""
        return At(self.grid, word, nth, lambda: self.command(kind, why, **fields))

    def node(self, name):
        return next(node for node, person in self.people.items() if person.name == name)

    def home(self, name):
        return self.people[self.node(name)].folder


def soon(seconds):
    """The time this many seconds from now, as commands write it."""
    return time_text(datetime.now(UTC) + timedelta(seconds=seconds))


def assert_all_holds(setting, view):
    """Check the ledger, the published model, and every receipt, alone and against its owner's folder."""
    entries = setting.entries()
    assert check(entries) is None
    assert audit(view, *published_files(setting.folder, view.name)) is None
    for offer in view.agreement.offers:
        home = setting.home(offer.client.name)
        (receipt,) = participant_folder.receipts(home)
        assert own_receipt_fault(home, receipt, read_key(home / "key")) is None
        assert check_receipt(receipt, entries) is None


def settled(view):
    return {name: entry.document for name, entry in view.settlements.items()}


def reasons(view, name, stage):
    found = (entry.document for entry in view.rejections)
    return {one["reason"] for one in found if one["client"] == name and one["stage"] == stage}


def masked_job(folder):
    job = read_job(audition_job_file(folder, privacy=""))
    return replace(job, server=replace(job.server, most_pay=8.0))


def lceme_job(folder, **clients):
    """The small job without an audition, of honest clients."""
    job = read_job(small_job_file(folder, "rounds = 30", "rounds = 12\nstep_size = 0.5"))
    changed = job.document()["clients"] | {"behaviour": ["truthful"] * 4} | clients
    return job.with_clients(participants(**changed))


def made(folder):
    folder.mkdir()
    return folder


def rounds_of(setting):
    return [entry for entry in setting.entries() if entry.kind == "round"]


SEED = 3
PATIENCE = 60  # seconds
HONEST_BUT_BEN = ["truthful", "lazy labeler", "truthful", "truthful"]


class ConsoleJob:
    """The job with its simulated clients; tests may change `people` before it runs.

    hold      the activity and step at which it waits for `go_on`
    approve   called before offers go out
    plan      makes the plan of a job and its operator's data
    server    changes to the job's settings
    """

    def __init__(self, folder, behaviours=HONEST_BUT_BEN, hold=None, approve=None, plan=None, **server):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.hold = folder, hold
        self.job = audition_job(folder, behaviours, **server)
        self.plan = plan or (lambda job, side: job.plan(side, QUICK))
        self.people = simulated_participants(self.job, self.job.simulated_federation(), folder)
        self.approve = approve or (lambda _: True)
        self.held, self._free = threading.Event(), threading.Event()
        self.key, self.ledger = kept_key(folder / "operator"), folder / "ledger.db"
        with open_ledger(self.ledger) as book:
            self.name = job_name(book, self.job, SEED)
        where = (self.name, str(self.ledger), str(folder / "operator"), "fl.example.org", 8443)
        write_serving(folder, ServingInfo(*where, operator=public_line(self.key)))

    def person(self, name):
        return next(one for one in self.people.values() if one.name == name)

    def run(self):
        """Run the job to its end in this thread; return its view."""
        with open_ledger(self.ledger) as book:
            operator = Operator(book, self.folder, self.key, secret_from_seed(SEED), SEED, approve=self.approve)
            grid = grid_of(self.people)
            return conduct_job(grid, self.job, self.name, operator, self.plan, self._note)

    @classmethod
    def finished(cls, tmp_path_factory):
        """A copy of a finished job, run once per session; Ben was stopped at the audition."""
        built = built_folder(shared_folder(tmp_path_factory), "console-job", lambda folder: cls(folder).run())
        return cls(shutil.copytree(built, tmp_path_factory.mktemp("finished") / "job"))

    @contextmanager
    def running(self):
        """Run the job in another thread; the context waits for its end."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.go_on()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    def go_on(self):
        self._free.set()

    def _note(self, activity, done, _):
        if self.hold == (activity, done):
            self.held.set()
            assert self._free.wait(PATIENCE)


def wait_for(watched, condition):
    """The first status for which this is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = watched.read()
        if condition(status):
            return status
        time.sleep(0.05)
    raise AssertionError(watched.read())


def give(page, name, why, **choices):
    """Fill in the dialog of a command, look at its second step, and sign."""
    page.click(f"#{name}" if name in ("approve", "disapprove") else f"#do-{name}")
    for field, value in choices.items():
        fill = page.fill if field == "minutes" else page.select_option
        fill(f"#act-{field}", value)
    page.fill("#act-why", why)
    page.click("#act-go")
    page.wait_for_selector("#act-confirm >> text=stands in the ledger for good")
    page.evaluate("document.getElementById('notice').textContent = ''")  # of an earlier command
    page.click("#act-go")
    page.wait_for_selector("#notice >> text=Signed")


@contextmanager
def client_of(page):
    """A client that logged in with the full address and has the page's secret for changes."""
    address = page.url.split("/?")[0]
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get(page.url).status_code == 303
        told = client.get("/api/status").json()
        client.headers.update({"origin": address[: address.index("/", 8)], CSRF_HEADER: told["csrf"]})
        yield client


BEN = FIRST_NODE + 1


class Job:
    """The small job with four simulated people; Ben describes himself as `ben` says."""

    def __init__(self, folder, plans=None, ben=None, **server):
        job = read_job(small_job_file(folder, "rounds = 30", "rounds = 3\nstep_size = 0.5"))
        self.job = replace(job, server=replace(job.server, enrol_seconds=0.01, **server))
        self.folder, self.plans = folder / "out", plans
        self.people = simulated_participants(self.job, self.job.simulated_federation(), self.folder)
        self.grid = grid_of(self.people)
        if ben is not None:
            own = self.people[BEN].describe
            self.people[BEN].describe = lambda: own() | ben

    def enrolled(self, grid=None):
        """The names of enrolled clients, the rejections, and the sentence for Ben."""
        with open_ledger(self.folder / "ledger.db", ledgers.KEY) as book:
            shape, server = (8, 8, 1), self.job.server
            roster = Roster(
                grid or self.grid, book, "j", self.job.clients.name, server, shape, limits=limits_of(self.job)
            )
            roster.refresh()
            rejected = [entry.document["reason"] for entry in book.entries("j", "rejection")]
        return list(roster.descriptions), rejected, (participant_folder.news(self.people[BEN].folder) or (None,))[0]

    def go(self, approve=lambda _: True):
        with open_ledger(self.folder / "ledger.db") as book:
            key = kept_key(self.folder / "operator")
            operator = Operator(book, self.folder, key, secret_from_seed(5), 5, approve=approve)
            name = job_name(book, self.job, 5)
            return conduct_job(self.grid, self.job, name, operator, self.plans, lambda *_: None)

    def entries(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return book.entries()
