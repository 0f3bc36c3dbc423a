"""Secure aggregation: the server sees sums, also when people drop out; what participants and operators may not do."""

import json
import time
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.auditions import Meddler, other_reply
from helpers.bare_rounds import BATCH, DIGITS, SAMPLES, STEP, BareRounds
from helpers.commands import told, within
from helpers.participants import recoded
from truthfl import Training
from truthfl.errors import InputError
from truthfl.federation.masking import participant as masked_reports
from truthfl.federation.masking import server as masked_rounds
from truthfl.federation.masking.server import TOO_FEW
from truthfl.federation.masking.shares import (
    MOST_PEERS,
    from_fixed_point,
    group_of,
    in_fixed_point,
    is_within,
    locked_share,
    mask_sum,
    mask_terms_from,
    neighbours,
    own_mask,
    own_seed,
    seed_from,
    shares_of,
    threshold,
    unlocked_share,
)
from truthfl.federation.operator.live_status import RoundWaits
from truthfl.federation.participant.round_guard import AskedRound
from truthfl.federation.protocol import enrolment, planned_offers
from truthfl.federation.protocol import reports as round_collection
from truthfl.federation.protocol.messages import (
    CODE,
    MASK_KEYS,
    MASK_LIST,
    MASK_SHARES,
    MASK_TERMS,
    MODEL,
    OPERATOR,
    PARAMS,
    PARTICIPANT,
    ROUND,
    document_in,
    document_record,
    model_digest,
    model_record,
    query_message,
    with_document_code,
)
from truthfl.federation.protocol.reports import RoundWait
from truthfl.federation.protocol.rounds import train_rounds
from truthfl.home import participant_folder
from truthfl.home.record import RoundRecord, open_rounds, rounds_of
from truthfl.job.sections import PrivacySettings
from truthfl.learning.training.draws import Purpose, below, bits
from truthfl.learning.training.draws import key as draw_key
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import signed, signed_offer
from truthfl.ledger.signing import new_key
from truthfl.ledger.terms import MOST_OTHER_SUMS, MOST_SUMS, Agreement

BOUND = 2.0
CONTEXT, SECRET = b"c" * 32, b"s" * 32


def of_training(reply, node=None):
    mine = node is None or reply.metadata.src_node_id == node
    return mine and reply.metadata.message_type == "train" and not reply.has_error()


def in_round(reply, number):
    """Whether this is a report, or an answer about the masks, of this round."""
    if of_training(reply):
        return reply.content.config_records[ROUND]["round"] == number
    return not reply.has_error() and "mask" in reply.metadata.message_type and document_in(reply).get("round") == number


@pytest.mark.parametrize("count", [3, 31, 32, 100])
def test_peers_are_mutual_and_few(count):
    peers = neighbours(range(count))
    assert all(own in peers[other] and own != other for own, known in peers.items() for other in known)
    assert {len(set(known)) for known in peers.values()} == {min(count - 1, MOST_PEERS)}


def test_masks_cancel_and_sums_have_the_stated_resolution():
    """Also at the edge of the range, where one participant has all the weight and one parameter all the length."""
    rng, lines = np.random.default_rng(0), ["a", "b", "c", "d"]
    keys = {frozenset(pair): rng.bytes(32) for pair in [(x, y) for x in lines for y in lines if x < y]}
    for weight in (np.array([0.4, 0.3, 0.2, 0.1]), np.array([1.0, 0.0, 0.0, 0.0])):
        changes = rng.normal(size=(4, 50)).astype(np.float32)
        changes[0] = 0
        changes[0, 0] = BOUND
        total = np.zeros(50, np.uint32)
        for seed, (own, change, share) in enumerate(zip(lines, changes, weight, strict=True)):
            shared = {other: keys[frozenset((own, other))] for other in lines if other != own}
            total += in_fixed_point(change, share, BOUND) + mask_sum(shared, own, 50) + own_mask(seed, 50)
            total -= own_mask(seed, 50)
        length = np.maximum(np.linalg.norm(changes.astype(float), axis=1), BOUND)
        exact = (weight * BOUND / length) @ changes.astype(float)
        assert np.abs(from_fixed_point(total, BOUND) - exact).max() <= 4 / 2 * BOUND / 2**30 + 1e-12
        assert is_within(from_fixed_point(total, BOUND), 1.0, BOUND)


@given(st.integers(3, 31), st.data())
def test_as_many_shares_as_are_needed_give_the_seed_and_fewer_tell_nothing(count, data):
    """One share fewer agrees with every seed: for any seed there is a last share that gives it."""
    needed = threshold(count)
    shares = shares_of(SECRET, CONTEXT, range(count), needed)
    chosen = data.draw(st.permutations(range(count)))[:needed]
    assert seed_from({holder: shares[holder] for holder in chosen}) == own_seed(SECRET, CONTEXT)
    for holder in chosen:
        locked = locked_share(shares[holder], b"p" * 32, CONTEXT, 0, holder)
        assert unlocked_share(locked, b"p" * 32, CONTEXT, 0, holder) == shares[holder]
        assert shares[holder].to_bytes(32, "big") not in locked
        assert "does not fit" in told(unlocked_share, locked, b"p" * 32, CONTEXT, 0, holder + 1)
    other = shares_of(b"t" * 32, CONTEXT, range(count), needed)
    mixed = {holder: shares[holder] for holder in chosen[1:]} | {chosen[0]: other[chosen[0]]}
    with suppress(InputError):
        assert seed_from(mixed) != own_seed(SECRET, CONTEXT)


@pytest.mark.parametrize(("count", "rounds"), [(3, 4), (33, 1)])
def test_the_model_is_the_same_as_without_masks_up_to_the_resolution(tmp_path, count, rounds):
    plain, _ = BareRounds(tmp_path / "plain", count, rounds, masked=False).go()
    masked, view = BareRounds(tmp_path / "masked", count, rounds).go()
    assert np.abs(plain).max() > 0.01
    np.testing.assert_allclose(masked, plain, atol=rounds * (count / 2 * BOUND / 2**30 + 1e-7))
    assert not view.rejections
    assert all("refused" not in entry.document for entry in view.rounds)


def test_what_the_server_gets_of_one_client_tells_nothing(tmp_path):
    """Numbers of 32 bits that are even over their whole range, and others in each round."""
    seen = []
    job = BareRounds(tmp_path, 3, rounds=2)

    def look(reply):
        if of_training(reply, 1000):
            seen.append(reply.content.array_records[MODEL][PARAMS].numpy())
        return [reply]

    job.go(Meddler(job.grid, look))
    for report in seen:
        assert report.dtype == np.uint32
        counts = np.bincount(report >> 28, minlength=16)
        assert np.square(counts - len(report) / 16).sum() / (len(report) / 16) < 45  # χ² with 15: once in 10,000
    assert len(np.intersect1d(*seen)) < 3


SILENT = {  # what is not answered any more, and who is missing by the end of the round
    "nothing": ((), ["client 1"]),
    "the list": ((MASK_LIST,), ["client 1", "client 2"]),
    "the keys": ((MASK_KEYS,), ["client 1", "client 2"]),
    "the shares": ((MASK_SHARES,), ["client 1"]),
}


@pytest.mark.parametrize("case", SILENT)
def test_reports_of_people_who_drop_out_are_missing_from_the_sum(tmp_path, case, monkeypatch):
    """One of six delivers nothing in the last round; then another one falls silent, at one step or the other."""
    monkeypatch.setattr(masked_rounds, "REPLY_TIMEOUT", 0.3)
    actions, missing = SILENT[case]

    def drops(reply):
        node = reply.metadata.src_node_id
        late = in_round(reply, 1) and (
            (of_training(reply) and node == 1001)
            or (node == 1002 and any(reply.metadata.message_type.endswith(action) for action in actions))
        )
        return [] if late else [reply]

    def plain_drops(reply):
        late = of_training(reply) and in_round(reply, 1)
        return [] if late and f"client {reply.metadata.src_node_id - 1000}" in missing else [reply]

    masked = BareRounds(tmp_path / "masked", 6, 2)
    plain = BareRounds(tmp_path / "plain", 6, 2, masked=False)
    params, view = masked.go(Meddler(masked.grid, drops))
    expected, _ = plain.go(Meddler(plain.grid, plain_drops))
    np.testing.assert_allclose(params, expected, atol=1e-6)
    assert view.rounds[1].document["missing"] == missing
    assert {entry.document["client"] for entry in view.rejections} == set(missing)


def test_sums_are_scaled_up_for_who_is_missing_if_the_offer_says_so(tmp_path):
    def drops(reply):
        return [] if of_training(reply, 1001) and reply.content.config_records[ROUND]["round"] == 1 else [reply]

    trained = {}
    for rescales in (False, True):
        for masked in (True, False):
            job = BareRounds(tmp_path / f"{rescales}-{masked}", 6, 2, masked=masked, rescales=rescales)
            trained[rescales, masked], view = job.go(Meddler(job.grid, drops))
            assert view.rounds[1].document["missing"] == ["client 1"]
    whole = BareRounds(tmp_path / "whole", 6, 1, masked=False).go()[0]
    changes = {case: params - whole for case, params in trained.items()}
    np.testing.assert_allclose(trained[True, True], trained[True, False], atol=1e-6)
    factor = 21 / 19  # the weights are 1, 2, …, 6; the second is missing
    np.testing.assert_allclose(changes[True, False], factor * changes[False, False], atol=1e-6)
    np.testing.assert_allclose(changes[True, True], factor * changes[False, True], atol=1e-6)


def test_a_sum_of_too_few_is_not_opened_and_costs_those_who_were_there_nothing(tmp_path):
    job = BareRounds(tmp_path, 5, rounds=3)

    def drops(reply):
        late = any(of_training(reply, node) for node in (1001, 1002, 1003))
        return [] if late and reply.content.config_records[ROUND]["round"] == 1 else [reply]

    _, view = job.go(Meddler(job.grid, drops))
    second, third = view.rounds[1].document, view.rounds[2].document
    assert second["refused"] == "fewer reports than a sum needs"
    assert second["model"] == second["previous"]
    assert second["missing"] == ["client 1", "client 2", "client 3"]
    assert "refused" not in third
    assert third["model"] != third["previous"]


class Away(Meddler):
    """A grid from which nodes are away for some looks at who is connected."""

    def __init__(self, grid, away):
        super().__init__(grid, lambda reply: [reply])
        self.away, self.looks = away, 0

    def get_node_ids(self):
        self.looks += 1
        return [node for node in super().get_node_ids() if not self.away(node, self.looks)]


def test_a_round_waits_for_people_without_whom_it_changes_nothing(tmp_path, monkeypatch):
    """One of three is away when the rounds begin, and comes back: no round is lost."""
    job = BareRounds(tmp_path, 3, rounds=3, seconds=20)
    waited = set()

    def away(node, looks):
        return node == 1002 and 2 <= looks < 8

    real = RoundWait.for_people
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    monkeypatch.setattr(RoundWait, "for_people", lambda self, names: waited.update(names) or real(self, names))
    _, view = job.go(Away(job.grid, away))
    assert waited == {"client 2"}
    assert [entry.document["missing"] for entry in view.rounds] == [[], [], []]
    assert all(entry.document["model"] != entry.document["previous"] for entry in view.rounds)


def waits_of(job):
    return [change for change in job.live.take_stage_changes() if isinstance(change, RoundWaits)]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("how", ["away", "silent"])
def test_the_operator_is_told_for_whom_a_round_waits(tmp_path, monkeypatch, masked, how):
    """From when it takes longer than usual until it is over, whether somebody is away or connected and silent."""
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    monkeypatch.setattr(round_collection, "USUAL_WAIT", 0.2)
    count = 3 if masked else 1
    job = BareRounds(tmp_path, count, rounds=1, seconds=1.0, masked=masked)
    name, node = f"client {count - 1}", 1000 + count - 1
    if how == "away":
        grid = Away(job.grid, lambda one, looks: one == node and looks >= 2)
    else:
        grid = Meddler(job.grid, lambda reply: [] if of_training(reply, node) else [reply])
    _, view = job.go(grid)
    assert view.rounds[0].document["missing"] == [name]
    told = waits_of(job)
    assert [(one.names, one.round) for one in told] == [((name,), 1)]
    assert told[0].at < told[0].until
    assert job.live.status.waits is None


def test_nobody_is_told_of_a_wait_that_is_usual(tmp_path, monkeypatch):
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    job = BareRounds(tmp_path, 3, rounds=1, seconds=0.5)
    job.go(Away(job.grid, lambda node, looks: node == 1002 and looks >= 2))
    assert waits_of(job) == []


def test_somebody_who_never_comes_back_costs_the_others_none_of_their_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    job = BareRounds(tmp_path, 3, rounds=2, seconds=0.3)
    params, view = job.go(Away(job.grid, lambda node, looks: node == 1002 and looks >= 2))
    assert [entry.document["refused"] for entry in view.rounds] == ["fewer reports than a sum needs"] * 2
    assert [entry.document["missing"] for entry in view.rounds] == [["client 2"]] * 2
    assert (view.delivered["client 0"], view.delivered["client 1"], view.delivered["client 2"]) == (2, 2, 0)
    assert (params == job.training.model.init(0)).all()


@pytest.mark.parametrize("action", ["train", MASK_SHARES])
def test_somebody_connected_who_stays_silent_is_waited_for_in_few_rounds(tmp_path, action, monkeypatch):
    """Also who sends reports, and then nothing that opens the sums."""
    monkeypatch.setattr(masked_rounds, "SHORTEST_ANSWER", 0.05)  # answers come at once in one process
    job = BareRounds(tmp_path, 5, rounds=20, seconds=0.05)
    asked = []
    push = job.grid.push_messages

    def noted(messages):
        sent = list(messages)
        asked.extend(
            message.content.config_records["truthfl"]["round"]
            for message in sent
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 1004
        )
        return push(sent)

    job.grid.push_messages = noted

    def silent(reply):
        return reply.metadata.src_node_id == 1004 and reply.metadata.message_type.endswith(action)

    _, view = job.go(Meddler(job.grid, lambda reply: [] if silent(reply) else [reply]))
    assert asked == [0, 1, 3, 7, 15]
    for number, entry in enumerate(view.rounds):
        in_sum = action == MASK_SHARES and number in asked
        assert entry.document["missing"] == ([] if in_sum else ["client 4"])


def of_query(reply, action):
    return reply.metadata.message_type == f"query.{action}"


@pytest.mark.parametrize(("action", "waited"), [(MASK_TERMS, []), (MASK_SHARES, [0, 1, 3, 7])])
def test_somebody_who_leaves_questions_about_masks_open_is_waited_for_in_few_rounds(
    tmp_path, action, waited, monkeypatch
):
    """Who does not confirm the terms of the masks is waited for once, and asked for no report."""
    monkeypatch.setattr(masked_rounds, "SHORTEST_ANSWER", 0.5)
    job, asked, begun = BareRounds(tmp_path, 5, rounds=12, seconds=0.5), [], time.monotonic()
    push = job.grid.push_messages

    def noted(messages):
        sent = list(messages)
        asked.extend(
            message.content.config_records["truthfl"]["round"]
            for message in sent
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 1004
        )
        return push(sent)

    job.grid.push_messages = noted
    silent = Meddler(
        job.grid,
        lambda reply: [] if of_query(reply, action) and reply.metadata.src_node_id == 1004 else [reply],
    )
    _, view = job.go(silent)
    assert asked == waited
    assert all(entry.document["model"] != entry.document["previous"] for entry in view.rounds)
    assert time.monotonic() < begun + 0.5 * (6 if action == MASK_TERMS else 10)


def garbage(job, node, value=None):
    """A grid on which one participant's masked reports are other numbers, with their own code."""
    rng = np.random.default_rng(3)

    def change(reply):
        if not of_training(reply, node):
            return [reply]
        report = reply.content.array_records[MODEL][PARAMS].numpy()
        forged = rng.integers(0, 2**32, len(report), dtype=np.uint32) if value is None else report + np.uint32(value)
        content = RecordDict({MODEL: model_record(forged), ROUND: reply.content.config_records[ROUND]})
        return [recoded(job.people[node].folder, other_reply(content, reply))]

    return Meddler(job.grid, change)


def test_a_sum_that_is_too_long_is_skipped_and_nobody_is_named(tmp_path):
    job = BareRounds(tmp_path, 7, rounds=3)
    params, view = job.go(garbage(job, 1003))
    assert all("the sum of 7 reports has length" in entry.document["refused"] for entry in view.rounds)
    assert not view.rejections
    assert (params == job.training.model.init(0)).all()
    assert all(view.delivered[f"client {k}"] == 3 for k in range(7))


def test_of_sums_from_one_model_few_are_opened_and_the_rest_costs_nobody(tmp_path):
    """A server that is started again knows from the ledger how many there were."""
    job = BareRounds(tmp_path, 4, rounds=9)
    spoils = garbage(job, 1003).change

    def dies(reply):
        if of_training(reply) and in_round(reply, 3):
            raise KeyboardInterrupt
        return spoils(reply)

    with pytest.raises(KeyboardInterrupt):
        job.go(Meddler(job.grid, dies))
    view = job.resumed(garbage(job, 1003))[1]
    refused = [entry.document["refused"] for entry in view.rounds]
    assert all("beyond" in reason for reason in refused[:MOST_SUMS])
    assert refused[MOST_SUMS:] == [masked_rounds.ENOUGH] * (9 - MOST_SUMS)
    assert not view.rejections
    assert set(view.delivered.values()) == {9}
    kept = rounds_of(job.people[1000].folder, job.training.agreement.offers[0].hash)
    assert len(kept) == MOST_SUMS


@pytest.mark.parametrize("honest", [True, False], ids=["honest server", "other server"])
def test_sums_with_and_without_somebody_are_few(tmp_path, monkeypatch, honest):
    """One model, and every second sum without Ada: the difference of both means would be Ada's report."""
    opened, take, open_sum = [], masked_rounds.Sum.take, masked_rounds._opened

    def without_ada(self, offer, reply, size):
        reason = take(self, offer, reply, size)
        if self.call.round % 2 and offer.client.index == 0 and reason is None:
            self.reports.pop(0)
            return "no report in time"
        return reason

    def told_too_long(round_sum):
        change, refused = open_sum(round_sum)
        if change is not None:
            opened.append(sorted(round_sum.reports))
        return None, refused or "the sum is too long"

    monkeypatch.setattr(masked_rounds.Sum, "take", without_ada)
    monkeypatch.setattr(masked_rounds, "_opened", told_too_long)
    if not honest:
        monkeypatch.setattr(masked_rounds.SumsFromModel, "fault", lambda *_: None)
    job = BareRounds(tmp_path, 5, rounds=20)
    job.go()
    assert opened.count([1, 2, 3, 4]) == MOST_OTHER_SUMS
    assert len(opened) == MOST_SUMS
    if not honest:
        news = participant_folder.news(job.people[1001].folder)
        assert any(f"{MOST_SUMS} sums were opened from this model" in one for one in news)


def test_a_share_that_does_not_fit_is_named_and_the_sum_opened_without_it(tmp_path):
    job = BareRounds(tmp_path, 5, rounds=2)
    plain, _ = BareRounds(tmp_path / "plain", 5, rounds=2, masked=False).go()

    def change(reply):
        if reply.metadata.src_node_id != 1003 or not reply.metadata.message_type.endswith(MASK_SHARES):
            return [reply]
        document = {key: value for key, value in document_in(reply).items() if key != CODE}
        document["shares"] = {owner: f"{int(share, 16) ^ 1:x}" for owner, share in document["shares"].items()}
        key = job.people[1003].code_key(job.training.agreement.offers[3].hash)
        return [other_reply(document_record(with_document_code(key, PARTICIPANT, document)), reply)]

    params, view = job.go(Meddler(job.grid, change))
    np.testing.assert_allclose(params, plain, atol=1e-6)
    assert {entry.document["client"] for entry in view.rejections} == {"client 3"}
    assert "mask does not fit" in view.rejections[0].document["reason"]


def dies_in(reply, number):
    if of_training(reply) and in_round(reply, number):
        raise KeyboardInterrupt
    return [reply]


@pytest.mark.parametrize("named", [[0], [99], [0, 1, 2, 4]])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_nobody_has_others_left_out_by_a_list_of_their_own(tmp_path, named, number):
    """Not even in the first round after a second start, in which lists may be longer than the server knows."""
    job, changed = BareRounds(tmp_path, 5, rounds=3), []
    if number == 1:
        with pytest.raises(KeyboardInterrupt):
            job.go(Meddler(job.grid, lambda reply: dies_in(reply, 1)))

    def change(reply):
        if not (of_training(reply, 1003) and in_round(reply, number)):
            return [reply]
        masks = masks_of(job, 3)
        with open_rounds(masks.home, masks.offer.hash) as rounds:
            forged = masks.list_signature(rounds.last, tuple(named))
        fields = dict(reply.content.config_records[ROUND]) | forged
        content = RecordDict({MODEL: reply.content.array_records[MODEL], ROUND: ConfigRecord(fields)})
        changed.append(number)
        return [recoded(job.people[1003].folder, other_reply(content, reply))]

    _, view = (job.resumed if number == 1 else job.go)(Meddler(job.grid, change))
    assert changed == [number]
    assert [entry.document["missing"] for entry in view.rounds] == [["client 3"] * (n == number) for n in range(3)]
    assert {entry.document["client"] for entry in view.rejections} == {"client 3"}
    assert all("refused" not in entry.document for entry in view.rounds)


@pytest.mark.parametrize("count", [3, 6])
def test_whose_shares_fit_nobody_is_named_and_the_round_changes_nothing(tmp_path, count):
    job = BareRounds(tmp_path, count, rounds=2)

    def change(reply):
        if not (of_training(reply, 1002) and in_round(reply, 0)):
            return [reply]
        fields = dict(reply.content.config_records[ROUND])
        fields["shares"] = "00" * (len(fields["shares"]) // 2)
        report = reply.content.array_records[MODEL]
        content = RecordDict({MODEL: report, ROUND: ConfigRecord(fields)})
        return [recoded(job.people[1002].folder, other_reply(content, reply))]

    _, view = job.go(Meddler(job.grid, change))
    first, second = (entry.document for entry in view.rounds)
    assert (first["missing"], first["refused"]) == (["client 2"], "too few told what opens the sum")
    assert [entry.document["reason"] for entry in view.rejections] == ["the shares of its own mask do not fit"]
    assert (second["missing"], "refused" in second) == ([], False)


def test_a_server_that_dies_between_two_steps_opens_the_same_sums_when_it_is_back(tmp_path):
    """It asks again for the round that it had asked for, and gets the same bytes, lists and shares."""
    expected, _ = BareRounds(tmp_path / "whole", 4, rounds=3).go()
    for step in ("train", MASK_LIST, MASK_KEYS, MASK_SHARES):
        job, seen = BareRounds(tmp_path / step, 4, rounds=3), []

        def dies(reply, step=step, seen=seen):
            if reply.metadata.message_type.endswith(step) and in_round(reply, 1):
                seen.append(reply)
                if len(seen) == 3:
                    raise KeyboardInterrupt
            missing = of_training(reply, 1003) and in_round(reply, 1) and step in (MASK_LIST, MASK_KEYS)
            return [] if missing else [reply]

        with pytest.raises(KeyboardInterrupt):
            job.go(Meddler(job.grid, dies))
        again = []

        def look(reply, again=again):
            if of_training(reply) and in_round(reply, 1):
                again.append(reply)
            return [reply]

        params, view = job.resumed(Meddler(job.grid, look))
        first = {r.metadata.src_node_id: r.content.array_records[MODEL][PARAMS].data for r in seen if of_training(r)}
        for reply in again:
            bytes_then = first.get(reply.metadata.src_node_id)
            assert bytes_then in (None, reply.content.array_records[MODEL][PARAMS].data)
        assert len(view.rounds) == 3
        if step in ("train", MASK_SHARES):
            assert not view.rejections
            np.testing.assert_array_equal(params, expected)
        else:  # the others had signed that the fourth is missing
            assert view.rounds[1].document["missing"] == ["client 3"]
        assert all("refused" not in entry.document for entry in view.rounds)


@pytest.mark.parametrize("step", ["train", MASK_SHARES])
def test_somebody_who_is_gone_with_the_server_costs_the_others_no_round(tmp_path, step):
    """The others signed a list with everybody before. Nobody sees another sum once shares were told for that list."""
    job, seen = BareRounds(tmp_path, 4, rounds=3), []

    def dies(reply):
        if reply.metadata.message_type.endswith(step) and in_round(reply, 1):
            seen.append(reply)
            if len(seen) == 3:
                raise KeyboardInterrupt
        return [reply]

    with pytest.raises(KeyboardInterrupt):
        job.go(Meddler(job.grid, dies))
    _, view = job.resumed(Meddler(job.grid, lambda reply: [] if reply.metadata.src_node_id == 1003 else [reply]))
    assert {name: view.delivered[name] for name in ("client 0", "client 1", "client 2")} == dict.fromkeys(
        ("client 0", "client 1", "client 2"), 3
    )
    refused = [entry.document.get("refused") for entry in view.rounds]
    assert refused == [None, None if step == "train" else "fewer reports than a sum needs", None]


@pytest.fixture
def job(tmp_path):
    """Five people after one masked round of three."""
    job = BareRounds(tmp_path, 5, rounds=3)
    job.rounds_to_go = 1
    job.go()
    return job


def masks_of(job, index):
    person = job.people[1000 + index]
    return person.masking(job.training.agreement.offers[index].hash)


def answered(job, number, people=range(5), model="ab" * 32):
    """Let these people answer a round; return their lists' signatures and locked shares."""
    signatures, locked = {}, {}
    for index in people:
        masks, asked = masks_of(job, index), AskedRound(number, 0, number, model)
        _, shares = masks.masked(np.ones(650, np.float32), asked)
        with open_rounds(masks.home, masks.offer.hash) as rounds:
            rounds.append(RoundRecord(number, model, "cd" * 32, changed=number))
            record = rounds.last
        signatures[index] = masks.list_signature(record, ())["signature"]
        peers = sorted(masks.terms.peers)
        content = bytes.fromhex(shares)
        locked[index] = {peer: content[48 * at : 48 * at + 48].hex() for at, peer in enumerate(peers)}
    return signatures, locked


def others(values, own):
    return {str(index): value for index, value in values.items() if index != own}


def test_a_report_is_the_same_whenever_it_is_made_and_others_have_other_masks(job):
    masks, change = masks_of(job, 0), np.ones(650, np.float32)
    asked = AskedRound(1, 0, 1, "ab" * 32)
    report, shares = masks.masked(change, asked)
    again = masked_reports.MaskingClient(masks.offer, masks.key, masks.home).masked(change, asked)
    assert (again[0] == report).all()
    assert again[1] == shares
    for other in (replace(asked, round=2), replace(asked, changed=0), replace(asked, received="cd" * 32)):
        assert (report != masks.masked(change, other)[0]).mean() > 0.99


def test_nothing_is_told_before_all_who_are_left_signed_the_same_list(job):
    signatures, locked = answered(job, 1)
    masks = masks_of(job, 0)
    theirs = {str(owner): locked[owner][0] for owner in range(1, 5)}
    complete = others(signatures, 0)
    forged = complete | {"2": complete["3"]}
    for wrong, words in (
        ({}, "not signed by all"),
        (None, "not signed by all"),
        ({key: complete[key] for key in "123"}, "not signed by all"),
        (complete | {"9": complete["1"]}, "not signed by all"),
        (forged, "participant 2 did not sign"),
        (complete | {"2": "zz"}, "participant 2 did not sign"),
    ):
        assert words in told(masks.shares, 1, [], wrong, theirs)
        assert words in told(masks.keys_of_missing, 1, [], wrong)
    assert "another list" in told(masks.keys_of_missing, 1, [4], complete)
    assert "round 3 was not answered" in told(masks.keys_of_missing, 2, [], complete)
    told_shares = masks.shares(1, [], complete, theirs)
    assert set(told_shares) == {"shares"}
    assert set(told_shares["shares"]) == set("01234")


SUBSETS = [(), (1,), (2,), (3,), (4,), (1, 2), (3, 4), (1, 2, 3)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["list", "keys", "shares"]), st.sampled_from(SUBSETS)), max_size=8))
def test_of_one_peer_a_participant_tells_the_shared_mask_or_the_share_never_both(job, asks):
    """Whatever lists the operator has signed, and whatever is asked for with these signatures, in whatever order."""
    number = 1 + max(record.round for record in rounds_of(job.people[1000].folder, masks_of(job, 0).offer.hash))
    signatures, locked = answered(job, number)
    signed_by_all = {(): signatures}
    told_keys, told_shares, lists = set(), set(), set()
    masks = masks_of(job, 0)
    for action, missing in asks:
        with suppress(InputError):
            if action == "list":
                present = [index for index in range(5) if index not in missing]
                answers = {index: masks_of(job, index).signed_list(number, missing) for index in present}
                for answer in answers.values():
                    key = tuple(answer["missing"])
                    of_list = signed_by_all.setdefault(key, {})
                    of_list |= {i: one["signature"] for i, one in answers.items() if tuple(one["missing"]) == key}
            theirs = {i: one for i, one in signed_by_all.get(missing, {}).items() if i not in missing}
            if action == "keys":
                told_keys |= set(masks.keys_of_missing(number, missing, others(theirs, 0)))
            if action == "shares":
                answer = masks.shares(
                    number, missing, others(theirs, 0), {str(owner): locked[owner][0] for owner in range(1, 5)}
                )
                told_shares |= {int(owner) for owner in answer["shares"]}
                lists.add(missing)
    assert not told_keys & told_shares
    assert len(lists) <= 1


LISTS = [missing for size in range(3) for missing in combinations(range(5), size)]
PEOPLE = [people for size in range(1, 6) for people in combinations(range(5), size)]
ASKS = st.lists(
    st.tuples(st.sampled_from(["list", "keys", "shares", "next"]), st.sampled_from(PEOPLE), st.sampled_from(LISTS)),
    max_size=10,
)
HALVES = [("shares", (2, 3), ()), ("list", (0, 1), (2, 3)), ("keys", (0, 1), (2, 3)), ("shares", (0, 1), (2, 3))]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(True, HALVES)
@example(False, HALVES)
@example(
    False, [("shares", (2, 3, 4), ()), ("next", (2, 3, 4), ()), ("list", (0, 1, 2), (3, 4)), ("keys", (0, 1), (3, 4))]
)
@given(st.booleans(), ASKS)
def test_no_lists_open_a_sum_of_fewer_than_the_terms_say_less_those_who_tell_their_keys(job, colluding, asks):
    """Whoever is asked to sign whatever and to tell whatever: of five, sums of three are seen; of two, if one tells.

    Also of a round after which some have answered the next one.
    """
    number = 1 + max(record.round for record in rounds_of(job.people[1000].folder, masks_of(job, 0).offer.hash))
    signatures, locked = answered(job, number)
    by_list = {(): signatures}
    hidden = {frozenset(pair) for pair in combinations(range(5), 2)}
    holders = {owner: set() for owner in range(5)}
    fifth, further = masks_of(job, 4), set()
    with open_rounds(fifth.home, fifth.offer.hash) as rounds:
        record = rounds.last
    for action, people, missing in asks:
        if colluding:
            by_list.setdefault(missing, {})[4] = fifth.list_signature(record, missing)["signature"]
        for own in people:
            if action == "next" and own not in further:
                further |= {own}
                answered(job, number + 1, [own])
            theirs = {i: one for i, one in by_list.get(missing, {}).items() if i not in missing}
            with suppress(InputError):
                if action == "list":
                    answer = masks_of(job, own).signed_list(number, missing)
                    by_list.setdefault(tuple(answer["missing"]), {})[own] = answer["signature"]
                elif action == "keys":
                    told_keys = masks_of(job, own).keys_of_missing(number, missing, others(theirs, own))
                    hidden -= {frozenset((own, peer)) for peer in told_keys}
                elif action == "shares":
                    sent = {str(owner): locked[owner][own] for owner in range(5) if owner != own}
                    for owner in masks_of(job, own).shares(number, missing, others(theirs, own), sent)["shares"]:
                        holders[int(owner)].add(own)
    honest = set(range(4 if colluding else 5))
    while honest:
        together = {honest.pop()}
        while more := {one for one in honest if any(frozenset((one, other)) in hidden for other in together)}:
            together |= more
            honest -= more
        if all(len(holders[owner] | ({4} if colluding else set())) >= threshold(5) for owner in together):
            assert len(together) >= threshold(5) - colluding


def test_which_lists_a_participant_does_not_sign(job):
    answered(job, 1)
    masks = masks_of(job, 0)
    assert "names this participant" in told(masks.signed_list, 1, [0])
    assert "who is not asked" in told(masks.signed_list, 1, [9])
    assert "2 reports would be in the sum" in told(masks.signed_list, 1, [1, 2, 3])
    assert masks.signed_list(0, [1])["missing"] == []  # the list of a round that is over stays
    assert "another list of who is missing in round 1" in told(masks.keys_of_missing, 0, [1], {})
    assert masks.signed_list(1, [1])["missing"] == [1]
    assert masks.signed_list(1, [2])["missing"] == [1, 2]
    assert "2 reports would be in the sum" in told(masks.signed_list, 1, [3])
    assert "2 reports would be in the sum" in told(masks.sound_list, 2, [1, 2, 3])
    masks.known_terms = replace(masks.terms, members=33)  # as if only some of the others were peers
    assert masks.sound_list(2, [1, 20, 2**31]) == (1, 20, 2**31)
    assert "numbers of nobody" in told(masks.sound_list, 2, [1, 2**31 + 1])
    assert "numbers of nobody" in told(masks.sound_list, 2, [-1])
    assert "names more people than take part" in told(masks.sound_list, 2, list(range(100, 133)))
    assert "who is missing" in told(masks.sound_list, 2, None)


def test_a_share_that_was_changed_on_its_way_is_named_and_not_told(job):
    signatures, locked = answered(job, 1)
    theirs = {str(owner): locked[owner][0] for owner in range(1, 5)}
    theirs["3"] = "00" + theirs["3"][2:] if theirs["3"][:2] != "00" else "11" + theirs["3"][2:]
    answer = masks_of(job, 0).shares(1, [], others(signatures, 0), theirs)
    assert answer["unfit"] == [3]
    assert set(answer["shares"]) == set("0124")


def test_which_terms_of_masks_a_participant_does_not_believe(job):
    masks = masks_of(job, 0)
    path = masks.home / "masks" / f"{masks.offer.hash}.json"
    envelope = json.loads(path.read_text())
    keys = masks.line, masks_of(job, 0).terms.own.list_key
    assert mask_terms_from(envelope, masks.offer, keys).knows_everybody
    masks.keep_terms(envelope)

    def changed(key=job.operator, acceptances=None, **fields):
        document = envelope["document"] | fields
        return signed(key, document) | {"acceptances": acceptances or envelope["acceptances"]}

    def group(**fields):
        return envelope["document"]["group"] | fields

    def accepted(**fields):
        """Terms in which the first peer's signed acceptance says something else."""
        paper = signed(job.people[1001].key, acceptances["1"]["document"] | fields)
        number = str(fields.get("index", 1))
        rest = {name: one for name, one in peers.items() if name != "1"}
        return changed(peers=rest | {number: digest(paper)}, acceptances=acceptances | {number: paper})

    peers, acceptances = envelope["document"]["peers"], envelope["acceptances"]
    two = {name: peers[name] for name in "12"}
    weights = [offer.client.weight for offer in job.training.agreement.offers]
    for wrong, words in (
        (changed(new_key()), "did not sign the terms"),
        (changed(offer="ef" * 32), "for another offer"),
        (changed(group=group(total=0.5)), "the sum 0.5, which is not theirs"),
        (changed(group=group(total=weights[0])), "which is not theirs"),  # the weight of the report would be 1
        (changed(group=group(total=1.1)), "the sum 1.1, which is not up to 1"),
        (changed(group=group(total=0.0)), "the sum 0, which is not up to 1"),
        (changed(group=group(terms="ab" * 32)), "for other terms of the job"),
        (accepted(terms="ab" * 32), "a peer accepted other terms of the job"),
        (accepted(weight=1e-9), "which is not theirs"),
        (accepted(weight=-0.1), "does not say the peer's number, weight and participation"),
        (accepted(participation=0), "does not say the peer's number, weight and participation"),
        (changed(threshold=2), "reports make a sum"),
        (changed(sums=[50, 1]), "how many sums are opened from one model"),
        (changed(peers={"1": peers["1"]}), "name 1 peers of 5"),
        (changed(peers=two, threshold=3), "name 2 peers of 5"),
        (changed(peers=two, threshold=3, group=group(members=3, total=sum(weights[:3]))), "other people than their"),
        (accepted(agreement_key=acceptances["2"]["document"]["agreement_key"]), "named twice"),
        (changed(acceptances={"1": acceptances["1"]}), "acceptance is missing"),
        (changed(group=group(people="ab" * 32)), "other people than their digest"),
        (changed(group="ab" * 32), "do not have their parts"),
        (accepted(index=-1), "otherwise than from 0 on"),  # whose share would be the seed itself
        (accepted(index=2**255 - 20), "otherwise than from 0 on"),  # the same modulo the prime
        (accepted(participation=0.5), "a peer is asked in 0.5 of the rounds"),
        (
            changed(peers=peers | {"9": peers["1"]}, acceptances=acceptances | {"9": acceptances["1"]}),
            "which is too few",
        ),
        ({}, "do not have their parts"),
        ([], "do not have their parts"),
        (None, "do not have their parts"),
    ):
        assert words in told(masks.keep_terms, wrong)
    swapped = {"1": peers["2"], "2": peers["1"]}
    papers = {"1": acceptances["2"], "2": acceptances["1"]}
    assert "another number than" in told(
        masks.keep_terms, changed(peers=peers | swapped, acceptances=acceptances | papers)
    )
    own = replace(masks.offer, client=replace(masks.offer.client, index=-1), original=None)
    assert "otherwise than from 0 on" in told(mask_terms_from, changed(offer=own.hash), own, keys)
    total = sum(weights[:3])
    three = (masks.terms.own, masks.terms.peers[1], masks.terms.peers[2])
    members = [replace(member, weight=weights[member.index] / total) for member in three]
    fewer = dict(vars(group_of(masks.offer, total, members)))
    sound = changed(peers=two, threshold=3, group=fewer)
    assert "other terms of the masks were signed" in told(masks.keep_terms, sound)


def test_somebody_who_refuses_the_terms_is_missing_and_the_operator_reads_why(tmp_path):
    """Here other terms were kept before, as a dishonest operator would have them."""
    job = BareRounds(tmp_path, 5, rounds=2)
    push, sent = job.grid.push_messages, []

    def changed(messages):
        made = []
        for message in messages:
            if message.metadata.message_type.endswith(MASK_TERMS) and message.metadata.dst_node_id == 1002:
                document = {key: value for key, value in document_in(message).items() if key != CODE}
                document["terms"]["document"]["group"]["total"] *= 0.5
                key = job.people[1002].code_key(document["offer"])
                message = query_message(MASK_TERMS, 1002, with_document_code(key, OPERATOR, document))
                sent.append(message)
            made.append(message)
        return push(made)

    job.grid.push_messages = changed
    _, view = job.go()
    assert sent
    reason = "error: the operator of the accepted offer did not sign the terms of the masks."
    assert {(one.document["client"], one.document["reason"]) for one in view.rejections} == {("client 2", reason)}
    told_owner = participant_folder.news(job.people[1002].folder)[0]
    assert told_owner == f"Your computer refused a message of the operator: {reason.removeprefix('error: ')}"
    assert [entry.document["missing"] for entry in view.rounds] == [["client 2"]] * 2
    assert all("refused" not in entry.document for entry in view.rounds)


@pytest.mark.parametrize("weights", [[1.0, *[1e-6] * 4], [0.5, 0.45, 0.02, 0.02, 0.01]])
def test_weights_in_offers_that_would_show_a_report_are_refused_by_every_node(tmp_path, monkeypatch, weights):
    """Also under a server that does not look: the sum would be the report of who has the weight, with one's help."""
    monkeypatch.setattr(Agreement, "rounds", property(lambda agreement: agreement.terms.rounds))
    job = BareRounds(tmp_path, 5, rounds=2, weights=weights)
    params, view = job.go()
    assert (params == job.training.model.init(0)).all()
    reasons = {one.document["reason"] for one in view.rejections}
    assert len({one.document["client"] for one in view.rejections}) == 5
    assert all("of the weight" in reason and "so a sum would show a report" in reason for reason in reasons)


def test_where_one_has_too_much_weight_there_are_no_masked_rounds(tmp_path):
    job, asked = BareRounds(tmp_path, 5, rounds=2, weights=[8.0, 2.0, 2.0, 1.0, 1.0]), []
    _, view = job.go(Meddler(job.grid, lambda reply: asked.append(of_training(reply)) or [reply]))
    assert not any(asked)
    assert not view.rounds
    assert job.training.agreement.masks_fault == "one person has 0.571 of the weight; one may have 0.5"


def test_a_plan_whose_weights_no_sum_hides_is_not_masked_and_says_so():
    def planned(weight, rounds=3, **privacy):
        job = SimpleNamespace(privacy=PrivacySettings(**privacy), aggregation="mean")
        clients = MagicMock(weight=np.array(weight), participation=np.ones(len(weight)))
        clients.__len__.return_value = len(weight)
        plan = SimpleNamespace(clients=clients, training=Training(rounds))
        return planned_offers.masked_reports(job, plan), planned_offers.mask_warnings(job, plan)

    assert planned([0.5, 0.3, 0.2]) == (True, [])
    assert planned([0.5, 0.3, 0.2], rounds=0) == (False, [])
    assert planned([0.9, 0.05, 0.05], rounds=0, secure_aggregation=True) == (False, [])
    masked, warnings = planned([0.6, 0.2, 0.2])
    assert not masked
    assert warnings == [
        "Reports are not masked, since one person has 0.6 of the weight; one may have 0.5: a sum would show a report. "
        "You see each report."
    ]
    assert planned([0.6, 0.2, 0.2], secure_aggregation=False) == (False, [])
    words = told(planned, [0.6, 0.2, 0.2], secure_aggregation=True)
    assert "secure_aggregation is true, and one person has 0.6 of the weight" in words


def test_a_sum_in_which_one_has_too_much_weight_is_not_opened(tmp_path, job):
    """Three of five are enough, and of these one has 5 parts of 8; nobody who is there loses the round."""
    answered(job, 5)
    assert "of those who would be in the sum of round 6 one person has 0.625" in told(
        masks_of(job, 4).signed_list, 5, [2, 3]
    )
    away = BareRounds(tmp_path / "away", 5, rounds=3)
    dropped = [1002, 1003]
    _, view = away.go(
        Meddler(
            away.grid, lambda reply: [] if of_training(reply) and reply.metadata.src_node_id in dropped else [reply]
        )
    )
    assert [entry.document.get("refused") for entry in view.rounds] == [TOO_FEW] * 3
    assert view.delivered["client 4"] == 3


def test_where_fewer_than_three_take_part_there_are_no_masked_rounds(tmp_path):
    job, asked = BareRounds(tmp_path, 4, rounds=2), []
    params, view = job.go(Meddler(job.grid, lambda reply: asked.append(of_training(reply)) or [reply]), 2)
    assert not any(asked)
    assert not view.rounds
    assert (params == job.training.model.init(0)).all()


def test_a_node_never_sends_a_bare_report_under_a_masked_contract(tmp_path):
    """An operator whose software leaves the masks out gets a refusal: without signed terms there is no report."""
    job = BareRounds(tmp_path, 4, rounds=1)
    job.go(taking_part=2)
    masks = masks_of(job, 0)
    assert "no terms of the masks came" in told(masks.masked, np.ones(650, np.float32), AskedRound(0, 0, 0, "ab" * 32))


def test_rounds_are_answered_under_one_offer(job):
    """A second offer of the job, to all but one, would give two sums whose difference tells of that one's report."""
    person, first = job.people[1000], job.training.agreement.offers[0]
    start = job.training.model.init(0)

    def asked_under(**terms):
        offer = under(job, person, **terms)
        with person.answering(offer.hash, AskedRound(0, 0, 0, model_digest(start)), start) as answer:
            return answer.record.round

    for bare in ({}, {"masked": False}):
        assert "rounds of job job-1 were answered under another" in told(asked_under, version=2, **bare)
    assert asked_under(name="job-2") == 0
    assert first.job.seed == 0


def under(job, person, **terms):
    """The first participant's offer with other terms, accepted by this person."""
    first = job.training.agreement.offers[0]
    offer = replace(first, job=replace(first.job, **terms), original=None, signature="")
    offer = signed_offer(offer, job.operator)
    participant_folder.put_offer(person.folder, offer)
    participant_folder.put_answer(person.folder, offer, person.key, accepted=True)
    return offer


def test_nobody_else_knows_which_samples_are_in_the_batch_of_a_masked_report(job):
    """Sums are linear in the samples' gradients: with known batches, many sums would tell each of them."""
    simulated, first = job.people[1000], job.training.agreement.offers[0]
    model, start, seed = job.training.model, job.training.model.init(0), first.job.seed
    images, labels = (part[:SAMPLES] for part in (DIGITS.images, DIGITS.labels))

    def report(person, offer, round_=0):
        return person.report(offer.hash, start, round_)

    drawn = below(bits(draw_key(seed, Purpose.BATCH, 0, 0, 0), BATCH), SAMPLES)
    share = np.full(BATCH, 1 / BATCH, np.float32)
    by_seed = start - np.float32(STEP) * model.weighted_gradient(start, images[drawn], labels[drawn], share)
    person, again, other = (replace(simulated, own_secret=letter * 32) for letter in (b"a", b"a", b"b"))
    masked, bare, next_job = (
        under(job, person, version=2),
        under(job, person, masked=False),
        under(job, person, name="2"),
    )
    assert np.array_equal(report(simulated, masked), by_seed), "a simulation can be repeated"
    assert np.array_equal(report(person, bare), by_seed), "single reports tell their batches anyway"
    assert np.array_equal(report(person, masked), report(again, masked)), "a repeated round has the same bytes"
    made = [by_seed, report(person, masked), report(other, masked), report(person, masked, 1), report(person, next_job)]
    assert len({one.tobytes() for one in made}) == 5
    assert max(abs(np.corrcoef(one - start, two - start)[0, 1]) for one, two in combinations(made, 2)) < 0.95


def test_reports_without_masks_after_an_offer_with_masks_are_accepted_by_people_alone(job):
    """`--accept` and its like decline: what was promised holds until somebody was asked in words."""
    person, first = job.people[1000], job.training.agreement.offers[0]

    def offered(**terms):
        offer = replace(first, job=replace(first.job, **terms), original=None, signature="")
        return signed_offer(offer, job.operator)

    answer = person.answer_offer(offered(version=2, masked=False).envelope())
    assert answer["document"]["kind"] == "refusal"
    assert "sends reports without masks" in participant_folder.news(person.folder)[0]
    assert person.answer_offer(offered(version=3).envelope())["document"]["kind"] == "acceptance"
    assert person.answer_offer(offered(name="job-2", masked=False).envelope())["document"]["kind"] == "acceptance"
    asked = replace(person, decide=lambda _: None)
    assert asked.answer_offer(offered(version=4, masked=False).envelope()) is None


def names_twice(monkeypatch, index, asked):
    """The node of this participant names everybody twice on its lists."""
    honest = masked_reports.MaskingClient.list_signature

    def list_signature(masks, record, missing):
        if masks.terms.own.index != index or not missing:
            return honest(masks, record, missing)
        asked.append(missing)
        assert len(asked) < 50  # which ends the asking, as the node answers with an error then
        return honest(masks, record, missing * 2)

    monkeypatch.setattr(masked_reports.MaskingClient, "list_signature", list_signature)


@pytest.mark.parametrize("again", [False, True])
def test_somebody_who_names_the_missing_twice_is_left_out_and_asked_no_more(tmp_path, monkeypatch, again):
    """Also in the first round after a second start."""
    job, asked = BareRounds(tmp_path, 6, rounds=3), []
    names_twice(monkeypatch, 3, asked)
    if again:
        with pytest.raises(KeyboardInterrupt):
            job.go(Meddler(job.grid, lambda reply: dies_in(reply, 1)))
    grid = Meddler(job.grid, lambda reply: [] if of_training(reply, 1001) and in_round(reply, 1) else [reply])
    _, view = (job.resumed if again else job.go)(grid)
    assert [entry.document["missing"] for entry in view.rounds] == [[], ["client 1", "client 3"], []]
    assert len(asked) == 1
    assert all("refused" not in entry.document for entry in view.rounds)


def fall_silent_in_turn(reply, silent):
    """In round 1 the second sends no report; then one more falls silent each time that lists are asked for."""
    if of_training(reply, 1001) and in_round(reply, 1):
        return []
    if of_query(reply, MASK_LIST) and in_round(reply, 1):
        named = document_in(reply)["missing"]
        if reply.metadata.src_node_id == 1000 + len(named) + 1:
            silent.append(named)
            return []
    return [reply]


@pytest.mark.parametrize("most_late", [0.0, 20.0])
def test_people_who_fall_silent_in_turn_cost_a_round_and_no_more_time(tmp_path, monkeypatch, most_late):
    """Who was there to the end delivered."""
    monkeypatch.setattr(masked_rounds, "REPLY_TIMEOUT", 0.3)
    monkeypatch.setattr(round_collection, "MOST_SECONDS_LATE", most_late)
    job, silent = BareRounds(tmp_path, 9, rounds=2), []
    _, view = job.go(Meddler(job.grid, lambda reply: fall_silent_in_turn(reply, silent)))
    second = view.rounds[1].document
    assert len(silent) == (1 if most_late == 0.0 else 4)
    assert second["missing"] == [f"client {index}" for index in range(1, 2 + len(silent))]
    assert second["refused"] == ("too few told what opens the sum" if most_late == 0.0 else TOO_FEW)


@pytest.mark.parametrize("command", ["removed", "ended"])
def test_a_command_ends_the_wait_for_somebody_who_does_not_sign(tmp_path, monkeypatch, command):
    """There is no sum without their list, so the round waits for it as long as it may."""
    monkeypatch.setattr(masked_rounds, "REPLY_TIMEOUT", 0.3)
    job, began, rosters, asked = BareRounds(tmp_path, 4, rounds=2, seconds=60), time.monotonic(), [], []

    def noted(roster, *more):
        rosters.append(roster)
        return train_rounds(roster, *more)

    def change(reply):
        if of_training(reply, 1001) and in_round(reply, 1):
            report = model_record(np.zeros(7, np.uint32))
            return [other_reply(RecordDict({MODEL: report, ROUND: reply.content.config_records[ROUND]}), reply)]
        if not (of_query(reply, MASK_LIST) and reply.metadata.src_node_id == 1002):
            return [reply]
        asked.append(reply)
        if len(asked) == 3:
            control = rosters[0].control
            changed = {"removed": {"client 2": "removed by the operator"}} if command == "removed" else {"ended": True}
            control.log.state = replace(control.log.state, **changed)
        return []

    monkeypatch.setattr("helpers.bare_rounds.train_rounds", noted)
    _, view = job.go(Meddler(job.grid, change))
    assert len(asked) >= 3
    assert time.monotonic() < began + 30
    assert view.rounds[1].document["refused"] == TOO_FEW
    told_of = {one.document["client"]: one.document["reason"] for one in view.rejections}
    assert told_of["client 2"] == (
        "removed by the operator" if command == "removed" else "no signature of who is missing came in time"
    )


def test_nobody_waits_for_a_sum_that_a_removal_made_impossible(tmp_path, monkeypatch):
    """All who are left are there, so nobody can come who is missed; they delivered."""
    job = BareRounds(tmp_path, 3, rounds=2, seconds=60)

    def without_the_third(roster, *more):
        log = roster.control.log
        log.state = replace(log.state, removed={"client 2": "removed by the operator"})
        return train_rounds(roster, *more)

    monkeypatch.setattr("helpers.bare_rounds.train_rounds", without_the_third)
    with within(20):
        _, view = job.go()
    assert [entry.document["refused"] for entry in view.rounds] == [TOO_FEW] * 2
    assert view.delivered == {"client 0": 2, "client 1": 2}


@pytest.mark.parametrize("liars", [(3, 4), (2, 3, 4)])
def test_lists_that_others_signed_cost_nobody_a_round_without_a_sum_that_is_repeated(tmp_path, monkeypatch, liars):
    """Fewer than half are left out; more have no sum opened, as they tell no keys. The honest first is not named."""
    job, honest = BareRounds(tmp_path, 5, rounds=3), masked_reports.MaskingClient.list_signature
    with pytest.raises(KeyboardInterrupt):
        job.go(Meddler(job.grid, lambda reply: dies_in(reply, 1)))

    def list_signature(masks, record, missing):
        named = tuple(sorted({*missing, 0})) if masks.terms.own.index in liars else missing
        return honest(masks, record, named)

    monkeypatch.setattr(masked_reports.MaskingClient, "list_signature", list_signature)
    _, view = job.resumed()
    assert view.delivered["client 0"] == view.delivered["client 1"] == 3
    assert not {one.document["client"] for one in view.rejections} & {"client 0", "client 1"}
    assert "refused" not in view.rounds[0].document
    assert ("refused" in view.rounds[1].document) == (len(liars) == 3)


def test_somebody_who_comes_with_node_after_node_is_waited_for_once(tmp_path, monkeypatch):
    """Until they confirm the terms of the masks, the others' rounds do not stop for them."""
    waited, real = [], masked_rounds.MaskedRounds.ask

    def ask(self, action, documents, send, refused=None):
        if action == MASK_TERMS and send != self._ask_later:
            waited.append(set(documents))
        return real(self, action, documents, send, refused)

    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)
    monkeypatch.setattr(masked_rounds.MaskedRounds, "ask", ask)
    job = BareRounds(tmp_path, 5, rounds=8, seconds=0.3)
    silent = Away(job.grid, lambda node, looks: node == 1004 and looks > 2 and looks % 3 == 0)
    silent.change = lambda reply: [] if of_query(reply, MASK_TERMS) and reply.metadata.src_node_id == 1004 else [reply]
    _, view = job.go(silent)
    assert sum("client 4" in names for names in waited) == 1
    assert all("refused" not in entry.document for entry in view.rounds)
