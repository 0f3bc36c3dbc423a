"""A job that the operator ends early, in any stage: its rows, its pay, its receipts."""

from dataclasses import replace

import pytest
from flwr.app import Error

from helpers.auditions import Plans, audition_job, joint_audition_job, other_reply
from helpers.commanded_jobs import At, Commanded, assert_all_holds, lceme_job, masked_job, settled
from helpers.commands import told
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.federation.operator.commands import require_removable
from truthfl.federation.operator.live_status import LiveStatus, RoundWaits
from truthfl.federation.protocol import job_control
from truthfl.federation.protocol import rounds as rounds_module
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.recorder import Recorder
from truthfl.federation.protocol.server import is_complete, job_name
from truthfl.federation.simulated.participants import InProcessGrid
from truthfl.flower_patches import NODE_UNAVAILABLE
from truthfl.home import participant_folder
from truthfl.job import participants
from truthfl.job.sections import PrivacySettings
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.command_rows import end_faults
from truthfl.ledger.documents import signed
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import receipt_fault, signed_receipt
from truthfl.ledger.signing import new_key, read_key
from truthfl.ledger.terms import loss_rise
from truthfl.page.receipt_check import own_receipt_fault

QUICK = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


def quick(job, side):
    return job.plan(side, QUICK)


@pytest.fixture(scope="module")
def plans():
    return Plans()


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    """In these small jobs all rounds are done before a command would be looked for again."""
    monkeypatch.setattr(job_control, "SECONDS_BETWEEN_READS", 0.0)
    monkeypatch.setattr(job_control, "LONGEST_SLEEP", 0.02)


@pytest.mark.parametrize("make", [audition_job, masked_job, joint_audition_job])
def test_a_job_that_is_ended_in_its_rounds_is_paid_for_those_that_took_place(tmp_path, plans, make):
    setting = Commanded(tmp_path, plans, job=make(tmp_path))
    view = setting.go(setting.commanding("train", 5, "end", "good enough"))
    assert len(view.rounds) == 5
    assert view.finished
    assert view.ended.document == {"rounds": 5, "asked": {}}
    terms = view.agreement.terms
    changed = sum(entry.document["model"] != entry.document["previous"] for entry in view.rounds)
    assert view.loss_rise == loss_rise(terms.loss_by_rounds, 12, changed)
    assert (view.loss_rise > 0) == (make is joint_audition_job)
    for offer in view.agreement.offers:
        one, amounts = settled(view)[offer.client.name], offer.contract
        assert (one["delivered"], one["asked"], one.get("loss_rise", 0.0)) == (5, 12, view.loss_rise)
        at_all_rounds = (one["computing_pay"]) * 12 / 5
        assert 0 < at_all_rounds <= float(amounts.most_parts()["computing_pay"][0])
        assert one["label_pay"] > 0
    assert_all_holds(setting, view)
    assert [e.sequence for e in setting.go().rounds] == [e.sequence for e in view.rounds]  # and nothing goes on


def test_honest_clients_do_not_lose_by_the_end_of_a_job(tmp_path, plans):
    """The expected loss rises with the rounds that are missing."""
    setting = Commanded(tmp_path, plans, job=joint_audition_job(tmp_path))
    view = setting.go(setting.commanding("train", 2, "end"))
    tested = view.test.document["loss"]
    for offer in view.agreement.offers:
        expected = float(
            offer.contract.joint_constant[0] + offer.contract.joint_curve[0] / offer.client.pay["total_labels"]
        )
        base, slope = float(offer.contract.computing_base[0]), float(offer.contract.joint_slope[0])
        unraised = max(base + slope * (expected - tested), 0) * 2 / 12
        assert settled(view)[offer.client.name]["computing_pay"] > unraised


def test_a_receipt_without_the_signed_command_does_not_hold(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    view = setting.go(setting.commanding("train", 3, "end"))
    entries, key = setting.entries(), read_key(setting.folder / "operator")
    receipt = signed_receipt(view.agreement.offers[0], view, entries, key)
    assert receipt_fault(receipt) is None
    (number,) = receipt["document"]["commands"]

    def faulty(**changes):
        document = {**receipt["document"], **changes}
        return receipt_fault(signed(key, {name: part for name, part in document.items() if part is not None}))

    took_place = len(view.rounds)  # 3, or one more if the server read the command a moment later
    assert f"{took_place} of {took_place} that it lists" in faulty(commands=None)
    forged = signed(new_key(), receipt["document"]["commands"][number]["document"])
    assert "signature is not of the job's operator" in faulty(commands={number: forged})
    again = signed(key, {**receipt["document"]["commands"][number]["document"], "why": "another reason"})
    assert "its command is not the one in the ledger" in faulty(commands={number: again})


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
        return other_reply(Error(NODE_UNAVAILABLE, "gone"), reply)


def test_an_end_during_the_audition_leaves_everybody_the_time_to_send_their_model(tmp_path, plans):
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
        sentence, over = participant_folder.news(person.folder)
        assert over
        assert sentence.endswith("before there was a contract, and nobody is paid: no money.")
    with open_ledger(setting.folder / "ledger.db") as book:
        name = job_name(book, setting.job, setting.seed)
        assert is_complete(book, name)
        assert job_name(book, setting.job, setting.seed, again=True) != name
    rows = len(setting.entries())
    setting.go()
    assert len(setting.entries()) - rows <= 0


def test_the_end_of_a_job_by_the_tested_loss_takes_off_what_the_missing_rounds_do(tmp_path):
    setting = Commanded(tmp_path, quick, job=lceme_job(tmp_path))
    view = setting.go(setting.commanding("train", 6, "end"))
    terms, tested = view.agreement.terms, view.test.document["loss"]
    changed = sum(entry.document["model"] != entry.document["previous"] for entry in view.rounds)
    rise = loss_rise(terms.loss_by_rounds, 12, changed)
    assert 0 < rise < tested
    for offer in view.agreement.offers:
        one = settled(view)[offer.client.name]
        assert one["loss_rise"] == rise
        assert one["amount"] == pytest.approx(offer.amount(tested - rise) * one["delivered"] / 12)
    assert_all_holds(setting, view)


class Cut(InProcessGrid):
    """A grid on which the reports of one node are lost."""

    def __init__(self, grid, node):
        self.__dict__.update(vars(grid))
        self.node = node

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        return [other_reply(Error(NODE_UNAVAILABLE, "gone"), one) if self._is_report(one) else one for one in replies]

    def _is_report(self, reply):
        return "train" in reply.metadata.message_type and reply.metadata.src_node_id == self.node


def test_rounds_that_cannot_change_the_model_cost_nobody_who_is_there(tmp_path):
    """One of three is away under masks, by LCEME: the others delivered, and are paid as for the model expected."""
    job = lceme_job(tmp_path)
    clients = job.document()["clients"]
    three = {name: column[:3] if isinstance(column, list) else column for name, column in clients.items()}
    server, privacy = replace(job.server, round_seconds=0.3), PrivacySettings(secure_aggregation=True)
    job = replace(job.with_clients(participants(**three)), server=server, privacy=privacy)
    job = replace(job, training=replace(job.training, rounds=3))
    setting = Commanded(tmp_path, quick, job=job)
    away = job.clients.name[0]
    view = setting.go(Cut(setting.grid, setting.node(away)))
    assert all(entry.document["model"] == entry.document["previous"] for entry in view.rounds)
    terms, pay = view.agreement.terms, settled(view)
    for offer in view.agreement.offers:
        one = pay[offer.client.name]
        if offer.client.name == away:
            assert one["amount"] == 0
            continue
        assert (one["delivered"], one["asked"]) == (3, 3)
        assert one["loss_rise"] == terms.loss_by_rounds[0]
        slope = offer.client.pay["slope"]
        assert one["amount"] == pytest.approx(offer.expected_pay, abs=3 * slope * terms.loss_error)
        assert one["amount"] > offer.cost - slope * terms.loss_error
    assert check(setting.entries()) is None
    for name in {offer.client.name for offer in view.agreement.offers} - {away}:
        (receipt,) = participant_folder.receipts(setting.home(name))
        assert own_receipt_fault(setting.home(name), receipt, read_key(setting.home(name) / "key")) is None


class KilledError(Exception):
    """The server is gone."""


@pytest.mark.parametrize("rounds", [5, 12])
@pytest.mark.parametrize("contract", ["lceme", "audition", "masked"])
def test_a_job_whose_model_is_lost_is_ended_and_settled(tmp_path, plans, monkeypatch, contract, rounds):
    """Checkpoint gone, one of those who delivered gone for good: `end` settles at the expected loss."""
    monkeypatch.setattr(rounds_module, "SECONDS_BETWEEN_REPEATS", 0.01)
    made = {"lceme": lceme_job, "masked": masked_job, "audition": audition_job}[contract](tmp_path)
    job = replace(made, server=replace(made.server, round_seconds=0.3))
    setting = Commanded(tmp_path, quick if contract == "lceme" else plans, job=job)
    put = Recorder.put

    def put_or_die(self, number, *more):
        put(self, number, *more)
        if number == rounds:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "put", put_or_die)
        with pytest.raises(KilledError):
            setting.go()
    (checkpoint,) = (setting.folder / "checkpoints").iterdir()
    checkpoint.unlink()
    gone = setting.job.clients.name[0]
    _assert_nobody_is_removed_whom_the_repeat_needs(setting, gone)
    setting.command("end", "one is gone for good")
    view = setting.go(Cut(setting.grid, setting.node(gone)))
    assert view.ended.document == {"rounds": rounds, "asked": {}, "lost": 1}
    assert view.test.document["model"] == view.rounds[0].document["previous"]
    for offer in view.agreement.offers:
        one = settled(view)[offer.client.name]
        share = one["delivered"] / 12
        if contract == "lceme":
            assert one["amount"] == pytest.approx(offer.expected_pay * share)
        elif one["passed"]:
            assert one["computing_pay"] == pytest.approx(offer.client.pay["computing_base"] * share)
            assert one["label_pay"] > 0
    assert_all_holds(setting, view)
    assert [entry.sequence for entry in setting.go().rounds] == [entry.sequence for entry in view.rounds]
    _assert_forged_loss_is_found(setting, view)


def _assert_nobody_is_removed_whom_the_repeat_needs(setting, name):
    (job,) = {entry.job for entry in setting.entries()}
    view, live = job_view(job, setting.entries()), LiveStatus(job)
    require_removable(view, name, live)
    live.waits = RoundWaits((name,), len(view.rounds) + 1, "", "")  # an ordinary round
    require_removable(view, name, live)
    live.waits = RoundWaits((name,), 1, "", "")
    assert "truthfl end ends the job and settles it" in told(require_removable, view, name, live)


def _assert_forged_loss_is_found(setting, view):
    entries, key = setting.entries(), read_key(setting.folder / "operator")
    receipt = signed_receipt(view.agreement.offers[0], view, entries, key)
    assert receipt_fault(receipt) is None

    def faulty(**changes):
        return receipt_fault(signed(key, {**receipt["document"], **changes}))

    lost = receipt["document"]["lost"]
    assert "another model was tested than the last one that was not lost" in faulty(lost={**lost, "lost": 3})
    assert "not in which of its rounds" in faulty(lost={**lost, "rounds": lost["rounds"] - 1})
    without = {name: part for name, part in receipt["document"].items() if name != "lost"}
    assert receipt_fault(signed(key, without)) is not None
    view.ended.document["lost"] = len(view.rounds) + 1
    assert any("not in which round" in fault.message for fault in end_faults(view))


def test_somebody_who_is_asked_in_some_rounds_is_paid_by_those_drawn_for_them(tmp_path):
    job = lceme_job(tmp_path, participation=[1.0, 0.5, 1.0, 0.5])
    setting = Commanded(tmp_path, quick, job=job)
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


def test_an_end_that_nobody_commanded_is_found(tmp_path, plans):
    setting = Commanded(tmp_path, plans)
    view = setting.go(setting.commanding("train", 3, "end"))
    rows = [entry for entry in setting.entries() if entry.kind != "command"]
    faults = [fault.message for fault in end_faults(job_view(view.name, rows))]
    assert any("gave no command to end the job before it" in fault for fault in faults)
