"""Jobs to which commands are given at chosen moments: when a message of some kind is about to be sent."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from audition_jobs import Setting, audition_job_file
from small_jobs import small_job_file
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.server import job_name
from truthfl.federation.simulated.participants import InProcessGrid
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command, time_text
from truthfl.ledger.signing import read_key
from truthfl.page.receipt_check import own_receipt_fault


class At(InProcessGrid):
    """A grid that does something before the nth time that messages of a type with this word are sent."""

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
        """How often this node was sent messages of such a type."""
        return sum(word in kind and to == node for kind, to in self.sent)


class Commanded(Setting):
    """The audition job of four, with an operator who gives commands from elsewhere."""

    def command(self, kind, why="", **fields):
        key = kept_key(self.folder / "operator")
        with open_ledger(self.folder / "ledger.db", key) as book:
            name = job_name(book, self.job, self.seed)
            return give_command(book, name, key, lambda: new_command(kind, name, "Olga", why, **fields))

    def commanding(self, word, nth, kind, why="", **fields):
        """The grid on which this command comes at that moment."""
        return At(self.grid, word, nth, lambda: self.command(kind, why, **fields))

    def node(self, name):
        return next(node for node, person in self.people.items() if person.name == name)

    def home(self, name):
        return self.people[self.node(name)].folder


def soon(seconds):
    """So many seconds from now, as commands write it."""
    return time_text(datetime.now(UTC) + timedelta(seconds=seconds))


def assert_all_holds(setting, view):
    """The ledger, the published model, and every receipt, by itself and against its owner's folder."""
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
    return job.with_clients(type(job.clients)(**changed))


def made(folder):
    folder.mkdir()
    return folder


def rounds_of(setting):
    return [entry for entry in setting.entries() if entry.kind == "round"]
