"""What the operator is told of a job: held against the ledger, entry by entry; live; with rows of strangers."""

import json
from dataclasses import asdict, replace

import pytest

from helpers.commanded_jobs import ConsoleJob, wait_for
from helpers.databases import KEY, opening
from helpers.small_jobs import (
    known_plans,  # noqa: F401
    small_job_file,
)
from truthfl.errors import InputError, ServiceError
from truthfl.federation.operator import job_watch as watching
from truthfl.federation.operator.job_status import STATES, StatusReader, recorded_stage
from truthfl.federation.operator.job_watch import job_watch, ledger_address_of
from truthfl.federation.operator.kept_jobs import keep_ledger_address
from truthfl.federation.operator.live_status import LiveStatus, ServingInfo, now, read_live_status, write_serving
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import new_command
from truthfl.ledger.job_state import JobState
from truthfl.ledger.job_view import job_view
from truthfl.ledger.payments import advance
from truthfl.ledger.signing import new_key


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished job in which Ben was stopped at the audition."""
    return ConsoleJob.finished(tmp_path_factory)


@pytest.fixture(scope="module")
def paid_by_loss(tmp_path_factory):
    """A finished job without an audition, in which reports of a free rider were refused."""
    folder = tmp_path_factory.mktemp("lceme")
    run_job(read_job(small_job_file(folder, "rounds = 30", "rounds = 6\nstep_size = 1.5")), folder, seed=5)
    return folder


def entries_of(ledger):
    with open_for_reading(ledger) as book:
        return book.entries()


def status_in(folder):
    with job_watch(folder) as watched:
        return watched.read()


def test_a_finished_job_is_told_as_the_ledger_has_it(done):
    entries = entries_of(done.ledger)
    view, status = job_view(done.name, entries), status_in(done.folder)
    assert (status.stage, status.since) == ("over", max(entry.at for entry in view.receipts.values()))
    assert (status.running, status.deadline, status.paused, status.ended) == (False, None, False, None)
    assert [one.name for one in status.participants] == ["Ada", "Ben", "Cleo", "Dora"]
    for one in status.participants:
        offer = next(offer for offer in view.agreement.offers if offer.client.name == one.name)
        audition = view.auditions[one.name].document
        assert (one.labels_asked, one.batch_size) == (offer.client.samples, offer.client.batch_size)
        assert one.labels_done == one.labels_asked
        assert (one.solo_loss, one.passed) == (audition["solo_loss"], audition["passed"])
        assert (one.rounds_asked, one.rounds_delivered) == (view.asked[one.name], view.delivered[one.name])
        assert (one.expected_pay, one.cost) == (offer.expected_pay, offer.cost)
        assert one.settled_pay == view.settlements[one.name].document["pay"]
        assert one.state == ("stopped" if one.name == "Ben" else "settled")
        assert one.connected is None
    ben = status.participants[1]
    assert ben.reason == view.auditions["Ben"].document["reason"]
    assert [one.loss for one in status.rounds] == [entry.document["loss"] for entry in view.rounds]
    assert status.test["loss"] == view.test.document["loss"]
    plan = view.plans[-1].document
    assert status.plan.solo_labels == tuple(plan["audition"]["solo"]["labels"])
    assert [one.worth for one in status.participants] == plan["worth"]
    assert status.rows[0].sequence == status.last_row == len(entries)
    assert status.unreadable_rows == 0


def test_money_by_offers_and_payments(done, tmp_path):
    status = status_in(done.folder)
    people, money = status.participants, status.money
    assert money.expected == money.committed == sum(one.expected_pay for one in people)
    assert money.most == sum(one.most_pay for one in people) > money.expected
    assert money.settled == sum(one.settled_pay for one in people) == money.due
    copy = tmp_path / "ledger.db"
    copy.write_bytes(done.ledger.read_bytes())
    with open_ledger(copy, done.key) as book:
        advance(book, done.name, "Ada", "sent", "TX-1")
        advance(book, done.name, "Cleo", "sent", "TX-2")
        advance(book, done.name, "Cleo", "confirmed")
    status = status_in(tmp_path)
    ada, _, cleo, dora = status.participants
    assert (ada.payment, cleo.payment, dora.payment) == ("sent", "confirmed", "due")
    money = status.money
    assert (money.sent, money.paid, money.due) == (ada.settled_pay, cleo.settled_pay, dora.settled_pay)


def test_refused_reports_are_counted_with_their_reasons(paid_by_loss):
    view, status = job_view("", entries_of(paid_by_loss / "ledger.db")), status_in(paid_by_loss)
    ada, ben, *_ = status.participants
    assert ben.refused == len(view.rejections) == status.refused_at["round"] == 6
    assert (ben.rounds_asked, ben.rounds_delivered, ada.rounds_delivered) == (6, 0, 6)
    assert [one.round for one in ben.refusals] == [6, 5, 4]
    assert ben.refusals[0].reason == view.rejections[-1].document["reason"]
    assert (ada.solo_loss, ada.passed, status.plan.solo_labels) == (None, None, ())
    assert not status.money.has_cap


@pytest.mark.parametrize("which", ["done", "paid_by_loss"])
def test_entry_by_entry_it_is_what_a_whole_view_says(which, request):
    """A state that grows entry by entry is at every entry what a view of all entries says."""
    found = request.getfixturevalue(which)
    entries = entries_of(found.ledger if which == "done" else found / "ledger.db")
    state, stages = JobState(entries[0].job), []
    for number, entry in enumerate(entries):
        state.add(entry)
        stage = recorded_stage(state)[0]
        stages += [stage] if stage not in stages else []
        view = job_view(entry.job, entries[: number + 1])
        if view.taking_part is not None:
            for offer in view.taking_part.offers:
                name = offer.client.name
                assert state.rounds_of(state.clients[name]) == (view.asked[name], view.delivered[name])
    auditioned = ["auditioning"] if which == "done" else []
    assert stages == ["enrolling", "offering", "labeling", *auditioned, "training", "testing", "over"]


def test_only_new_entries_are_read(done):
    with open_for_reading(done.ledger) as book:
        reader, read = StatusReader(book, done.name), []
        entries = book.entries

        def counted(*arguments, **named):
            found = entries(*arguments, **named)
            read.append(len(found))
            return found

        book.entries = counted
        first = reader.read()
        assert reader.read() is first  # nothing has changed, and nothing is made anew
        assert read == [first.last_row, 0]
        del book.entries


def test_who_declines_and_who_is_left_is_told(tmp_path):
    console_job = ConsoleJob(tmp_path, ["truthful"] * 4)
    next(one for one in console_job.people.values() if one.name == "Cleo").decide = lambda _: False
    console_job.run()
    status = status_in(tmp_path)
    states = {one.name: one.state for one in status.participants}
    assert states == {"Ada": "settled", "Ben": "settled", "Cleo": "declined", "Dora": "settled"}
    assert set(states.values()) <= set(STATES)
    assert status.plan.version == 2
    in_force = [one for one in status.participants if one.name != "Cleo"]
    assert status.money.expected == sum(one.expected_pay for one in in_force)
    assert [one.worth is None for one in status.participants] == [False, False, True, False]


def test_a_running_job_is_told_by_its_server(tmp_path):
    console_job = ConsoleJob(tmp_path, hold=("training", 4))
    with console_job.running():
        assert console_job.held.wait(60)
        with job_watch(tmp_path) as watched:
            timed = lambda found: found.round_times is not None and found.round_times.count == 4  # noqa: E731
            status = wait_for(watched, lambda found: timed(found) and len(found.rounds) == 4)
            assert (status.stage, status.running, status.address) == ("training", True, "fl.example.org:8443")
            assert [one.connected for one in status.participants] == [True] * 4
            assert all(one.last_seen for one in status.participants)
            assert [one.state for one in status.participants] == ["training", "stopped", "training", "training"]
            assert status.round_times.count == len(status.round_times.last) == 4
            assert status.round_times.seconds == pytest.approx(sum(status.round_times.last), abs=4e-6)  # as rounded
            console_job.go_on()
            assert not wait_for(watched, lambda found: found.stage == "over").running


def test_a_stage_that_waits_has_a_deadline(tmp_path):
    console_job = ConsoleJob(tmp_path, hold=("labeling", 4))
    with console_job.running():
        assert console_job.held.wait(60)
        with job_watch(tmp_path) as watched:
            status = wait_for(watched, lambda found: found.stage == "labeling" and found.running)
            assert status.since < now() < status.deadline
            assert status.deadline == watched.live().deadline


def test_a_server_that_is_gone_does_not_run(done, tmp_path):
    live = replace(read_live_status(done.folder), at=now(), stage="training")
    with open_ledger(tmp_path / "ledger.db", done.key) as book:
        for entry in entries_of(done.ledger)[:-20]:  # as far as the middle
            book.append(entry.job, entry.kind, entry.key, entry.document)
        assert live.is_current
        assert StatusReader(book, done.name).read(live).running
        for gone in (
            replace(live, pid=2**22 + 1),  # no process has so high a number
            replace(live, at="2020-01-01T00:00:00+00:00"),
            replace(live, job="another"),
        ):
            assert not StatusReader(book, done.name).read(gone).running
    assert not LiveStatus("job", at="no time").is_current


def test_commands_change_what_is_told(done, tmp_path):
    """Pause and removal count when they are the operator's; a stranger's row is passed over."""
    copy = tmp_path / "ledger.db"
    kept = [entry for entry in entries_of(done.ledger) if entry.kind in ("job", "enrolment", "plan", "offer")]
    with open_ledger(copy, done.key) as book:
        for entry in kept:
            book.append(entry.job, entry.kind, entry.key, entry.document)
        status = StatusReader(book, done.name).read()
        assert (status.stage, status.paused) == ("offering", False)
        for kind, fields in (("pause", {}), ("remove", {"client": "Dora"})):
            give_command(
                book, done.name, done.key, lambda k=kind, f=fields: new_command(k, done.name, "her", "why", **f)
            )
        with open_ledger(copy, stranger := new_key(), lambda _: None) as own:
            give_command(own, done.name, stranger, lambda: new_command("end", done.name, "him", "I say so"))
        status = StatusReader(book, done.name).read()
        assert (status.paused, status.ended) == (True, None)
        assert [(one.state, one.reason) for one in status.participants[2:]] == [
            ("offered", ""),
            ("removed", "removed by the operator: why"),
        ]
        give_command(book, done.name, done.key, lambda: new_command("end", done.name, "her", "enough"))
        status = StatusReader(book, done.name).read()
        assert (status.stage, status.paused, status.ended) == ("over", False, "enough")


def test_rows_of_strangers_are_counted_and_made_plain(tmp_path):
    job = "job"
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        clients = {"name": ["Ada\x1b[2J", "Ben"]}
        book.append(job, "job", "job", {"job": {"clients": clients}, "operator_key": "k"})
        book.append(job, "round", "1", {"round": "one", "missing": 3})
        book.append(job, "offer", "1/Ada", {"nothing": []})
        book.append(job, "settlement", "Ben", {"client": "Ben", "pay": "much"})
        rejection = {"stage": "en\nrolment", "round": None, "client": None, "node": "7", "reason": "\x1b[31mred\u202e"}
        book.append(job, "rejection", "x", rejection)
        status = StatusReader(book, job).read()
    assert status.unreadable_rows == 3
    text = json.dumps(asdict(status), ensure_ascii=False)
    assert "\\u001b" not in text
    assert "\u202e" not in text
    assert status.participants[0].name == "Ada\\x1b[2J"
    assert status.strangers[0].who == "node 7"


def test_the_ledger_is_found_by_the_folder(tmp_path, done, monkeypatch):
    with pytest.raises(InputError, match="is not there; name the folder"):
        ledger_address_of(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no job yet"):
        ledger_address_of(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        ledger_address_of(tmp_path / "file")
    keep_ledger_address(tmp_path, str(done.ledger))
    with job_watch(tmp_path) as watched:
        assert watched.job == done.name
    with pytest.raises(InputError, match="job is 'x', which is not in it"), job_watch(tmp_path, job="x"):
        pass

    def forbidden(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(watching.os, "listdir", forbidden)
    with pytest.raises(ServiceError, match="only its owner can read"):
        ledger_address_of(tmp_path)


def test_of_a_ledger_that_operators_share_each_folder_shows_its_own_job(tmp_path):
    for name, key in (("hers-1", KEY), ("his-1", new_key())):
        with open_ledger(tmp_path / "shared.db", key) as book:
            book.append(name, "job", "job", opening(key))
    for job in ("hers-1", "his-1", "next-1"):
        folder = tmp_path / job
        folder.mkdir()
        keep_ledger_address(folder, str(tmp_path / "shared.db"))
        write_serving(folder, ServingInfo(job, str(tmp_path / "shared.db"), "key", "127.0.0.1", 8000))
    for job in ("hers-1", "his-1"):
        with job_watch(tmp_path / job) as watched:
            assert watched.job == job
    with pytest.raises(InputError, match="next-1 has no job in it yet; it has hers-1, his-1"):
        job_watch(tmp_path / "next-1").__enter__()


def test_a_job_that_has_not_begun_can_be_watched(tmp_path):
    open_ledger(tmp_path / "ledger.db").close()
    with job_watch(tmp_path, str(tmp_path / "ledger.db"), "soon-1") as watched:
        status = watched.read()
    assert (status.stage, status.since, status.participants, status.money) == ("enrolling", None, (), None)
