"""What the operator does to a running job: removals, pauses and extensions, in the rows, the pay and the news."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import Plans, audition_job
from helpers.commanded_jobs import At, Commanded, assert_all_holds, made, masked_job, reasons, rounds_of, settled, soon
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.live_status import OVER, LiveWriter, note_labels, read_live_status
from truthfl.federation.protocol import job_control
from truthfl.federation.protocol.server import job_name
from truthfl.home import participant_folder
from truthfl.home.node_state import read_stage
from truthfl.home.record import open_rounds, record_fault, report_under_way
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.commands import new_command
from truthfl.ledger.documents import signed
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import new_key, read_key
from truthfl.ledger.terms import offer_from


@pytest.fixture(scope="module")
def plans():
    return Plans()


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    """In these small jobs all rounds are done before a command would be looked for again."""
    monkeypatch.setattr(job_control, "SECONDS_BETWEEN_READS", 0.0)
    monkeypatch.setattr(job_control, "LONGEST_SLEEP", 0.02)


def test_somebody_who_is_removed_before_the_offers_is_not_asked(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    grid = setting.commanding("enrol", 1, "remove", "too late", client="Ben")
    view = setting.go(grid)
    assert [offer.client.name for offer in view.agreement.offers] == ["Ada", "Cleo", "Dora"]
    assert view.plans[0].document["left_out"] == {"Ben": "removed by the operator: too late"}
    assert reasons(view, "Ben", "plan") == {"removed by the operator: too late"}
    assert grid.times_asked("offer", setting.node("Ben")) == 0
    sentence, over = participant_folder.news(setting.home("Ben"))
    assert over
    assert "removed by the operator: too late" in sentence
    assert check(setting.entries()) is None


def test_somebody_who_is_removed_while_offers_are_out_counts_as_declining(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    setting.people[setting.node("Ben")].decide = lambda _: None
    view = setting.go(setting.commanding("offer", 2, "remove", client="Ben"))
    assert [offer.client.name for offer in view.agreement.offers] == ["Ada", "Cleo", "Dora"]
    assert view.agreement.terms.version == 2
    assert reasons(view, "Ben", "offer") == {"removed by the operator"}
    assert participant_folder.news(setting.home("Ben")) == (
        "Nothing more is asked of you: you were removed by the operator.",
        True,
    )
    assert check(setting.entries()) is None


@pytest.mark.parametrize(("word", "nth"), [("labels", 2), ("audition_commit", 1)])
def test_no_solo_model_is_taken_of_somebody_who_is_removed_before_theirs_is_in(tmp_path, plans, word, nth):
    setting = Commanded(tmp_path, plans, label_seconds=60.0)
    if word == "labels":
        setting.people[setting.node("Ben")].labels = lambda _: None
    view = setting.go(setting.commanding(word, nth, "remove", "copied", client="Ben"))
    assert view.auditions["Ben"].document["reason"] == "No model was taken: removed by the operator: copied."
    assert reasons(view, "Ben", "audition") == {"removed by the operator: copied"}
    assert settled(view)["Ben"]["pay"] == 0
    assert len(view.rounds) == 12
    assert all("Ben" not in view.asked_in(entry) for entry in view.rounds)
    assert_all_holds(setting, view)


def test_somebody_who_is_removed_when_their_solo_model_is_in_keeps_what_the_labels_earned(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    grid = setting.commanding("audition_open", 1, "remove", client="Ben")
    view = setting.go(grid)
    one = settled(view)["Ben"]
    assert one["label_pay"] > one["computing_pay"] == 0
    assert (one["delivered"], one["asked"], grid.times_asked("train", setting.node("Ben"))) == (0, 12, 0)
    assert_all_holds(setting, view)


@pytest.mark.parametrize("masked", [False, True])
def test_somebody_who_is_removed_in_the_rounds_is_paid_for_those_they_delivered(tmp_path, plans, masked):
    setting = Commanded(tmp_path, plans, job=masked_job(tmp_path) if masked else None)
    grid = setting.commanding("train", 4, "remove", "left", client="Ben")
    view = setting.go(grid)
    assert len(view.rounds) == 12
    assert grid.times_asked("train", setting.node("Ben")) == 4
    assert [name for entry in view.rounds for name in entry.document["missing"]] == ["Ben"] * 8
    assert reasons(view, "Ben", "round") == {"removed by the operator: left"}
    one = settled(view)["Ben"]
    assert (one["delivered"], one["asked"]) == (4, 12)
    assert one["label_pay"] > 0
    assert all(settled(view)[name]["delivered"] == 12 for name in ("Ada", "Cleo", "Dora"))
    assert not any("refused" in entry.document for entry in view.rounds)
    (receipt,) = participant_folder.receipts(setting.home("Ben"))
    assert [one["document"]["kind"] for one in receipt["document"]["commands"].values()] == ["remove"]
    assert_all_holds(setting, view)
    without = {name: part for name, part in receipt["document"].items() if name != "commands"}
    assert "no signed command for it" in receipt_fault(signed(read_key(setting.folder / "operator"), without))
    assert_one_report_may_be_on_its_way(setting.home("Ben"), receipt["document"], number=5)


def assert_one_report_may_be_on_its_way(home, document, number):
    """The last report may be uncounted because its sender was removed meanwhile; one before it may not."""
    offer = offer_from(document["offer"])
    assert report_under_way(home, document) is None
    for index in (number - 1, number):
        received = document["rounds"][index]["previous"]
        with open_rounds(home, offer.hash) as kept:
            kept.append(replace(kept.last, round=index, received=received))
        if index == number - 1:
            assert (report_under_way(home, document), record_fault(home, document)) == (number, None)
    fault = record_fault(home, document)
    assert fault.startswith(f"your computer sent 1 reports that are not counted (round {number}: removed by")


def test_a_pause_blocks_between_rounds_and_changes_nothing_else(tmp_path, plans):
    undisturbed = Commanded(tmp_path / "a", plans, job=audition_job(made(tmp_path / "a")))
    expected = undisturbed.go()
    setting = Commanded(tmp_path / "b", plans, job=audition_job(made(tmp_path / "b")))
    heard, began = [], time.monotonic()

    def pause():
        setting.command("pause", "noon")
        threading.Timer(
            0.6, lambda: (heard.append(participant_folder.news(setting.home("Ada"))), setting.command("resume"))
        ).start()

    view = setting.go(At(setting.grid, "train", 4, pause))
    assert time.monotonic() - began > 0.6
    assert heard == [("The operator paused the job; nothing is asked of you until it goes on: noon.", False)]
    assert view.test.document["model"] == expected.test.document["model"]
    assert_all_holds(setting, view)


def test_a_job_that_was_paused_while_its_server_was_stopped_waits_when_it_goes_on(tmp_path, plans):
    setting = Commanded(tmp_path, plans)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        setting.go(At(setting.grid, "train", 3, stop))
    setting.command("pause")
    trained = []
    threading.Timer(0.5, lambda: (trained.append(len(rounds_of(setting))), setting.command("resume"))).start()
    before = len(rounds_of(setting))
    view = setting.go()
    assert trained == [before]
    assert len(view.rounds) == 12
    assert_all_holds(setting, view)


def test_an_extension_gives_time_to_label_and_is_told(tmp_path, plans):
    setting = Commanded(tmp_path, plans, label_seconds=0.3)
    ben, began = setting.people[setting.node("Ben")], time.monotonic()
    made_labels, told, left = ben.labels, [], []

    def labels(offer):
        if time.monotonic() < began_labeling[0] + 1.0:
            return None
        told.append(participant_folder.news(setting.home("Ben"))[0])
        left.append(read_stage(setting.home("Ben"), offer.hash).seconds_left(time.time()))
        return made_labels(offer)

    began_labeling = [began + 1000]
    ben.labels, ben.count_labels = labels, lambda _: 7

    def extend():
        began_labeling[0] = time.monotonic()
        setting.command("extend", stage="labeling", until=soon(30))

    view = setting.go(At(setting.grid, "labels", 1, extend))
    assert view.auditions["Ben"].document["passed"]
    assert told[0].startswith("The operator gives you until ")
    assert told[0].endswith(" UTC to label.")
    assert 20 < left[0] <= 30  # the page knows the later end
    assert_all_holds(setting, view)


def test_a_command_of_somebody_else_is_ignored_told_once_and_found(tmp_path, plans, capfd):
    setting = Commanded(tmp_path, plans)

    def forge():
        with open_ledger(setting.folder / "ledger.db") as book:
            name = job_name(book, setting.job, setting.seed)
        with open_ledger(setting.folder / "ledger.db", eve := new_key()) as book:
            for number in range(1, 4):
                give = new_command("end", name, "Eve")
                book.append(name, "command", str(number), signed(eve, give.document()))

    view = setting.go(At(setting.grid, "train", 3, forge))
    assert len(view.rounds) == 12
    assert [e for e in view.rejections if e.document["stage"] == "command"] == []
    told = [line for line in capfd.readouterr().err.splitlines() if "counts for nothing" in line]
    assert len(told) == 1
    assert f"command '1' of job {view.name}, is not signed by the job's operator" in told[0]
    with open_for_reading(setting.folder / "ledger.db", tell=lambda _: None) as book:
        assert "the job's operator did not sign it" in check(book.rows()).message


def test_an_old_command_is_not_obeyed_again_though_the_operator_signed_it(tmp_path, plans):
    """Not even in a row that the operator's key signed: each command has its number, and the digest of the last."""
    setting = Commanded(tmp_path, plans)

    def pause_and_repeat():
        setting.command("pause")
        setting.command("resume")
        key = kept_key(setting.folder / "operator")
        with open_ledger(setting.folder / "ledger.db", key) as book:
            name = job_name(book, setting.job, setting.seed)
            book.append(name, "command", "3", book.entries(name, "command")[0].document)

    view = setting.go(At(setting.grid, "train", 3, pause_and_repeat))
    assert len(view.rounds) == 12
    assert [command.kind for _, command in view.valid_commands] == ["pause", "resume"]
    assert [e.document["reason"] for e in view.rejections if e.document["stage"] == "command"] == [
        "command 3: it is command 1, where 3 comes next"
    ]
    assert "it is command 1, where 3 comes next" in check(setting.entries()).message


def test_the_live_status_tells_the_stage_and_each_client(tmp_path, plans):
    setting = Commanded(tmp_path, plans, label_seconds=60.0)
    ben, seen = setting.people[setting.node("Ben")], []
    made_labels, asked = ben.labels, []

    def labels(offer):
        asked.append(offer)
        return made_labels(offer) if len(asked) > 3 else None

    ben.labels, ben.count_labels = labels, lambda _: 7

    def look():
        time.sleep(0.5)
        seen.append(read_live_status(setting.folder))

    setting.go(At(setting.grid, "labels", 3, look))
    (status,) = seen
    assert (status.stage, status.paused, status.clients["Ben"].labeled) == ("labeling", False, 7)
    assert status.deadline is not None
    assert all(client.connected and client.last_seen for client in status.clients.values())
    last = read_live_status(setting.folder)
    assert last.stage == OVER
    assert len(last.round_seconds) == 12
    assert all(np.isfinite(client.reply_seconds) for client in last.clients.values())


@pytest.mark.parametrize("number", [-1, 10**9, "7", 7.5, True, None, [7]])
def test_what_a_stranger_says_of_their_labels_is_noted_only_if_it_can_be(tmp_path, number):
    live = LiveWriter(tmp_path, "job", ("Ben",))
    note_labels(live, "Ben", 5, 10)
    note_labels(live, "Ben", number, 10)
    assert live.status.clients["Ben"].labeled == 5
