"""What the operator does to a running job: end, removals, pauses and extensions, in the rows, the pay and the news."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Error
from flwr.common.constant import ErrorCode

from audition_jobs import Plans, audition_job, audition_job_file, other_reply
from commanded_jobs import At, Commanded, soon
from small_jobs import small_job_file
from truthfl.federation.protocol import job_control, stage_clock
from truthfl.federation.protocol.audit import audit, published_files
from truthfl.federation.protocol.live_clients import note_labels
from truthfl.federation.protocol.live_status import OVER, LiveWriter, read_live_status
from truthfl.federation.protocol.server import is_complete, job_name
from truthfl.job import read_job
from truthfl.learning.pilot_design import PilotDesign
from truthfl.ledger import participant_folder as papers
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.command_checks import end_faults
from truthfl.ledger.documents import signed
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import make_receipt, receipt_fault
from truthfl.ledger.round_terms import loss_rise
from truthfl.ledger.signing import new_key, read_key
from truthfl.page.receipt_check import own_receipt_fault

QUICK = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def plans():
    return Plans()


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    """In these small jobs all rounds are done before a command would be looked for again."""
    monkeypatch.setattr(job_control, "SECONDS_BETWEEN_READS", 0.0)
    monkeypatch.setattr(stage_clock, "SECONDS_BETWEEN_READS", 0.02)


def assert_all_holds(setting, view):
    """The ledger, the published model, and every receipt, by itself and against its owner's folder."""
    entries = setting.entries()
    assert check(entries) is None
    assert audit(view, *published_files(setting.folder, view.name)) is None
    for offer in view.agreement.offers:
        home = setting.home(offer.client.name)
        (receipt,) = papers.receipts(home)
        assert own_receipt_fault(home, receipt, read_key(home / "key")) is None
        assert check_receipt(receipt, entries) is None


def settled(view):
    return {name: entry.document for name, entry in view.settlements.items()}


def reasons(view, name, stage):
    found = (entry.document for entry in view.rejections)
    return {one["reason"] for one in found if one["client"] == name and one["stage"] == stage}


@pytest.mark.parametrize("masked", [False, True])
def test_a_job_that_is_ended_in_its_rounds_is_paid_for_those_that_took_place(tmp_path, plans, masked):
    setting = Commanded(tmp_path, plans, job=masked_job(tmp_path) if masked else None)
    view = setting.go(setting.commanding("train", 5, "end", "good enough"))
    assert len(view.rounds) == 5
    assert view.finished
    assert view.ended.document == {"rounds": 5, "asked": {}}
    terms = view.agreement.terms
    changed = sum(entry.document["model"] != entry.document["previous"] for entry in view.rounds)
    assert view.loss_rise == loss_rise(terms.loss_by_rounds, 12, changed) > 0
    for offer in view.agreement.offers:
        one, amounts = settled(view)[offer.client.name], offer.mechanism
        assert (one["delivered"], one["asked"], one["loss_rise"]) == (5, 12, view.loss_rise)
        at_all_rounds = (one["computing_pay"]) * 12 / 5
        assert 0 < at_all_rounds <= float(amounts.joint_cap[0])
        assert one["label_pay"] > 0
    assert_all_holds(setting, view)
    assert [e.sequence for e in setting.go().rounds] == [e.sequence for e in view.rounds]  # and nothing goes on


def masked_job(folder):
    job = read_job(audition_job_file(folder, privacy=""))
    return replace(job, server=replace(job.server, most_pay=8.0))


def lceme_job(folder, **clients):
    """The small job without an audition, of honest clients."""
    job = read_job(small_job_file(folder, "rounds = 30", "rounds = 12\nstep_size = 0.5"))
    changed = job.document()["clients"] | {"behaviour": ["truthful"] * 4} | clients
    return job.with_clients(type(job.clients)(**changed))


def test_honest_clients_do_not_lose_by_the_end_of_a_job(tmp_path, plans):
    """The expected loss rises with the rounds that are missing; without that, nobody would be paid for computing."""
    setting = Commanded(tmp_path, plans)
    view = setting.go(setting.commanding("train", 2, "end"))
    tested = view.test.document["loss"]
    for offer in view.agreement.offers:
        expected = float(
            offer.mechanism.joint_constant[0] + offer.mechanism.joint_curve[0] / offer.client.pay["total_labels"]
        )
        base, slope = float(offer.mechanism.joint_base[0]), float(offer.mechanism.joint_slope[0])
        unraised = max(base + slope * (expected - tested), 0) * 2 / 12
        assert settled(view)[offer.client.name]["computing_pay"] > unraised


def test_a_receipt_without_the_signed_command_does_not_hold(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    view = setting.go(setting.commanding("train", 3, "end"))
    entries, key = setting.entries(), read_key(setting.folder / "operator")
    receipt = make_receipt(view.agreement.offers[0], view, entries, key)
    assert receipt_fault(receipt) is None
    (number,) = receipt["document"]["commands"]

    def faulty(**changes):
        document = {**receipt["document"], **changes}
        return receipt_fault(signed(key, {name: part for name, part in document.items() if part is not None}))

    assert "3 of 3 that it lists" in faulty(commands=None)
    forged = signed(new_key(), receipt["document"]["commands"][number]["document"])
    assert "signature is not of the job's operator" in faulty(commands={number: forged})
    again = signed(key, {**receipt["document"]["commands"][number]["document"], "why": "another reason"})
    assert "its command is not the one in the chain" in faulty(commands={number: again})


def test_a_job_that_is_ended_while_people_label_pays_those_who_did(tmp_path, plans):
    setting = Commanded(tmp_path, plans, label_seconds=60.0)
    late = setting.people[setting.node("Ben")]
    late.labels, late.count_labels = lambda _: None, lambda _: 7
    view = setting.go(setting.commanding("labels", 2, "end"))
    assert (view.rounds, view.finished) == ([], True)
    assert view.auditions["Ben"].document["reason"] == "No model was taken: labels were not there in time."
    pay = {name: (one["label_pay"], one["computing_pay"]) for name, one in settled(view).items()}
    assert pay.pop("Ben") == (0.0, 0.0)
    assert all(labels > 0 and computing == 0 for labels, computing in pay.values())
    assert_all_holds(setting, view)


class AwayAtFirst(At):
    """The same, and one node's first answers of the kind are lost."""

    def pull_messages(self, message_ids):
        return [self._lost(reply) if self._is_early(reply) else reply for reply in super().pull_messages(message_ids)]

    def _is_early(self, reply):
        return self.word in reply.metadata.message_type and self.count < 3 and reply.metadata.src_node_id == self.node

    def _lost(self, reply):
        return other_reply(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply)


def test_an_end_during_the_audition_leaves_everybody_the_time_to_send_her_model(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    grid = AwayAtFirst(setting.grid, "audition_commit", 1, lambda: setting.command("end"))
    grid.node = setting.node("Ben")
    view = setting.go(grid)
    assert grid.count == 3
    assert all(one["label_pay"] > 0 for one in settled(view).values())
    assert view.rounds == []
    assert_all_holds(setting, view)


def test_a_job_that_is_ended_before_an_agreement_is_over_without_pay(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    setting.people[setting.node("Ben")].decide = lambda _: None
    view = setting.go(setting.commanding("offer", 2, "end", "no money"))
    assert view.agreement is None
    assert view.ended.document == {"rounds": 0, "asked": {}}
    assert (view.settlements, view.payments, view.test) == ({}, [], None)
    assert check(setting.entries()) is None
    for person in setting.people.values():
        sentence, over = papers.news(person.folder)
        assert over
        assert sentence.endswith("before there was a contract, and nobody is paid: no money.")
    with open_ledger(setting.folder / "ledger.db") as book:
        name = job_name(book, setting.job, setting.seed)
        assert is_complete(book, name)
        assert job_name(book, setting.job, setting.seed, again=True) != name
    rows = len(setting.entries())
    setting.go()
    assert len(setting.entries()) - rows <= 0


def test_the_end_of_a_job_without_losses_by_rounds_counts_the_expected_loss(tmp_path):
    setting = Commanded(tmp_path, lambda job, side: job.plan(side, QUICK), job=lceme_job(tmp_path))
    view = setting.go(setting.commanding("train", 6, "end"))
    terms = view.agreement.terms
    assert terms.loss_by_rounds == ()
    assert view.test.document["loss"] > terms.expected_loss  # half of the rounds
    for offer in view.agreement.offers:
        one = settled(view)[offer.client.name]
        assert one["amount"] == pytest.approx(offer.expected_pay * one["delivered"] / 12)
    assert_all_holds(setting, view)


def test_who_is_asked_in_some_rounds_is_paid_by_those_that_were_drawn_for_her(tmp_path):
    job = lceme_job(tmp_path, participation=[1.0, 0.5, 1.0, 0.5])
    setting = Commanded(tmp_path, lambda job, side: job.plan(side, QUICK), job=job)
    view = setting.go(setting.commanding("train", 6, "end"))
    stated = view.ended.document["asked"]
    assert set(stated) == {"Ben", "Dora"}
    assert all(view.asked[name] <= number <= view.asked[name] + 6 for name, number in stated.items())
    assert settled(view)["Ben"]["asked"] == stated["Ben"]
    assert_all_holds(setting, view)
    forged = replace(view.ended)
    forged.document["asked"] = {name: number - 1 for name, number in stated.items()}
    object.__setattr__(view, "ended", forged)
    assert "counts other rounds" in audit(view, *published_files(setting.folder, view.name))


def test_who_is_removed_before_the_offers_is_not_asked(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    grid = setting.commanding("enrol", 1, "remove", "too late", client="Ben")
    view = setting.go(grid)
    assert [offer.client.name for offer in view.agreement.offers] == ["Ada", "Cleo", "Dora"]
    assert view.plans[0].document["left_out"] == {"Ben": "removed by the operator: too late"}
    assert reasons(view, "Ben", "plan") == {"removed by the operator: too late"}
    assert grid.times_asked("offer", setting.node("Ben")) == 0
    sentence, over = papers.news(setting.home("Ben"))
    assert over
    assert "removed by the operator: too late" in sentence
    assert check(setting.entries()) is None


def test_who_is_removed_while_offers_are_out_counts_as_declining(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    setting.people[setting.node("Ben")].decide = lambda _: None
    view = setting.go(setting.commanding("offer", 2, "remove", client="Ben"))
    assert [offer.client.name for offer in view.agreement.offers] == ["Ada", "Cleo", "Dora"]
    assert view.agreement.terms.version == 2
    assert reasons(view, "Ben", "offer") == {"removed by the operator"}
    assert papers.news(setting.home("Ben")) == ("Nothing more is asked of you: you were removed by the operator.", True)
    assert check(setting.entries()) is None


@pytest.mark.parametrize(("word", "nth"), [("labels", 2), ("audition_commit", 1)])
def test_no_solo_model_is_taken_of_who_is_removed_before_hers_is_in(tmp_path, plans, word, nth):
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


def test_who_is_removed_when_her_solo_model_is_in_keeps_what_her_labels_earned(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    grid = setting.commanding("audition_open", 1, "remove", client="Ben")
    view = setting.go(grid)
    one = settled(view)["Ben"]
    assert one["label_pay"] > one["computing_pay"] == 0
    assert (one["delivered"], one["asked"], grid.times_asked("train", setting.node("Ben"))) == (0, 12, 0)
    assert_all_holds(setting, view)


@pytest.mark.parametrize("masked", [False, True])
def test_who_is_removed_in_the_rounds_is_paid_for_those_that_she_delivered(tmp_path, plans, masked):
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
    (receipt,) = papers.receipts(setting.home("Ben"))
    assert [one["document"]["kind"] for one in receipt["document"]["commands"].values()] == ["remove"]
    assert_all_holds(setting, view)
    without = {name: part for name, part in receipt["document"].items() if name != "commands"}
    assert "no signed command for it" in receipt_fault(signed(read_key(setting.folder / "operator"), without))


def test_a_pause_blocks_between_rounds_and_changes_nothing_else(tmp_path, plans):
    undisturbed = Commanded(tmp_path / "a", plans, job=audition_job(made(tmp_path / "a")))
    expected = undisturbed.go()
    setting = Commanded(tmp_path / "b", plans, job=audition_job(made(tmp_path / "b")))
    heard, began = [], time.monotonic()

    def pause():
        setting.command("pause", "noon")
        threading.Timer(
            0.6, lambda: (heard.append(papers.news(setting.home("Ada"))), setting.command("resume"))
        ).start()

    view = setting.go(At(setting.grid, "train", 4, pause))
    assert time.monotonic() - began > 0.6
    assert heard == [("The operator paused the job; nothing is asked of you until it goes on: noon.", False)]
    assert view.test.document["model"] == expected.test.document["model"]
    assert_all_holds(setting, view)


def made(folder):
    folder.mkdir()
    return folder


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


def rounds_of(setting):
    return [entry for entry in setting.entries() if entry.kind == "round"]


def test_an_extension_gives_time_to_label_and_is_told(tmp_path, plans):
    setting = Commanded(tmp_path, plans, label_seconds=0.3)
    ben, began = setting.people[setting.node("Ben")], time.monotonic()
    made_labels, told = ben.labels, []

    def labels(offer):
        if time.monotonic() < began_labeling[0] + 1.0:
            return None
        told.append(papers.news(setting.home("Ben"))[0])
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
    assert_all_holds(setting, view)


def test_a_command_of_somebody_else_is_ignored_refused_once_and_found(tmp_path, plans):
    setting = Commanded(tmp_path, plans)

    def forge():
        with open_ledger(setting.folder / "ledger.db") as book:
            name = job_name(book, setting.job, setting.seed)
            document = {"kind": "end", "job": name, "by": "Eve", "why": "", "at": soon(0)}
            book.append(name, "command", "1", signed(new_key(), document))

    view = setting.go(At(setting.grid, "train", 3, forge))
    assert len(view.rounds) == 12
    assert [e.document["reason"] for e in view.rejections if e.document["stage"] == "command"] == [
        "command 1: its signature is not of the job's operator"
    ]
    assert "its signature is not of the job's operator" in check(setting.entries()).message


def test_an_end_that_nobody_commanded_is_found(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    view = setting.go(setting.commanding("train", 3, "end"))
    rows = [entry for entry in setting.entries() if entry.kind != "command"]
    faults = [fault.message for fault in end_faults(job_view(view.name, rows))]
    assert any("gave no command to end the job before it" in fault for fault in faults)


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
def test_what_a_stranger_says_of_her_labels_is_noted_only_if_it_can_be(tmp_path, number):
    live = LiveWriter(tmp_path, "job", ("Ben",))
    note_labels(live, "Ben", 5, 10)
    note_labels(live, "Ben", number, 10)
    assert live.status.clients["Ben"].labeled == 5
