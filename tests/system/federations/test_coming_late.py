"""Who joins when the job has begun, and who is away when its server goes on."""

import threading
import time
from dataclasses import replace

import pytest

from helpers.auditions import Plans, Setting, audition_job
from helpers.commanded_jobs import At, Commanded, made
from helpers.databases import KEY
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.cli.participant.participation import _owed_receipt, _show_new_documents, _ShownDocuments
from truthfl.federation.deployed.admission import KnownKeys
from truthfl.federation.deployed.mailboxes import NodeRegistry
from truthfl.federation.operator.commands import require_removable
from truthfl.federation.operator.job_status import StatusReader
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.live_status import LABELING
from truthfl.federation.protocol import enrolment, receipt_delivery
from truthfl.federation.protocol.enrolment import LATE_NEWS, Roster
from truthfl.federation.protocol.job_control import JobControl
from truthfl.federation.protocol.messages import ENROL, LABELS, NEWS, RECEIPT, RECEIPTS, pem_of, query_message
from truthfl.federation.protocol.receipt_delivery import ONLY_RECEIPTS, MissedReceipts, owed_receipts, without_receipt
from truthfl.federation.protocol.server import Operator, deliver_receipts
from truthfl.federation.simulated.participants import FIRST_NODE, InProcessGrid
from truthfl.flower_patches import NodeInfo
from truthfl.home import participant_folder
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import new_key, public_line, write_key
from truthfl.page.receipt_check import own_receipt_fault

DORA = FIRST_NODE + 3


@pytest.fixture(scope="module")
def plans():
    return Plans()


class Comings(InProcessGrid):
    """A grid on which a node is there only while `is_there(grid)`; it counts training messages."""

    def __init__(self, grid, node, is_there):
        self.__dict__.update(vars(grid))
        self.node, self.is_there, self.trained, self.asked = node, is_there, 0, []

    def get_node_ids(self):
        return [node for node in super().get_node_ids() if node != self.node or self.is_there(self)]

    def _reply_to(self, message, number):
        self.trained += message.metadata.message_type == "train"
        self.asked.append((message.metadata.dst_node_id, message.metadata.message_type))
        return super()._reply_to(message, number)


def one_second(folder, **server):
    job = audition_job(folder)
    return replace(job, server=replace(job.server, enrol_seconds=0.2, **server))


def test_somebody_who_joins_after_the_offers_is_told_that_the_job_runs_without_them(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)  # or this small job may be over before the next
    setting = Setting(tmp_path, plans, job=one_second(tmp_path))
    there = Comings(setting.grid, DORA, lambda grid: any(kind.endswith("labels") for _, kind in grid.asked))
    found = setting.go(there)
    assert [offer.client.name for offer in found.agreement.offers] == ["Ada", "Ben", "Cleo"]
    sentence, over = participant_folder.news(setting.people[DORA].folder)
    assert over
    assert "the job runs without Dora: it has begun" in sentence
    assert "Dora" not in found.enrolments


def test_somebody_who_enrols_while_offers_are_out_is_told_when_they_are_accepted(tmp_path, plans, monkeypatch):
    setting = Setting(tmp_path, plans, job=one_second(tmp_path))
    asked = []
    ben = setting.people[FIRST_NODE + 1]
    decide = ben.decide
    monkeypatch.setattr(ben, "decide", lambda offer: asked.append(offer) or (decide(offer) if len(asked) > 2 else None))
    found = setting.go(Comings(setting.grid, DORA, lambda _: bool(asked)))
    assert "Dora" in found.enrolments
    assert participant_folder.news(setting.people[DORA].folder) == (LATE_NEWS, True)


def test_a_server_that_goes_on_waits_for_those_who_take_part(tmp_path, plans):
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))
    stop_after = 5

    class CrashError(Exception):
        pass

    class Crashing(Comings):
        def push_messages(self, messages):
            if self.trained >= 4 * stop_after:
                raise CrashError
            return super().push_messages(messages)

    with pytest.raises(CrashError):
        setting.go(Crashing(setting.grid, None, lambda _: True))
    begun = time.monotonic()
    found = setting.go(Comings(setting.grid, DORA, lambda _: time.monotonic() > begun + 1.0))
    assert found.delivered["Dora"] == len(found.rounds)


def test_but_not_for_ever(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(enrolment, "RECONNECT_SECONDS", 0.3)
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))

    class CrashError(Exception):
        pass

    class Crashing(Comings):
        def push_messages(self, messages):
            if self.trained >= 20:
                raise CrashError
            return super().push_messages(messages)

    with pytest.raises(CrashError):
        setting.go(Crashing(setting.grid, None, lambda _: True))
    found = setting.go(Comings(setting.grid, DORA, lambda _: False))
    assert 1 <= found.delivered["Dora"] < len(found.rounds)
    assert found.delivered["Ada"] == len(found.rounds)


class Silent(Comings):
    """A grid on which this node is connected, and its computer answers nothing."""

    def __init__(self, grid, node):
        super().__init__(grid, node, lambda _: True)

    def _reply_to(self, message, number):
        reply = super()._reply_to(message, number)
        return None if message.metadata.dst_node_id == self.node else reply

    def pull_messages(self, message_ids):
        return [reply for reply in super().pull_messages(message_ids) if reply is not None]


def test_somebody_who_connects_and_says_nothing_delays_nobody(tmp_path, plans):
    def seconds_of(folder, grid_of):
        setting = Setting(folder, plans, job=one_second(folder))
        grid, begun = grid_of(setting.grid), time.monotonic()
        found = setting.go(grid)
        assert [offer.client.name for offer in found.agreement.offers] == ["Ada", "Ben", "Cleo"]
        assert found.finished
        return time.monotonic() - begun, grid

    away, _ = seconds_of(made(tmp_path / "away"), lambda grid: Comings(grid, DORA, lambda _: False))
    silent, grid = seconds_of(made(tmp_path / "silent"), lambda grid: Silent(grid, DORA))
    assert silent < 2 * away + 3.0
    assert grid.asked.count((DORA, f"query.{ENROL}")) == 1, "Dora is asked again only after REPLY_TIMEOUT"


def test_somebody_who_never_answered_can_be_removed_while_the_others_train(tmp_path, plans):
    setting = Commanded(tmp_path, plans, job=one_second(tmp_path))

    def removable():
        with open_ledger(setting.folder / "ledger.db") as book:
            (name,) = book.jobs()
            require_removable(job_view(name, book.entries(name)), "Dora")
        setting.command("remove", client="Dora")

    found = setting.go(At(Comings(setting.grid, DORA, lambda _: False), "train", 2, removable))
    assert found.finished
    assert [command.fields["client"] for _, command in found.valid_commands] == ["Dora"]
    assert check(setting.entries()) is None


def test_a_silent_node_is_asked_again_now_and_then(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(enrolment, "REPLY_TIMEOUT", 0.2)
    setting = Setting(tmp_path, plans, job=one_second(tmp_path))
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        grid = Silent(setting.grid, DORA)
        roster = Roster(grid, book, "j", setting.job.clients.name, setting.job.server, (8, 8, 1))
        for _ in range(3):
            roster.refresh()
        assert sorted(roster.node_of) == ["Ada", "Ben", "Cleo"]
        assert grid.asked.count((DORA, f"query.{ENROL}")) == 1
        time.sleep(0.3)
        grid.node = None  # Dora answers from now on
        roster.refresh()
        roster.refresh()
    assert sorted(roster.node_of) == ["Ada", "Ben", "Cleo", "Dora"]


@pytest.mark.parametrize("kind", ["remove", "pause", "end"])
def test_a_command_takes_effect_while_the_server_waits_for_a_reply(tmp_path, plans, kind):
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))
    key = new_key()
    with open_ledger(tmp_path / "ledger.db", key) as book:
        book.append("j", "job", "job", {"operator_key": public_line(key)})
        roster = Roster(
            Silent(setting.grid, DORA),
            book,
            "j",
            setting.job.clients.name,
            setting.job.server,
            (8, 8, 1),
            control=JobControl(book, "j", public_line(key)),
        )
        roster.node_of = {name: FIRST_NODE + place for place, name in enumerate(roster.names)}
        clock = roster.stage(LABELING, 60.0)
        fields = {"client": "Dora"} if kind == "remove" else {}

        def command():
            with open_ledger(tmp_path / "ledger.db", key) as own:
                give_command(own, "j", key, lambda: new_command(kind, "j", "Olga", **fields))

        timer, begun = threading.Timer(0.5, command), time.monotonic()
        timer.start()
        messages = [
            query_message(LABELS, node, {"offer": "x", "seconds_left": 1.0}) for node in roster.node_of.values()
        ]
        replies = roster.ask(messages, timeout=60.0, clock=None if kind == "remove" else clock)
        assert 0.5 <= time.monotonic() - begun < 20.0
        timer.join()
    assert {node for node, _ in replies} == {FIRST_NODE, FIRST_NODE + 1, FIRST_NODE + 2}


def late_receipts(setting, grid, seconds):
    """Who gets a receipt from a server that is started again when the job is over."""
    got = []
    key = kept_key(setting.folder / "operator")
    with open_ledger(setting.folder / "ledger.db", key) as book:
        (name,) = book.jobs()
        operator = Operator(book, setting.folder, key, "", 0)
        deliver_receipts(grid, setting.job, name, operator, seconds, got.append)
        waiting = without_receipt(book, name)
        assert StatusReader(book, name).read().without_receipt == tuple(waiting)
        return got, waiting


def test_somebody_who_was_away_at_the_end_gets_the_receipt_when_the_server_runs_again(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(receipt_delivery, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path, round_seconds=0.2))
    dora = setting.people[DORA]
    found = setting.go(Comings(setting.grid, DORA, lambda grid: grid.trained < 20))
    assert found.finished
    assert participant_folder.receipts(dora.folder) == []
    assert late_receipts(setting, Comings(setting.grid, DORA, lambda _: False), 0.1) == ([], ["Dora"])
    assert f"You have no receipt of job {found.name}" in _owed_receipt(dora.folder)  # told where no server answers
    begun = time.monotonic()
    there = Comings(setting.grid, DORA, lambda _: time.monotonic() > begun + 0.2)
    assert late_receipts(setting, there, 30.0) == (["Dora"], [])
    assert time.monotonic() < begun + 20.0
    (receipt,) = participant_folder.receipts(dora.folder)
    assert own_receipt_fault(dora.folder, receipt, dora.key) is None
    assert _owed_receipt(dora.folder) == ""
    with open_ledger(setting.folder / "ledger.db") as book:
        assert check(book.entries()) is None
    assert late_receipts(setting, there, 30.0) == ([], [])


class Registered(Comings):
    """A grid whose nodes are registered; Dora's key without a name, for receipts alone."""

    def __init__(self, grid, people):
        super().__init__(grid, None, lambda _: True)
        self.people = people

    def get_nodes(self):
        return [
            NodeInfo(
                node_id=node,
                name="" if node == DORA else person.name,
                public_key=pem_of(public_line(person.key)),
            )
            for node, person in self.people.items()
        ]


@pytest.fixture
def owed(tmp_path, plans, monkeypatch):
    """A job that is over, of which Dora has no receipt, and the ledger with the next job of its operator."""
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path, round_seconds=0.2))
    setting.go(Comings(setting.grid, DORA, lambda grid: grid.trained < 20))
    assert participant_folder.receipts(setting.people[DORA].folder) == []
    key = kept_key(setting.folder / "operator")
    with open_ledger(setting.folder / "ledger.db", key) as book:
        for job, operator in (("next", key), ("of another", new_key())):
            book.append(job, "job", "job", {"operator_key": public_line(operator)})
        yield setting, book


def roster_of(setting, book, grid, *, authenticated):
    roster = Roster(grid, book, "next", ("Ada", "Ben", "Cleo"), setting.job.server, (8, 8, 1), authenticated)
    roster.missed = MissedReceipts(roster)
    return roster


def test_somebody_who_is_in_no_later_job_is_let_in_for_their_receipt_alone(owed):
    setting, book = owed
    dora = setting.people[DORA]
    line = public_line(dora.key)
    known = KnownKeys(book, "next", setting.folder / "people", ("Ada", "Ben", "Cleo"))
    assert known.look_up(line) == ""
    assert known.look_up(public_line(new_key())) is None
    assert KnownKeys(book, "of another", setting.folder / "people", ()).look_up(line) is None
    assert KnownKeys(book, "not begun", setting.folder / "people", ()).look_up(line) is None
    assert owed_receipts(book, "next") == ["Dora"]
    grid = Registered(setting.grid, setting.people)
    roster = roster_of(setting, book, grid, authenticated=True)
    for _ in range(3):
        roster.refresh()
    (receipt,) = participant_folder.receipts(dora.folder)
    assert own_receipt_fault(dora.folder, receipt, dora.key) is None
    assert (DORA, f"query.{ENROL}") not in grid.asked
    assert sorted(roster.node_of) == ["Ada", "Ben", "Cleo"]
    news = participant_folder.last_news(dora.folder)
    assert (news.sentence, news.over, news.about) == (ONLY_RECEIPTS, True, RECEIPTS)
    assert owed_receipts(book, "next") == []
    known._read_at = float("-inf")
    assert known.look_up(line) is None
    shown = _ShownDocuments(set(), 0)
    write_key(dora.key, setting.folder / "dora")
    assert _show_new_documents(dora.folder, setting.folder / "dora", shown, ask=False)
    assert (shown.over, shown.faulty) == (False, False)


def test_whoever_connects_in_the_middle_of_a_job_gets_their_earlier_receipt(owed):
    """Also who is refused: the receipt comes first."""
    setting, book = owed
    dora = setting.people[DORA]
    grid = Comings(setting.grid, DORA, lambda grid: grid.is_late)
    grid.is_late = False
    roster = roster_of(setting, book, grid, authenticated=False)
    for is_late in (False, True):
        grid.is_late = is_late
        for _ in range(3):
            roster.refresh()
        assert len(participant_folder.receipts(dora.folder)) == is_late
    kinds = [kind for node, kind in grid.asked if node == DORA]
    assert kinds == [f"query.{kind}" for kind in (ENROL, RECEIPT, NEWS)]
    assert "is not among the job's clients" in participant_folder.news(dora.folder)[0]
    assert owed_receipts(book, "next") == []


def test_a_key_that_was_let_in_for_receipts_is_known_by_name_when_it_has_one():
    line, names = public_line(new_key()), {}
    registry = NodeRegistry(closed=True, look_up=lambda key: names.get(key))
    for name in (None, "", "Dora"):
        names[line] = name
        found = registry.find(line)
        assert (None if found is None else found.name) == name
