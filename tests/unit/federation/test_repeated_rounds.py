"""A server whose model is lost repeats the rounds in its ledger: the same people, the same bytes, the same models."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from helpers.auditions import Meddler, other_reply
from helpers.bare_rounds import BareRounds
from helpers.commands import told
from helpers.participants import recoded
from truthfl.errors import InputError
from truthfl.federation.masking.server import Sum
from truthfl.federation.operator.row_words import describe_entry
from truthfl.federation.protocol import rounds as rounds_module
from truthfl.federation.protocol.job_control import JobControl
from truthfl.federation.protocol.messages import MODEL, PARAMS, ROUND, model_digest, model_record
from truthfl.federation.protocol.recorder import Checkpoint, Recorder, read_checkpoint, write_checkpoint
from truthfl.federation.protocol.rounds import first_lost_round, train_rounds
from truthfl.home.record import rounds_of
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.commands import new_command
from truthfl.ledger.entry import Item

STOPPED_AFTER = 3


class StoppedError(Exception):
    """The server is gone."""


@pytest.fixture(params=[True, False], ids=["masked", "bare"])
def job(request, tmp_path, monkeypatch):
    """A job of five people with momentum, one of them away in round 2, that was stopped after three of five rounds."""
    made = BareRounds(tmp_path, 5, rounds=5, masked=request.param, seconds=0.1, momentum=0.5)
    put = Recorder.put

    def put_or_stop(self, rounds, *more):
        put(self, rounds, *more)
        if rounds == STOPPED_AFTER:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "put", put_or_stop)
        with pytest.raises(StoppedError):
            made.go(without(made.grid, 1002, {2})[0])
    return made


def without(grid, node, numbers):
    """A grid on which these reports of a node are lost on their way, counted from 1."""
    sent = []

    def change(reply):
        if reply.metadata.src_node_id != node or reply.metadata.message_type != "train":
            return [reply]
        sent.append(reply)
        return [] if len(sent) in numbers else [reply]

    return Meddler(grid, change), sent


def lose(job):
    (job.folder / "checkpoint").unlink()


def test_a_job_without_its_checkpoint_is_trained_from_the_start(job):
    before = {name: rounds_of(person.folder, offer) for name, person, offer in answered(job)}
    lose(job)
    params, view = job.resumed()
    assert [entry.document["round"] for entry in view.rounds] == [1, 2, 3, 4, 5]
    assert [entry.document["round"] for entry in view.starts] == [1, 1]  # that it began anew is recorded
    assert view.rounds[-1].document["model"] == model_digest(params)
    after = {name: rounds_of(person.folder, offer) for name, person, offer in answered(job)}
    assert all(after[name][: len(records)] == records for name, records in before.items())
    assert view.rounds[1].document["missing"] == ["client 2"]


def answered(job):
    for person in job.people.values():
        offer = next((person.folder / "rounds").glob("*.jsonl")).stem
        yield person.name, person, offer


def test_rounds_can_be_repeated_again_and_again(job):
    lose(job)
    again, view = job.resumed()
    kept = read_checkpoint(job.folder / "checkpoint")
    assert (kept.rounds, kept.params.tobytes()) == (5, again.tobytes())
    lose(job)  # after the last round
    params, same = job.resumed()
    assert params.tobytes() == again.tobytes()
    assert [entry.document for entry in same.rounds] == [entry.document for entry in view.rounds]


def test_a_repeat_waits_for_everybody_who_delivered(job, monkeypatch):
    """Nobody's report takes the place of another, and without one there is another model."""
    monkeypatch.setattr(rounds_module, "SECONDS_BETWEEN_REPEATS", 0.01)
    lose(job)
    grid, sent = without(job.grid, 1001, {1, 2})
    _, view = job.resumed(grid)
    assert len(sent) == 7  # twice in vain
    assert len(view.rounds) == 5
    assert "client 1" not in view.rounds[0].document["missing"]


@pytest.mark.parametrize("change", ["other numbers", "a number that is none", "other shares"])
def test_somebody_who_answers_a_repeat_with_other_bytes_is_named_and_asked_again(job, monkeypatch, change):
    """The job waits for the report of the first time, and goes on."""
    if job.masked == (change == "a number that is none") and change != "other numbers":
        return  # masked numbers are whole, and bare reports have no shares
    monkeypatch.setattr(rounds_module, "SECONDS_BETWEEN_REPEATS", 0.01)
    lose(job)
    grid, sent = with_other_reports(job, 2, change)
    params, view = job.resumed(grid)
    assert len(sent) == 7  # twice in vain
    assert [entry.document["round"] for entry in view.rounds] == [1, 2, 3, 4, 5]
    assert view.rounds[-1].document["model"] == model_digest(params)
    told = [entry.document for entry in view.rejections if entry.document["stage"] == "repeat"]
    assert [(one["client"], one["round"], one["count"]) for one in told] == [("client 1", 1, 1)]
    fault = "it has NaN or infinity" if change == "a number that is none" else rounds_module.OTHER_REPORT
    assert told[0]["reason"] == fault
    assert describe_entry(view.rejections[-1], None).startswith("round 1: client 1 refused: ")


def with_other_reports(job, times, change):
    """A grid on which the first reports of client 1 come changed, with the code that they make for them."""
    sent, home = [], job.people[1001].folder

    def other(reply):
        told, numbers = dict(reply.content[ROUND]), reply.content[MODEL][PARAMS].numpy().copy()
        if change == "other shares":
            told["shares"] = told["shares"][::-1]
        else:
            numbers[0] = np.nan if change == "a number that is none" else numbers[0] + 1
        content = RecordDict({MODEL: model_record(numbers), ROUND: ConfigRecord(told)})
        return recoded(home, other_reply(content, reply))

    def meddle(reply):
        if reply.metadata.src_node_id != 1001 or reply.metadata.message_type != "train":
            return [reply]
        sent.append(reply)
        return [other(reply) if len(sent) <= times else reply]

    return Meddler(job.grid, meddle), sent


@pytest.mark.parametrize("job", [True], indirect=True, ids=["masked"])
def test_other_masks_of_the_missing_in_a_repeat_do_not_end_the_job(job, monkeypatch):
    """Nobody knows whose they are: all who told some are named, and asked again."""
    monkeypatch.setattr(rounds_module, "SECONDS_BETWEEN_REPEATS", 0.01)
    lose(job)
    learn, calls = Sum.learn_keys, []

    def other_keys(self, missing):
        found = learn(self, missing)
        if self.told_keys and not calls:
            calls.append(self.call.round)
            keys = next(iter(self.told_keys.values()))
            keys |= {peer: bytes(len(key)) for peer, key in keys.items()}
        return found

    monkeypatch.setattr(Sum, "learn_keys", other_keys)
    _, view = job.resumed()
    assert (calls, len(view.rounds)) == ([1], 5)
    told = [entry.document for entry in view.rejections if entry.document["stage"] == "repeat"]
    assert {one["client"] for one in told} == {f"client {number}" for number in (0, 1, 3, 4)}
    assert {one["reason"] for one in told} == {rounds_module.OTHER_KEYS}


END = new_command("end", "job-1", "Olga")


def with_commands(monkeypatch, **state):
    """From now on the server goes on with this state of the operator's commands."""
    train = train_rounds

    def commanded(roster, *more):
        roster.control.log.state = replace(roster.control.log.state, **state)
        return train(roster, *more)

    monkeypatch.setattr("helpers.bare_rounds.train_rounds", commanded)


def test_a_round_that_needs_somebody_who_was_removed_waits_for_the_end(job, monkeypatch):
    """The server does not stop: it records what the removal means, and waits for the operator's word."""
    lose(job)
    with_commands(monkeypatch, removed={"client 0": "removed by the operator"})
    waits = []

    def end_after_three(_):
        waits.append(job.live.status.waits)
        if len(waits) == 3:
            monkeypatch.setattr(JobControl, "ended", END)

    monkeypatch.setattr(rounds_module.time, "sleep", end_after_three)
    params, view = job.resumed()
    assert [(one.names, one.round) for one in waits] == [(("client 0",), 1)] * 3
    assert model_digest(params) == view.rounds[0].document["previous"]
    assert len(view.rounds) == STOPPED_AFTER
    told_of = [entry.document for entry in view.rejections if entry.document["stage"] == "repeat"]
    assert [(one["client"], one["round"]) for one in told_of] == [("client 0", 1)]
    assert "truthfl end settles the job" in told_of[0]["reason"]


def test_the_end_of_a_job_ends_the_wait_for_somebody_who_is_gone(job, monkeypatch):
    """The model before the round that cannot be repeated is returned; the time of a round passes first."""
    monkeypatch.setattr(rounds_module, "SECONDS_BETWEEN_REPEATS", 0.01)
    lose(job)
    with_commands(monkeypatch, ended=END)
    grid, sent = without(job.grid, 1001, range(2, 1000))
    params, view = job.resumed(grid)
    assert len(sent) >= 2
    assert model_digest(params) == view.rounds[1].document["previous"]
    assert len(view.rounds) == STOPPED_AFTER
    assert first_lost_round([entry.document for entry in view.rounds], model_digest(params)) == 2


def test_an_ended_job_whose_people_are_all_there_keeps_its_model(job, monkeypatch):
    lose(job)
    with_commands(monkeypatch, ended=END)
    params, view = job.resumed()
    assert model_digest(params) == view.rounds[-1].document["model"]
    assert len(view.rounds) == STOPPED_AFTER


def test_another_model_is_not_answered_in_a_repeat(job, monkeypatch):
    lose(job)
    run, first = rounds_module.run_masked_round, rounds_module.run_round

    def from_another(run):
        return lambda one, two, *more: run(one, *((two + 1, *more) if job.masked else (two, more[0] + 1, *more[1:])))

    monkeypatch.setattr(rounds_module, "run_masked_round", from_another(run))
    monkeypatch.setattr(rounds_module, "run_round", from_another(first))
    with pytest.raises(InputError, match=r"cannot be repeated: client 0 answers with an error: .*from another model"):
        job.resumed()


@pytest.mark.parametrize("place", [0, 70, 90, -1])
def test_a_checkpoint_with_a_changed_byte_appends_nothing(job, place):
    file = job.folder / "checkpoint"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    before = rows(job)
    assert told(job.resumed) == (
        f"the checkpoint {file} is damaged; remove it, and all rounds are repeated from the first with those who "
        "delivered them."
    )
    assert rows(job) == before


def rows(job):
    with open_for_reading(job.folder / "ledger.db") as ledger:
        return ledger.rows()


def test_a_checkpoint_is_held_against_the_ledger(job):
    file = job.folder / "checkpoint"
    kept, before = read_checkpoint(file), rows(job)
    phantom = Item("phantom", "rejection", "x", {"stage": "round"})
    for wrong, sentence in (
        (replace(kept, items=(phantom,)), "has rows of another job"),
        (replace(kept, items=(replace(phantom, job="job-1", kind="settlement"),)), "has rows of another job"),
        (replace(kept, params=kept.params + 1), "has another model than the ledger's"),
        (replace(kept, before=kept.before + 1), "has another model than the ledger's"),
        (replace(kept, rounds=5, items=()), "is of 5 rounds, and the ledger has no round 4: it is an older one"),
    ):
        write_checkpoint(file, wrong)
        assert sentence in told(job.resumed)
        assert rows(job) == before


def test_an_older_checkpoint_is_caught_up(job):
    """The rounds since then are repeated."""
    write_checkpoint(job.folder / "checkpoint", Checkpoint(0, start := start_of(job), start, ()))
    _, view = job.resumed()
    assert len(view.rounds) == 5


def start_of(job):
    return np.asarray(job.training.model.init(0), dtype=np.float32)


def test_rounds_that_the_ledger_lost_with_the_checkpoint_are_answered_again(job):
    """A crash before rows were written: participants answer with the same bytes, so the same models are made.

    Under masks they sign again who was missing then; of single reports nobody but the ledger knows that.
    """
    expected, view = job.resumed(without(job.grid, 1003, {2})[0] if job.masked else None)
    lose(job)
    with closing(sqlite3.connect(job.folder / "ledger.db", isolation_level=None)) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM entries WHERE sequence >= ?", (view.rounds[3].sequence,))
    params, again = job.resumed()
    assert params.tobytes() == expected.tobytes()
    assert [entry.document["missing"] for entry in again.rounds] == [entry.document["missing"] for entry in view.rounds]
