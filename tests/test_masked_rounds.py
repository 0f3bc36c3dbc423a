"""Secure aggregation: the server sees sums, also when clients are missing; what a client and an operator may not do."""

import json

import numpy as np
import pytest
from flwr.app import RecordDict

from audition_jobs import Meddler, other_reply
from bare_rounds import BareRounds
from coded_replies import recoded
from messages import told
from truthfl.federation.participant.masked_reports import MaskedRound
from truthfl.federation.protocol import masked_rounds
from truthfl.federation.protocol.masking import (
    MOST_PEERS,
    from_fixed_point,
    in_fixed_point,
    is_within,
    mask_sum,
    neighbours,
)
from truthfl.federation.protocol.messages import MODEL, PARAMS, ROUND, model_record
from truthfl.federation.protocol.round_entries import RoundCall
from truthfl.federation.protocol.suspects import Suspects
from truthfl.ledger.round_terms import FROM_THREE

BOUND = 2.0


def of_training(reply, node=None):
    mine = node is None or reply.metadata.src_node_id == node
    return mine and reply.metadata.message_type == "train" and not reply.has_error()


@pytest.mark.parametrize("count", [3, 31, 32, 100])
def test_peers_are_mutual_and_few(count):
    peers = neighbours(range(count))
    assert all(own in peers[other] and own != other for own, known in peers.items() for other in known)
    assert {len(set(known)) for known in peers.values()} == {min(count - 1, MOST_PEERS)}


def test_masks_cancel_and_sums_have_the_stated_resolution():
    """Also at the edge of the range, where one client has all the weight and one parameter all the length."""
    rng, lines = np.random.default_rng(0), ["a", "b", "c", "d"]
    keys = {frozenset(pair): rng.bytes(32) for pair in [(x, y) for x in lines for y in lines if x < y]}
    for weight in (np.array([0.4, 0.3, 0.2, 0.1]), np.array([1.0, 0.0, 0.0, 0.0])):
        changes = rng.normal(size=(4, 50)).astype(np.float32)
        changes[0] = 0
        changes[0, 0] = BOUND
        total = np.zeros(50, np.uint32)
        for own, change, share in zip(lines, changes, weight, strict=True):
            shared = {other: keys[frozenset((own, other))] for other in lines if other != own}
            total += in_fixed_point(change, share, BOUND) + mask_sum(shared, own, 50)
        length = np.maximum(np.linalg.norm(changes.astype(float), axis=1), BOUND)
        exact = (weight * BOUND / length) @ changes.astype(float)
        assert np.abs(from_fixed_point(total, BOUND) - exact).max() <= 4 / 2 * BOUND / 2**30 + 1e-12
        assert is_within(from_fixed_point(total, BOUND), 1.0, BOUND)


@pytest.mark.parametrize(("count", "rounds"), [(3, 4), (33, 1)])
def test_the_model_is_the_same_as_without_masks_up_to_the_resolution(tmp_path, count, rounds):
    plain, _ = BareRounds(tmp_path / "plain", count, rounds, secure="").go()
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


@pytest.mark.parametrize("silent", [(), (1002,)])
def test_reports_of_clients_who_drop_out_are_missing_from_the_sum(tmp_path, silent, monkeypatch):
    """One of six delivers nothing in the last round; of the others one may not tell her keys, and is missing too."""

    monkeypatch.setattr(masked_rounds, "REPLY_TIMEOUT", 2.0)

    def drops(reply):
        if of_training(reply, 1001) and reply.content.config_records[ROUND]["round"] == 1:
            return []
        if reply.metadata.message_type.endswith("truthfl_masks") and reply.metadata.src_node_id in silent:
            return []
        return [reply]

    def plain_drops(reply):
        late = of_training(reply) and reply.content.config_records[ROUND]["round"] == 1
        return [] if late and reply.metadata.src_node_id in (1001, *silent) else [reply]

    masked, plain = BareRounds(tmp_path / "masked", 6, 2), BareRounds(tmp_path / "plain", 6, 2, secure="")
    params, view = masked.go(Meddler(masked.grid, drops))
    expected, _ = plain.go(Meddler(plain.grid, plain_drops))
    np.testing.assert_allclose(params, expected, atol=1e-6)
    missing = ["client 1"] + ["client 2"] * bool(silent)
    assert view.rounds[1].document["missing"] == missing
    assert {entry.document["client"] for entry in view.rejections} == set(missing)
    notes = [
        json.loads(line) for line in next((tmp_path / "masked/0/masked-rounds").iterdir()).read_text().splitlines()
    ]
    assert [note["missing"] for note in notes if "missing" in note] == [[1], [2]][: len(missing)]


def test_sums_are_scaled_up_for_who_is_missing_if_the_offer_says_so(tmp_path):
    def drops(reply):
        return [] if of_training(reply, 1001) and reply.content.config_records[ROUND]["round"] == 1 else [reply]

    trained = {}
    for rescales in (False, True):
        for secure in ("always", ""):
            job = BareRounds(tmp_path / f"{rescales}-{secure}", 6, 2, secure=secure, rescales=rescales)
            trained[rescales, secure], view = job.go(Meddler(job.grid, drops))
            assert view.rounds[1].document["missing"] == ["client 1"]
    whole = BareRounds(tmp_path / "whole", 6, 1, secure="").go()[0]
    changes = {case: params - whole for case, params in trained.items()}
    np.testing.assert_allclose(trained[True, "always"], trained[True, ""], atol=1e-6)
    factor = 21 / 19  # the weights are 1, 2, …, 6; the second is missing
    np.testing.assert_allclose(changes[True, ""], factor * changes[False, ""], atol=1e-6)
    np.testing.assert_allclose(changes[True, "always"], factor * changes[False, "always"], atol=1e-6)


def test_a_sum_of_fewer_than_three_is_not_unmasked_and_changes_nothing(tmp_path):
    job = BareRounds(tmp_path, 3, rounds=3)

    def drops(reply):
        return [] if of_training(reply, 1001) and reply.content.config_records[ROUND]["round"] == 1 else [reply]

    _, view = job.go(Meddler(job.grid, drops))
    second, third = view.rounds[1].document, view.rounds[2].document
    assert second["refused"] == "fewer than three reports"
    assert second["model"] == second["previous"]
    assert second["missing"][0] == "client 1"
    assert "refused" not in third
    assert third["model"] != third["previous"]


def garbage(job, node, value=None):
    """A grid on which one client's masked reports are other numbers, with her own code."""
    rng = np.random.default_rng(3)

    def change(reply):
        if not of_training(reply, node):
            return [reply]
        report = reply.content.array_records[MODEL][PARAMS].numpy()
        forged = rng.integers(0, 2**32, len(report), dtype=np.uint32) if value is None else report + np.uint32(value)
        content = RecordDict({MODEL: model_record(forged), ROUND: reply.content.config_records[ROUND]})
        return [recoded(job.people[node].folder, other_reply(content, reply))]

    return Meddler(job.grid, change)


def test_who_makes_sums_too_long_is_found_and_left_out(tmp_path):
    job = BareRounds(tmp_path, 7, rounds=9)
    params, view = job.go(garbage(job, 1003))
    refused = [entry.document.get("refused", "") for entry in view.rounds]
    assert "the sum of 7 reports has length" in refused[0]
    assert refused[-3:] == [""] * 3
    excluded = [entry.document for entry in view.rejections if "excluded" in entry.document["reason"]]
    assert {one["client"] for one in excluded} == {"client 3"}
    assert all(name == "client 3" for entry in view.rounds for name in entry.document["missing"])
    assert np.linalg.norm(params - job.training.model.init(0)) > 0.1
    assert all(view.delivered[f"client {k}"] == 9 for k in range(7) if k != 3)


def test_below_the_bound_of_the_sum_a_forged_report_moves_the_model_by_no_more_than_twice_the_bound(tmp_path):
    """This is what masks cost: without them it would be her weight times twice the bound."""
    honest, _ = BareRounds(tmp_path / "honest", 4, rounds=1).go()
    job = BareRounds(tmp_path / "forged", 4, rounds=1)
    shift = int(0.9 * 2**30 / np.sqrt(650))
    params, view = job.go(garbage(job, 1003, shift))
    assert "refused" not in view.rounds[0].document
    assert 0.5 * BOUND < np.linalg.norm(params - honest) <= 2 * BOUND


def test_groups_change_and_one_who_is_always_in_bad_ones_is_found_among_many():
    suspects, clients = Suspects(), range(40)
    suspects.note(clients, good=False)
    for round_ in range(1, 9):
        groups = suspects.split([c for c in clients if c not in suspects.excluded], RoundCall(round_))
        assert sorted(c for group in groups for c in group) == [c for c in clients if c not in suspects.excluded]
        assert all(len(group) >= 3 for group in groups)
        for group in groups:
            suspects.note(group, good=17 not in group)
        if suspects.conclude():
            break
    assert suspects.excluded == {17}
    assert not suspects.searching


@pytest.fixture
def client(tmp_path):
    """A client of five after one masked round, with her masks."""
    job = BareRounds(tmp_path, 5, rounds=1)
    job.go()
    person = job.people[1000]
    return person.masking(job.training.agreement.offers[0].hash)


def test_what_a_client_refuses_to_send(client):
    change, model = np.ones(650, np.float32), "ab" * 32
    weight = client.offer.client.weight
    sent = MaskedRound(1, 0, model, (1, 2, 3))
    report = client.masked(change, weight, sent)
    assert (report == client.masked(change, weight, sent)).all()
    assert "other peers" in told(client.masked, change, weight, MaskedRound(1, 0, model, (1, 2)))
    assert "another model" in told(client.masked, change, weight, MaskedRound(1, 0, "cd" * 32, (1, 2, 3)))
    assert (report != client.masked(change, weight, MaskedRound(1, 1, model, (1, 2, 3)))).mean() > 0.99
    for peers in ((1,), (1, 1), (), (1, 9)):
        assert "at least two peers" in told(client.masked, change, weight, MaskedRound(2, 0, model, peers))
    for wrong in (0.5 * weight, 1.5, float("nan")):
        assert "the report's weight" in told(client.masked, change, wrong, MaskedRound(2, 0, model, (1, 2, 3)))
    assert "is refused" in told(client.require_may_be_unmasked)


def test_which_keys_a_client_does_not_tell(client):
    assert set(client.keys_of_missing(0, 0, [2])) == {2}
    assert set(client.keys_of_missing(0, 0, [2])) == {2}
    assert set(client.keys_of_missing(0, 0, [3])) == {3}
    assert "fewer than three reports" in told(client.keys_of_missing, 0, 0, [4])
    for wrong in ([], [0], [9], [1, 9]):
        assert "peers in that round only" in told(client.keys_of_missing, 0, 0, wrong)
    assert "was not delivered" in told(client.keys_of_missing, 1, 0, [2])
    assert "was not delivered" in told(client.keys_of_missing, 0, 1, [2])


def test_which_peers_a_client_does_not_believe(client):
    path = client.home / "peers" / f"{client.offer.hash}.json"
    named = json.loads(path.read_text())["acceptances"]
    client.keep_peers(named)
    assert "other peers" in told(client.keep_peers, {k: named[k] for k in list(named)[:3]})
    one, two = named["1"], named["2"]
    forged = {"document": {**one["document"], "agreement_key": two["document"]["agreement_key"]}, "signature": "AA=="}
    for wrong, words in (
        ({}, "peers are named by 2 to 30"),
        ({"1": one}, "peers are named by 2 to 30"),
        ({"1": one, "2": one}, "named twice"),
        ({"1": one, "2": forged}, "not signed by the key"),
        ({"1": one, "2": {"document": {**two["document"], "job": "other"}, "signature": two["signature"]}}, "this job"),
        ({"1": one, "0": two}, "named twice"),
        ({"1": one, "x": two}, "no signed acceptance"),
        ([one, two], "peers are named by 2 to 30"),
    ):
        assert words in told(client.keep_peers, wrong)


@pytest.mark.parametrize(("taking_part", "masked"), [(2, False), (3, True)])
def test_masks_where_three_take_part(tmp_path, taking_part, masked):
    """Two clients' reports are seen one by one where the offer says so; who has peers sends none that is not masked."""
    job = BareRounds(tmp_path, 4, rounds=2, secure=FROM_THREE)
    kinds = set()

    def look(reply):
        if of_training(reply):
            kinds.add(str(reply.content.array_records[MODEL][PARAMS].numpy().dtype))
        return [reply]

    _, view = job.go(Meddler(job.grid, look), taking_part)
    assert kinds == {"uint32" if masked else "float32"}
    assert not view.rejections


def test_a_job_that_masks_always_changes_nothing_with_two(tmp_path):
    job = BareRounds(tmp_path, 4, rounds=2)
    params, view = job.go(taking_part=2)
    assert [entry.document["refused"] for entry in view.rounds] == ["fewer than three reports"] * 2
    assert (params == job.training.model.init(0)).all()
