"""Which rounds a participant answers: those of the contract, once each, in order, from models that follow."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context

import numpy as np
import pytest

from helpers.commands import told
from helpers.participants import an_offer
from truthfl.contracts.formulas import SOLO_MEAN
from truthfl.federation.participant.round_guard import AskedRound, answering, asked_round
from truthfl.federation.protocol.messages import model_digest
from truthfl.home import node_state as model_slots
from truthfl.home import participant_folder
from truthfl.home import record as round_record
from truthfl.home.record import RoundRecord, last_round, open_rounds, rounds_file, rounds_of
from truthfl.ledger.documents import final_word
from truthfl.ledger.signing import new_key

KEY, OPERATOR = new_key(), new_key()
START = np.zeros(4, np.float32)


class Node:
    """Answers rounds of one offer, whose reports may move the model by 1."""

    def __init__(self, home, **terms):
        self.home = home
        self.offer = an_offer(KEY, OPERATOR, **{"rounds": 300, "report_bounds": ((0, 1.0),)} | terms)

    def answer(self, model, **fields):
        asked = asked_round({"unchanged": 0, "changed": fields.get("round")} | fields, model_digest(model))
        with answering(self.home, self.offer, asked, model, lambda: START) as answer:
            answer.sent("ab" * 32)

    def refuses(self, model, **fields):
        before = self.kept()
        sentence = told(self.answer, model, **fields)
        assert self.kept() == before
        return sentence

    def kept(self):
        return rounds_of(self.home, self.offer.hash)


def at(position):
    return np.array([position, 0, 0, 0], np.float32)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_rounds_in_order_are_answered_and_kept(node):
    for number in range(5):
        node.answer(at(0.5 * number), round=number)
    node.answer(at(3.5), round=7)  # 5 and 6 were missed
    assert [(one.round, one.received) for one in node.kept()] == [
        *((number, model_digest(at(0.5 * number))) for number in range(5)),
        (7, model_digest(at(3.5))),
    ]
    assert {one.sent for one in node.kept()} == {"ab" * 32}
    assert rounds_file(node.home, node.offer.hash).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [300, 10**6])
def test_a_round_that_the_contract_has_not_is_refused(node, number):
    assert f"round {number + 1:,} is asked for; the contract has 300 rounds." in node.refuses(START, round=number)


@pytest.mark.parametrize("fields", [{"round": -1}, {"round": "0"}, {"round": True}, {}, {"round": 0, "unchanged": -1}])
def test_numbers_that_are_none_are_refused(node, fields):
    assert "is no whole number" in node.refuses(START, **fields)


@pytest.mark.parametrize("name", ["round", "unchanged", "changed"])
def test_a_message_that_leaves_out_a_number_is_refused(name):
    fields = {"round": 0, "unchanged": 0, "changed": 0}
    del fields[name]
    assert "is no whole number" in told(asked_round, fields, "ab" * 32)


def test_each_round_is_answered_once_and_in_order(node):
    node.answer(START, round=0)
    node.answer(at(0.5), round=1)
    node.answer(at(0.5), round=1)  # the same question gets the same answer
    assert len(node.kept()) == 2
    assert "round 2 was answered from another model" in node.refuses(at(0.6), round=1)
    node.answer(at(0.7), round=3)
    assert "round 3 is over" in node.refuses(at(0.6), round=2)  # it was never answered


def test_the_first_model_is_that_of_the_terms(node):
    assert "from which training starts" in node.refuses(at(0.1), round=0)
    assert "another shape" in node.refuses(np.zeros(5, np.float32), round=0)
    assert "away from the last one" in node.refuses(at(2.1), round=2)  # who missed the first rounds knows it too
    node.answer(at(1.9), round=2)


@pytest.fixture
def from_solo(tmp_path):
    """A node whose offer starts training from solo models that are at most 5 long."""
    return Node(tmp_path, start=SOLO_MEAN, solo_bound=5.0)


def test_a_first_model_from_solo_models_is_at_most_as_long_as_they_may_be(from_solo):
    assert "is 5.1 away from 0; by the offer it is at most 5" in from_solo.refuses(at(5.1), round=0)
    assert "another shape" in from_solo.refuses(np.zeros(5, np.float32), round=0)
    assert "NaN" in from_solo.refuses(at(np.nan), round=0)
    from_solo.answer(at(4.9), round=0)
    assert "is 1.1 away from the last one" in from_solo.refuses(at(6.0), round=1)
    from_solo.answer(at(5.8), round=1)


def test_who_missed_the_first_rounds_allows_for_the_first_model_and_their_changes(from_solo):
    assert "is 7.1 away from 0; by the offer it is at most 7" in from_solo.refuses(at(7.1), round=2)
    from_solo.answer(at(6.9), round=2)


def test_without_a_bound_on_solo_models_the_first_model_is_free(tmp_path):
    node = Node(tmp_path, start=SOLO_MEAN)
    node.answer(at(1e5), round=0)
    assert "away from the last one" in node.refuses(at(1e5 + 2), round=1)


def test_a_model_that_does_not_follow_from_the_last_is_refused(node):
    node.answer(START, round=0)
    node.answer(at(1.0), round=1)
    assert "is 1.5 away from the last one; by the offer it is at most 1" in node.refuses(at(2.5), round=2)
    assert "NaN" in node.refuses(np.full(4, np.nan, np.float32), round=2)
    node.answer(at(2.5), round=3)


def test_the_same_model_again_and_again_is_refused(node):
    """An operator who sends zeros every round would see what a node tells of the same point with every batch."""
    node.answer(START, round=0)
    assert "round 2 has the same model as round 1, without a reason" in node.refuses(START, round=1, changed=0)
    for number in range(1, 11):  # the server says that it refused the rounds
        node.answer(START, round=number, unchanged=number, changed=0)
    assert "stayed the same in 10 rounds" in node.refuses(START, round=11, unchanged=11, changed=0)
    node.answer(at(0.5), round=11, changed=1)
    assert "without a reason" in node.refuses(at(0.5), round=13, unchanged=1, changed=1)


def test_no_number_of_changed_rounds_lifts_the_bound(tmp_path):
    """Bounds fall with the rounds that changed the model: who says that there were few could send models farther."""
    node = Node(tmp_path, report_bounds=((0, 10.0), (3, 1.0)))
    for number in range(5):
        node.answer(at(number), round=number)
    for changed in (0, 4):
        words = f"counts {changed} rounds that changed the model; after those before round 5 it can be from 5 to 5"
        assert words in node.refuses(at(14.0), round=5, changed=changed)
    assert "it can be from 4 to 4" in node.refuses(at(4.0), round=5, unchanged=1, changed=5)
    assert "away from the last one; by the offer it is at most" in node.refuses(at(14.0), round=5)
    assert "it can be from 5 to 7" in node.refuses(at(5.0), round=7, changed=4)
    node.answer(at(5.0), round=7, changed=6)


def test_refused_sums_of_masked_reports_cost_nobody_their_rounds(tmp_path):
    """One participant can have every sum refused; the operator sees no single report."""
    node = Node(tmp_path, masked=True, agreement_key="ab" * 32)
    for number in range(40):
        node.answer(START, round=number, changed=0)


def test_a_round_that_is_asked_for_again_gets_the_same_report_or_none(node):
    """A server that was stopped asks again for the round that it had asked for; one that lost its model, for all."""
    node.answer(START, round=0)
    node.answer(at(0.3), round=1)
    node.answer(at(0.3), round=1)
    assert len(node.kept()) == 2
    asked = AskedRound(1, 0, 1, model_digest(at(0.3)))
    with answering(node.home, node.offer, asked, at(0.3), lambda: START) as answer:
        assert "was answered with another report" in told(answer.sent, "cd" * 32)
    assert "was answered from another model" in node.refuses(at(0.3), round=1, changed=0)
    node.answer(START, round=0)
    assert "round 1 was answered from another model" in node.refuses(at(0.1), round=0)
    asked = AskedRound(0, 0, 0, model_digest(START))
    with answering(node.home, node.offer, asked, START, lambda: START) as answer:
        assert "round 1 was answered with another report" in told(answer.sent, "cd" * 32)
    assert "without a reason" in node.refuses(at(0.3), round=2)  # the last round is still the second
    assert [one.sent for one in node.kept()] == ["ab" * 32] * 2


def test_after_the_final_model_no_round_is_answered(node):
    node.answer(START, round=0)
    participant_folder.put_final(node.home, node.offer, final_word(node.offer, "cd" * 32, KEY))
    assert "no more rounds are answered" in node.refuses(at(0.5), round=1)


def test_of_two_models_for_one_round_at_once_one_is_answered(node):
    node.answer(START, round=0)

    def ask(number):
        try:
            node.answer(at(0.01 * (number + 1)), round=1)
        except Exception as error:
            return str(error)
        return None

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(ask, range(24)))
    assert outcomes.count(None) == 1
    assert len(node.kept()) == 2


def test_without_a_bound_only_the_order_counts(tmp_path):
    node = Node(tmp_path, report_bounds=())
    node.answer(START, round=0)
    node.answer(at(1e5), round=1)
    assert "without a reason" in node.refuses(at(1e5), round=2, changed=1)
    assert not list((tmp_path / "rounds").glob("*.models"))


def test_somebody_who_is_asked_rarely_lets_the_model_move_further(tmp_path):
    node = Node(tmp_path, least_participation=0.5)
    node.answer(START, round=0)
    node.answer(at(1.9), round=1)
    assert "at most 2" in node.refuses(at(4.1), round=2)


def test_a_line_that_a_crash_cut_off_is_forgotten(node):
    node.answer(START, round=0)
    with rounds_file(node.home, node.offer.hash).open("ab") as file:
        file.write(b'{"round":1,"rec')
    node.answer(at(0.5), round=1)
    assert [one.round for one in node.kept()] == [0, 1]
    with rounds_file(node.home, node.offer.hash).open("ab") as file:
        file.write(b"[]\n")
    assert "no record of a round" in told(node.kept)


def models_file(node):
    return rounds_file(node.home, node.offer.hash).with_suffix(".models")


def forget(monkeypatch):
    """As in a new process: what was in memory is gone."""
    monkeypatch.setattr(model_slots, "_in_memory", ())
    round_record._forget_aside()


def test_a_crash_before_the_record_leaves_the_last_model(node, monkeypatch):
    node.answer(START, round=0)
    node.answer(at(1.0), round=1)
    with open_rounds(node.home, node.offer.hash) as rounds:  # the model of round 2 is written, its record is not
        rounds.models.keep(model_digest(at(2.0)), at(2.0).data.cast("B"), rounds.last.received)
    forget(monkeypatch)
    assert models_file(node).stat().st_size == 2 * START.nbytes
    assert models_file(node).stat().st_mode & 0o777 == 0o600
    assert "is 1.5 away from the last one; by the offer it is at most 1" in node.refuses(at(2.5), round=2)
    node.answer(at(2.0), round=2)


@pytest.mark.parametrize("left", [b"", b"junk"])
def test_somebody_who_lost_the_last_model_measures_from_the_first(node, monkeypatch, left):
    node.answer(START, round=0)
    node.answer(at(1.0), round=1)
    models_file(node).write_bytes(left)
    forget(monkeypatch)
    assert "is 2.5 away from the last one; by the offer it is at most 2" in node.refuses(at(2.5), round=2)
    node.answer(at(2.0), round=2)
    forget(monkeypatch)
    assert "is 1.5 away" in node.refuses(at(3.5), round=3)


def test_what_another_process_answered_is_seen(node):
    node.answer(START, round=0)
    child = get_context("fork").Process(target=node.answer, args=(at(0.5),), kwargs={"round": 1})
    with open_rounds(node.home, node.offer.hash):  # a child has a lock of its own, and waits
        child.start()
        child.join(0.2)
        assert child.is_alive()
    child.join()
    assert "round 2 was answered from another model" in node.refuses(at(0.6), round=1)
    assert "is 1.5 away" in node.refuses(at(2.0), round=2)
    node.answer(at(1.0), round=2)
    assert [one.round for one in node.kept()] == [0, 1, 2]


def test_a_folder_that_was_put_back_counts(node, tmp_path):
    node.answer(START, round=0)
    shutil.copytree(tmp_path / "rounds", tmp_path / "copy")
    node.answer(at(0.5), round=1)
    shutil.rmtree(tmp_path / "rounds")
    (tmp_path / "copy").rename(tmp_path / "rounds")
    node.answer(at(0.6), round=1)
    assert [one.received for one in node.kept()] == [model_digest(START), model_digest(at(0.6))]


def test_few_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(round_record, "MOST_ASIDE", 2)
    round_record._forget_aside()
    for number, name in enumerate(("a0", "a1", "a2", "a3", "a0")):
        with open_rounds(tmp_path, name) as rounds:
            rounds.append(RoundRecord(number, "", ""))
    assert len(round_record._aside) == 2
    assert len(rounds_of(tmp_path, "a0")) == 2


def test_of_very_many_rounds_the_last_are_read(tmp_path):
    digest = "ef" * 32
    with open_rounds(tmp_path, "ab") as rounds:
        for number in range(2000):
            rounds.append(RoundRecord(number, digest, digest))
    with open_rounds(tmp_path, "ab") as rounds:
        assert asdict(rounds.last)["round"] == 1999
    assert len(rounds_of(tmp_path, "ab")) == 2000
    assert "no hash" in told(rounds_of, tmp_path, "../x")


@pytest.mark.parametrize("forgotten", ["restarted", "evicted"])
def test_the_longest_record_is_read_back(tmp_path, monkeypatch, forgotten):
    """Else a node that was started again would sign another list in the round that it opened."""
    strangers = tuple(range(10**6, 10**6 + 16_000))
    with open_rounds(tmp_path, "ab") as rounds:
        rounds.append(RoundRecord(0, "aa" * 32, "bb" * 32))
        rounds.append(RoundRecord(1, "aa" * 32, "bb" * 32, missing=strangers, opened=True))
    if forgotten == "restarted":
        round_record._forget_aside()
    else:
        monkeypatch.setattr(round_record, "MOST_ASIDE", 1)
        for other in ("a1", "a2"):
            with open_rounds(tmp_path, other):
                pass
    with open_rounds(tmp_path, "ab") as rounds:
        assert rounds.last.missing == strangers
        assert rounds.last.opened
    assert last_round(tmp_path, "ab").missing == strangers
    rounds_file(tmp_path, "ab").write_bytes(b"junk\n")
    assert "no record of a round" in told(last_round, tmp_path, "ab")


def test_of_a_strategy_of_the_operators_own_no_largest_change_is_known(tmp_path):
    """The first model and NaN are still refused."""
    far = START + np.float32(50.0)
    bounded, own = Node(tmp_path / "mean"), Node(tmp_path / "own", aggregation="own")
    for node in (bounded, own):
        node.answer(START, round=0)
    assert "away from the last one" in bounded.refuses(far, round=1)
    own.answer(far, round=1)
    assert "NaN or infinity" in own.refuses(far * np.nan, round=2)
