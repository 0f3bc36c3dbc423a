"""What an operator who lies cannot do without being found: strike rounds, test another model, send two receipts."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import Meddler
from helpers.commands import told, truthfl
from helpers.databases import KEY, opening
from helpers.participants import changed
from helpers.small_jobs import UNMASKED, known_plans, small_job_file  # noqa: F401
from truthfl.cli.participant.participation import _show_receipt
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.signatory import OTHER_OPERATOR
from truthfl.federation.protocol import receipt_delivery, rounds
from truthfl.federation.protocol.messages import ROUND
from truthfl.federation.protocol.reports import RoundCall
from truthfl.federation.protocol.server import Operator, conduct_job
from truthfl.federation.simulated.participants import grid_of, simulated_participants
from truthfl.home import participant_folder
from truthfl.home import record as own_record
from truthfl.home.record import late_rounds, note_taken, rounds_of, taken_rounds, unasked_rounds
from truthfl.job import read_job
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import Ledger, open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.documents import final_fault, offer_fault, signed, signed_offer
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import receipt_fault, signed_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import new_key, public_line, write_key
from truthfl.ledger.terms import FORMAT
from truthfl.page import documents as document_views
from truthfl.page.receipt_check import own_receipt_fault

QUICK = PilotDesign(seeds=2, honest_seeds=6, batch_sizes=(4, 8, 16, 32))
SEED, ADA, BEN = 5, 1000, 1001


class Federation:
    """A job of six rounds with four clients, one of them a free rider, and its operator's folder."""

    def __init__(self, folder, plan=None, more="", **server):
        path = small_job_file(folder, "rounds = 30", "rounds = 6\nstep_size = 0.5")
        path.write_text(path.read_text().replace(UNMASKED, more or UNMASKED))
        job = read_job(path)
        self.job = replace(job, server=replace(job.server, **server))
        self.folder, self.plan = folder / "out", plan
        scene = self.job.simulated_federation()
        labels = Profile(self.job.clients.behaviour, 1).labels(scene.federated, SEED)
        self.people = simulated_participants(self.job, scene, self.folder, labels)
        self.key = kept_key(self.folder / "operator")

    def make_plan(self, job, side):
        self.plan = self.plan or job.plan(side, QUICK)
        return self.plan

    def go(self, name="digits-1", change=None):
        grid = grid_of(self.people)
        with open_ledger(self.folder / "ledger.db") as ledger:
            operator = Operator(ledger, self.folder, self.key, secret_from_seed(SEED), SEED, simulated=True)
            grid = grid if change is None else Meddler(grid, change)
            return conduct_job(grid, self.job, name, operator, self.make_plan, lambda *_: None)

    def entries(self):
        with open_ledger(self.folder / "ledger.db") as ledger:
            return ledger.entries()

    def reasons(self, found, client):
        return {row.document["reason"] for row in found.rejections if row.document["client"] == client}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    made = Federation(tmp_path_factory.mktemp("finished"))
    made.found = made.go()
    return made


@pytest.fixture
def federation(tmp_path, finished):
    return Federation(tmp_path, finished.plan)


def fault_of(person, receipt):
    return own_receipt_fault(person.folder, receipt, person.key)


def receipt_of(person):
    return participant_folder.receipts(person.folder)[-1]


def copy_of(home, place):
    """The same folder elsewhere."""
    shutil.copytree(home, place)
    return place


def retold(finished, folder, change, client="Ada"):
    """A whole ledger in which rows are changed before the settlement, and the receipt that the operator signs then.

    change(kind, key, document) returns the new row's kind, key and document.
    """
    with open_ledger(folder / "retold.db", finished.key) as ledger:
        for entry in finished.entries():
            if entry.kind == "settlement":
                break
            kind, key, document = change(entry.kind, entry.key, deepcopy(entry.document))
            ledger.append_all([Item(entry.job, kind, key, document)])
        settle(ledger, finished.found.name)
        entries = ledger.entries()
        view = job_view(finished.found.name, entries)
        offer = next(offer for offer in view.agreement.offers if offer.client.name == client)
        receipt = signed_receipt(offer, view, entries, finished.key)
        return check(entries), receipt


def test_receipts_carry_the_rounds_and_the_node_has_kept_the_same(finished):
    for node, person in finished.people.items():
        document = receipt_of(person)["document"]
        kept = rounds_of(person.folder, finished.found.agreement.offers[node - ADA].hash)
        assert [one["round"] for one in document["rounds"]] == [1, 2, 3, 4, 5, 6]
        assert [one["previous"] for one in document["rounds"]] == [one.received for one in kept]
        assert document["rounds"][-1]["model"] == document["test"]["model"] == document["final"]["document"]["model"]
        assert unasked_rounds(person.folder, document) == 0
    assert fault_of(finished.people[ADA], receipt_of(finished.people[ADA])) is None
    of_ben = fault_of(finished.people[BEN], receipt_of(finished.people[BEN]))
    assert of_ben.startswith("your computer sent 6 reports that are not counted (round 1: empty: it is the model as it")


def test_being_struck_from_a_round_is_found(finished, tmp_path):
    """Ledger and receipt are whole in themselves; what the participant's computer kept is not in them."""

    def strike(kind, key, document):
        if (kind, key) == ("round", "3"):
            document["missing"].append("Ada")
        return kind, key, document

    fault, receipt = retold(finished, tmp_path, strike)
    assert fault is None
    assert receipt_fault(receipt) is None
    assert receipt["document"]["settlement"]["delivered"] == 5
    ada = finished.people[ADA]
    found = "your computer sent 1 reports that are not counted (round 3: no reason is recorded)"
    assert fault_of(ada, receipt) == found
    assert replace(ada, folder=copy_of(ada.folder, tmp_path / "home")).keep_receipt(receipt) == found
    receipt["document"]["rounds"][2] |= {"taken": True}
    assert "signature" in receipt_fault(receipt)


def test_a_receipt_whose_rounds_do_not_agree_with_its_pay_does_not_hold(finished):
    view, entries = finished.found, finished.entries()
    real = signed_receipt(view.agreement.offers[0], view, entries, finished.key)["document"]

    def signed_with(**changes):
        document = deepcopy(real) | changes
        return receipt_fault(signed(finished.key, document))

    assert signed_with() is None
    listed = real["rounds"]
    assert "counts other rounds than the 5 of 5" in signed_with(rounds=listed[1:])
    untaken = [listed[0] | {"taken": False, "reason": "late"}, *listed[1:]]
    assert "counts other rounds than the 5 of 6" in signed_with(rounds=untaken)
    assert "parts of rounds" in signed_with(rounds=[listed[0] | {"taken": False}, *listed[1:]])
    assert "in order" in signed_with(rounds=listed[::-1])
    other = [*listed[:3], listed[3] | {"previous": "ab" * 32}, *listed[4:]]
    assert "round 4 starts from another model" in signed_with(rounds=other)
    last = [*listed[:5], listed[5] | {"model": "ab" * 32}]
    assert "another model was tested than the last round's" in signed_with(rounds=last)
    assert signed_with(final=None) is None  # Ada may have been away; her folder knows it if she was not
    forged = deepcopy(real["final"])
    forged["document"]["model"] = "ab" * 32
    assert "their word on the final model does not hold" in signed_with(final=forged)


def test_testing_another_model_is_found_by_the_ledger_and_by_receipts(finished, tmp_path):
    def test_another(kind, key, document):
        return kind, key, document | ({"model": "ab" * 32} if kind == "test" else {})

    def train_another(kind, key, document):
        if (kind, key) == ("round", "6"):
            document["model"] = "ab" * 32
        return test_another(kind, key, document)

    def nobody_signed(kind, key, document):
        if kind == "final":
            absent = {"stage": "final", "round": None, "client": key, "node": None, "reason": "no word"}
            return "rejection", f"final/{key}", absent
        return train_another(kind, key, document)

    ada = finished.people[ADA]
    for number, (change, in_ledger, in_receipt) in enumerate(
        [
            (test_another, "another model was tested than the last round's", "another model was tested than the last"),
            (train_another, "it is of another model than the last round's", "than the one they signed for"),
            (nobody_signed, None, "the model that was tested is not the final one that you signed for"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        fault, receipt = retold(finished, folder, change)
        assert fault is None if in_ledger is None else in_ledger in fault.message
        assert in_receipt in fault_of(ada, receipt)


def test_a_broken_chain_of_models_and_a_silent_end_are_found_by_the_ledger(finished, tmp_path):
    def another_start(kind, key, document):
        return kind, key, document | ({"previous": "ab" * 32} if (kind, key) == ("round", "4") else {})

    def not_told(kind, key, document):
        return ("rejection", "else", {**deepcopy(NOBODY)}) if (kind, key) == ("final", "Ada") else (kind, key, document)

    for folder, change, what in (
        (tmp_path / "a", another_start, "starts from another model than the one after the round before"),
        (tmp_path / "b", not_told, "Ada was not told the final model before it"),
    ):
        folder.mkdir()
        assert what in retold(finished, folder, change)[0].message


NOBODY = {"stage": "final", "round": None, "client": "Nobody", "node": None, "reason": "no word"}


def test_a_second_receipt_leaves_the_first_and_is_shouted(finished, tmp_path):
    ada, name = finished.people[ADA], finished.found.name
    true = receipt_of(ada)
    _, other = retold(finished, tmp_path, lambda kind, key, document: (kind, key, document))
    home = copy_of(ada.folder, tmp_path / "home")
    shutil.rmtree(home / "receipts")
    participant_folder.put_receipt(home, true, name)
    assert own_receipt_fault(home, true, ada.key) is None
    assert document_views.receipt_view(home)["warning"] is None
    participant_folder.put_receipt(home, true, name)  # the same again is the same
    assert own_receipt_fault(home, true, ada.key) is None
    participant_folder.put_receipt(home, other, name)
    assert participant_folder.receipts(home) == [true, other]
    for receipt in (true, other):
        assert "YOU WERE SENT 2 DIFFERENT RECEIPTS OF THIS JOB" in own_receipt_fault(home, receipt, ada.key)
    warning = document_views.receipt_view(home)["warning"]
    assert "YOU WERE SENT 2 DIFFERENT RECEIPTS" in warning
    for number in range(18):
        participant_folder.put_receipt(home, other | {"signature": str(number)}, name)
    assert "no more are kept" in told(participant_folder.put_receipt, home, {"document": {}}, name)
    assert "is no name" in told(participant_folder.put_receipt, home, other, "../../x")


def test_offers_are_signed_and_others_are_refused(finished):
    ada = finished.people[ADA]
    offer = finished.found.agreement.offers[0]
    assert offer_fault(offer) is None
    assert offer_fault(participant_folder.offers(ada.folder)[0]) is None
    unsigned = changed(offer, batch_size=1)
    assert "the operator did not sign it" in told(ada.answer_offer, unsigned.document())
    forged = unsigned.document() | {"document": unsigned.document(), "signature": offer.signature}
    assert "is no offer" in told(ada.answer_offer, forged)
    stolen = {"document": unsigned.document(), "signature": offer.signature}
    assert "its signature is not of the operator's key" in told(ada.answer_offer, stolen)
    assert "this is no offer" in told(ada.answer_offer, unsigned.document() | {"format": FORMAT + 1})
    other = new_key()
    assert "another operator's key" in told(signed_offer, unsigned, other)
    elsewhere = changed(offer, operator_key=public_line(other))
    assert "had offers of another operator's key" in told(ada.answer_offer, signed_offer(elsewhere, other).envelope())


def test_an_offer_of_another_key_than_the_invitations_is_refused_and_told(tmp_path, monkeypatch):
    said, put_news = [], participant_folder.put_news

    def heard(home, words, **how):
        said.append((home, words))
        put_news(home, words, **how)

    monkeypatch.setattr(participant_folder, "put_news", heard)
    federation = Federation(tmp_path, answer_seconds=0.5)
    federation.make_plan = lambda job, side: job.plan(side, QUICK)
    ada = federation.people[ADA]
    ada.operator, federation.people[BEN].operator = public_line(new_key()), public_line(federation.key)
    found = federation.go()
    assert participant_folder.offers(ada.folder) == []
    assert {home for home, words in said if words == OTHER_OPERATOR} == {ada.folder}
    assert found.finished
    assert "Ada" not in found.settlements
    assert "Ben" in found.settlements


def test_zeros_every_round_and_round_a_million_are_refused(federation, monkeypatch):
    record = rounds.model_record
    monkeypatch.setattr(rounds, "model_record", lambda params: record(np.zeros_like(params)))
    found = federation.go()
    assert len(rounds_of(federation.people[ADA].folder, found.agreement.offers[0].hash)) == 1
    assert federation.reasons(found, "Ada") == {
        f"error: round {number} has the same model as round 1, without a reason." for number in range(2, 7)
    }


def test_a_round_that_the_contract_has_not_is_refused_in_words(federation, monkeypatch):
    fields = RoundCall.fields
    monkeypatch.setattr(RoundCall, "fields", lambda call, offer: fields(call, offer) | {"round": 10**6})
    found = federation.go()
    assert federation.reasons(found, "Ada") == {"error: round 1,000,001 is asked for; the contract has 6 rounds."}
    assert found.delivered == {}


def test_somebody_who_does_not_sign_for_the_final_model_is_noted_and_the_job_ends(federation):
    federation.people[BEN].sign_final = lambda *_: {"document": {}, "signature": ""}
    found = federation.go()
    assert set(found.finals) == {"Ada", "Cleo", "Dora"}
    assert final_fault(found.finals["Ada"].document, found.agreement.offers[0]) is None
    assert "it is not their word on the final model of this offer" in federation.reasons(found, "Ben")
    assert max(entry.sequence for entry in found.finals.values()) < found.test.sequence
    assert check(federation.entries()) is None
    ada, offer = federation.people[ADA], found.agreement.offers[0]
    assert "signed for another final model" in told(ada.sign_final, offer.hash, "ab" * 32)
    assert "is no hash" in told(ada.sign_final, offer.hash, "model")


def test_somebody_who_was_offline_at_the_end_gets_their_receipt_when_they_join_next(federation, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(receipt_delivery, "_deliver", lambda *_: None)
        first = federation.go()
    ada = federation.people[ADA]
    assert participant_folder.receipts(ada.folder) == []
    second = federation.go("digits-2")
    assert participant_folder.current_job(ada.folder) == "digits-2"
    both = participant_folder.receipts(ada.folder)
    assert [one["document"]["job"] for one in both] == ["digits-1", "digits-2"]
    assert [fault_of(ada, one) for one in both] == [None, None]
    entries = federation.entries()
    assert all(check_receipt(one, entries) is None for one in both)
    assert check(entries) is None
    acknowledged = {(row.job, row.key) for row in entries if row.kind == "acknowledgement"}
    assert acknowledged == {(job.name, name) for job in (first, second) for name in federation.job.clients.name}


def test_a_receipt_is_not_crowded_out_by_others_of_the_same_name_and_their_rows_are_not_read(federation, monkeypatch):
    """In a ledger that operators share, Adas of others may never have said that they kept theirs."""
    with monkeypatch.context() as patch:
        patch.setattr(receipt_delivery, "_deliver", lambda *_: None)
        federation.go()
    with open_ledger(federation.folder / "ledger.db", KEY) as book:
        for number in range(receipt_delivery.MOST_MISSED):
            book.append(f"other-{number}", "job", "job", opening())
            book.append(f"other-{number}", "enrolment", "Ada", {"public_key": "another"})
            book.append(f"other-{number}", "receipt", "Ada", {})
    asked, entries = [], Ledger.entries

    def noted(ledger, *one, **more):
        asked.append((one, more))
        return entries(ledger, *one, **more)

    monkeypatch.setattr(Ledger, "entries", noted)
    federation.go("digits-2")
    assert [one["document"]["job"] for one in participant_folder.receipts(federation.people[ADA].folder)] == [
        "digits-1",
        "digits-2",
    ]
    assert ((), {}) not in asked
    assert not any(job.startswith("other-") for one, _ in asked for job in one)


def losing(*numbers):
    """A server to which Ada's reports of these rounds, counted from 0, do not come."""

    def lose(reply):
        record = None if reply.has_error() else reply.content.config_records.get(ROUND)
        lost = record is not None and reply.metadata.src_node_id == ADA and record["round"] in numbers
        return [] if lost else [reply]

    return lose


def test_a_few_late_reports_are_no_fault_unless_the_server_took_them(tmp_path, finished, capsys, monkeypatch):
    federation = Federation(tmp_path, finished.plan, round_seconds=0.3)
    found = federation.go(change=losing(2, 4))
    ada, offer = federation.people[ADA], found.agreement.offers[0]
    receipt = receipt_of(ada)
    assert found.delivered["Ada"] == 4
    assert (fault_of(ada, receipt), late_rounds(ada.folder, receipt["document"])) == (None, (3, 5))
    write_key(ada.key, tmp_path / "key")
    assert _show_receipt(receipt, ada.folder, tmp_path / "key")
    told = capsys.readouterr().out
    assert "It holds.\nBy the receipt, reports of yours came too late and are not counted: round 3, 5.\n" in told
    with monkeypatch.context() as patch:
        patch.setattr(own_record, "FEW_LATE", 1)
        assert fault_of(ada, receipt).startswith(
            "your computer sent 2 reports that are not counted (round 3: no report"
        )
    note_taken(ada.folder, offer.hash, 4)
    assert taken_rounds(ada.folder, offer.hash) == {4}
    sent = "your computer sent 1 reports that are not counted (round 5: no report in time)"
    assert (fault_of(ada, receipt), late_rounds(ada.folder, receipt["document"])) == (sent, (3,))


def test_a_false_dropout_of_a_masked_round_is_found(tmp_path):
    """The operator says that Ada's report was lost, and learns it from the others' keys; her own record tells her."""
    federation = Federation(tmp_path, more="\n[privacy]\nsecure_aggregation = true\n", round_seconds=0.3)
    found = federation.go(change=losing(2))
    ada = federation.people[ADA]
    assert found.delivered["Ada"] == 5
    note_taken(ada.folder, found.agreement.offers[0].hash, 2)
    sent = "your computer sent 1 reports that are not counted (round 3: no report in time)"
    assert fault_of(ada, receipt_of(ada)) == sent
    cleo = federation.people[ADA + 2]
    assert fault_of(cleo, receipt_of(cleo)) is None
    assert check(federation.entries()) is None
    federation.found = found
    lists = {"3": (["Ada"], []), "5": ([], ["Dora"])}  # of the rounds; what Cleo's computer signed, and what is written
    for number, (signed_for, written) in lists.items():

        def lie(kind, key, document, number=number, signed_for=signed_for, written=written):
            if (kind, key) == ("round", number):
                assert document["missing"] == signed_for
                document["missing"] = written
            return kind, key, document

        (tmp_path / number).mkdir()
        fault, receipt = retold(federation, tmp_path / number, lie, "Cleo")
        assert (fault, receipt_fault(receipt)) == (None, None)
        words = f"other people are missing in round {number} than on the list that your computer signed"
        assert fault_of(cleo, receipt) == words


def test_the_command_makes_a_receipt_again(finished):
    words = ["ledger", "receipt", finished.folder / "ledger.db", "--client"]
    made = truthfl(*words, "Ada")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == receipt_of(finished.people[ADA])
    unknown = truthfl(*words, "Mallory")
    assert unknown.returncode == 2
    assert "has no receipt of 'Mallory'" in unknown.stderr
