"""What makes a job of many clients fast and small does not change what it computes, writes and sends."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.many_clients import job_text

from helpers.small_jobs import TEN_CLIENTS, known_plans  # noqa: F401
from truthfl.errors import InputError
from truthfl.federation.masking import shares as masking
from truthfl.federation.protocol import receipt_delivery
from truthfl.federation.simulated import participants
from truthfl.federation.simulated import report as audition_report
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.participants import simulated_participants
from truthfl.federation.simulated.report import client_rows, summary_sentences
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.canonical import canonical_bytes, read_writable_document
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import JobReceipts

QUICK = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
ROOT = Path(__file__).parents[3]
LIARS = "\nbehaviour = " + json.dumps(["truthful", "free rider"] * 5)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    text = TEN_CLIENTS.replace("loss_value = 8000.0", "loss_value = 8000.0\nmost_expected_pay = 1000.0")
    path.write_text(text.replace("sample_cost = 0.05", "sample_cost = 0.05" + LIARS))
    return read_job(path)


@pytest.fixture(scope="module")
def done(job, tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    return run_job(job, folder, design=QUICK), folder


def kinds(folder):
    with open_for_reading(folder / "ledger.db") as ledger:
        return [(entry.kind, entry.key) for entry in ledger.entries()]


def models(outcome):
    return [entry.document["model"] for entry in outcome.view.rounds]


def test_a_receipt_is_the_same_again_and_names_nobody_else(done):
    outcome, folder = done
    with open_for_reading(folder / "ledger.db") as ledger:
        entries = ledger.entries()
    view = job_view(outcome.view.name, entries)
    receipts = JobReceipts(view, entries)
    names = {offer.client.name for offer in view.agreement.offers}
    roots = set()
    for offer in view.agreement.offers:
        receipt = canonical_bytes(receipts.recorded(offer))
        kept = folder / "participants" / offer.client.name / "receipts" / f"{view.name}.json"
        assert kept.read_bytes() == receipt
        proof = json.loads(receipt)["document"]["proof"]
        assert {link["key"].split("/")[-1] for link in proof["links"]} & names == {offer.client.name}
        assert len(proof["links"]) <= 8
        roots.add(proof["root"])
    assert len(roots) == 1


def test_receipts_in_parts_and_samples_gathered_when_used_change_nothing(job, done, tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(participants, "MOST_FEATURES", 0)
    monkeypatch.setattr(receipt_delivery, "MOST_AT_ONCE", 4)
    ask = receipt_delivery.ask_nodes

    def asked(grid, messages, *, timeout):
        sent.append(len(messages))
        return ask(grid, messages, timeout=timeout)

    monkeypatch.setattr(receipt_delivery, "ask_nodes", asked)
    outcome = run_job(job, tmp_path, design=QUICK)
    assert sent == [4, 4, 2]
    assert models(outcome) == models(done[0])
    assert (outcome.pay == done[0].pay).all()
    assert sorted(kinds(tmp_path)) == sorted(kinds(done[1]))
    assert set(outcome.view.acknowledgements) == set(outcome.view.settlements)


def test_a_long_table_and_many_liars_are_told_shortly(job, done, monkeypatch):
    outcome = done[0]
    whole, short = client_rows(outcome), client_rows(outcome, 4)
    assert len(whole) == 11
    assert client_rows(outcome, 10) == whole
    assert short[:4] == whole[:4]
    assert short[4] == ["… 6 more", *[""] * (len(whole[0]) - 1)]
    assert short[5] == whole[-1]
    monkeypatch.setattr(audition_report, "MOST_LIARS", 2)
    monkeypatch.setattr("truthfl.federation.simulated.report.MOST_LIARS", 2)
    told = [sentence for sentence in summary_sentences(job, outcome) if "free rider" in sentence]
    assert len(told) == 2
    assert any("3 more were dishonest" in sentence for sentence in summary_sentences(job, outcome))


def test_a_stream_that_two_peers_share_is_computed_once_and_forgotten(monkeypatch):
    made, stream = [], masking.mask_stream

    def counted(key, length):
        made.append(key)
        return stream(key, length)

    monkeypatch.setattr(masking, "mask_stream", counted)
    keys, shared = [os.urandom(32) for _ in range(3)], masking.SharedStreams()
    first = masking.mask_sum({"b": keys[0], "c": keys[1]}, "a", 100, shared.mask_stream)
    second = masking.mask_sum({"a": keys[0], "c": keys[2]}, "b", 100, shared.mask_stream)
    third = masking.mask_sum({"a": keys[1], "b": keys[2]}, "c", 100, shared.mask_stream)
    assert not (first + second + third).any()
    assert len(made) == 3
    assert len(shared) == 0
    monkeypatch.setattr(masking, "MOST_LEFT", 5 * 400)
    again = masking.mask_sum({str(i): os.urandom(32) for i in range(20)}, "x", 100, shared.mask_stream)
    assert len(shared) == 5
    assert again.dtype == np.uint32


def test_simulated_participants_share_the_streams_of_their_masks(job, tmp_path):
    people = simulated_participants(job, job.simulated_federation(), tmp_path).values()
    assert len({own.mask_stream.__self__ for own in people}) == 1


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":-Infinity}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":"\ud800"}'])
def test_what_cannot_be_written_down_is_not_read(text):
    with pytest.raises(InputError):
        read_writable_document(text)


def test_what_can_be_written_down_is_read():
    text = '{"a": "\\u00e9 é", "b": [1.5, -3, 1e300]}'
    assert read_writable_document(text) == ({"a": "é é", "b": [1.5, -3, 1e300]}, text.encode())


def test_the_benchmarks_job_has_so_many_clients_and_liars(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(job_text(1000, 30, 40))
    behaviours = read_job(path).clients.behaviour
    assert len(behaviours) == 1000
    assert sum(name != "truthful" for name in behaviours) == 40
