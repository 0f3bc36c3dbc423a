"""Jobs to which commands are given at chosen moments: when a message of some kind is about to be sent."""

from datetime import UTC, datetime, timedelta

from audition_jobs import Setting
from truthfl.federation.protocol.operator_folder import kept_key
from truthfl.federation.protocol.server import job_name
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.ledger.book import open_ledger
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command, time_text


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
        with open_ledger(self.folder / "ledger.db") as book:
            name = job_name(book, self.job, self.seed)
            key = kept_key(self.folder / "operator")
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
