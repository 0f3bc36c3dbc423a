"""Decisions on the disk: undo, skip, flag, once each; what learning reads; crashes."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.errors import ServiceError
from truthfl.page.work import keys_of
from truthfl.samples.handmade_labels import handmade_labels, labels_of
from truthfl.samples.label_store import UNTOUCHED, Decision, LabelState, LabelStore

CLASSES = ("cat", "dog")


@pytest.fixture
def store(tmp_path):
    with closing(LabelStore(tmp_path / "labels.db")) as opened:
        yield opened


def decide(store, sample, action, label=None, nonce=None):
    decide.count += 1
    return store.decide(Decision(nonce or f"nonce-{decide.count}", sample, action, label))


decide.count = 0


def test_the_last_decision_counts(store):
    decide(store, "a", "label", "cat")
    decide(store, "b", "skip")
    decide(store, "a", "label", "dog")
    decide(store, "a", "flag")
    assert store.states() == {"a": LabelState("dog", None, True), "b": LabelState(None, 2, False)}
    decide(store, "a", "skip")
    decide(store, "a", "unflag")
    decide(store, "b", "label", "cat")
    assert store.states() == {"a": LabelState(None, 5, False), "b": LabelState("cat")}


def test_undo_goes_back_step_by_step(store):
    decide(store, "a", "label", "cat")
    decide(store, "a", "label", "dog")
    decide(store, "b", "flag")
    seen = []
    for step in range(4):
        kept = store.undo(f"undo-{step}", {"a", "b"})
        seen.append(kept and (kept.sample, kept.action, kept.state))
    assert seen == [("b", "flag", UNTOUCHED), ("a", "label", LabelState("cat")), ("a", "label", UNTOUCHED), None]


def test_undo_leaves_other_samples_alone_and_takes_an_import_back(store):
    decide(store, "a", "label", "cat")
    decide(store, "elsewhere", "label", "dog")
    store.add_imported({"b": "dog"})
    assert store.undo("undo-0", {"a", "b"}).sample == "b"
    assert store.undo("undo-1", {"a", "b"}).sample == "a"
    assert store.undo("undo-2", {"a", "b"}) is None
    assert store.states()["elsewhere"].label == "dog"


def test_the_same_decision_sent_twice_is_one(store, tmp_path):
    first = decide(store, "a", "label", "cat", nonce="the-same-one")
    again = decide(store, "a", "label", "cat", nonce="the-same-one")
    assert first == again
    undone = store.undo("the-same-undo", {"a"})
    assert store.undo("the-same-undo", {"a"}) == undone
    with closing(sqlite3.connect(tmp_path / "labels.db")) as database:
        assert database.execute("select count(*) from decisions").fetchone() == (2,)


def test_rows_are_only_added(store, tmp_path):
    decide(store, "a", "label", "cat")
    with closing(sqlite3.connect(tmp_path / "labels.db")) as database:
        for change in ("update decisions set label = 'dog'", "delete from decisions"):
            with pytest.raises(sqlite3.IntegrityError, match="only added"):
                database.execute(change)


def test_a_decision_is_flushed_to_the_disk(store):
    assert store._database.execute("pragma synchronous").fetchone() == (2,)  # FULL
    assert store._database.execute("pragma journal_mode").fetchone() == ("wal",)


def test_what_is_returned_survives_a_kill(tmp_path):
    """A process writes and says so, until it is killed; all it said is there, once."""
    code = (
        "import sys; from pathlib import Path; from truthfl.samples.label_store import *\n"
        "store = LabelStore(Path(sys.argv[1]))\n"
        "for n in range(10**6):\n"
        "    store.decide(Decision(f'nonce-{n}', f's{n}', 'label', 'cat')); print(n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "labels.db"], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    said = [int(process.stdout.readline()) for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    said += [int(line) for line in process.stdout.read().split("\n") if line.strip()]
    process.stdout.close()
    process.wait()
    with closing(LabelStore(tmp_path / "labels.db")) as store:
        found = store.states()
    assert {f"s{n}" for n in said} <= set(found)
    assert len(found) <= len(said) + 1
    assert labels_of(tmp_path / "labels.db", [f"s{n}" for n in said], CLASSES).tolist() == [0] * len(said)


def test_threads_and_other_processes_share_the_file(store, tmp_path):
    with closing(LabelStore(tmp_path / "labels.db")) as other:

        def work(which, name):
            for number in range(20):
                which.decide(Decision(f"{name}-nonce-{number}", f"{name}{number}", "label", "cat"))

        threads = [
            threading.Thread(target=work, args=(which, name))
            for which, name in ((store, "a"), (store, "b"), (other, "c"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.states()) == len(other.states()) == 60


def test_labels_come_when_all_are_there(store, tmp_path):
    path = tmp_path / "labels.db"
    assert labels_of(tmp_path / "nowhere.db", ["a"], CLASSES) is None
    decide(store, "b", "label", "dog")
    decide(store, "x", "label", "cat")
    assert labels_of(path, ["a", "b"], CLASSES) is None
    decide(store, "a", "label", "cat")
    found = labels_of(path, ["a", "b"], CLASSES)
    assert found.tolist() == [0, 1]
    assert found.dtype == np.int64
    assert labels_of(path, ["a", "b"], ("dog", "cat")).tolist() == [1, 0]
    assert labels_of(path, ["a", "b"], ("cat", "bird")) is None
    assert told(handmade_labels, path, ["a", "b"], ("cat", "bird")) == (
        "1 of your labels is none of the job's classes, as is 'dog'; label these samples again."
    )
    assert handmade_labels(path, ["a", "b"], CLASSES).tolist() == [0, 1]
    assert handmade_labels(path, ["a", "c"], CLASSES) is None
    decide(store, "a", "skip")
    assert labels_of(path, ["a", "b"], CLASSES) is None
    with closing(sqlite3.connect(path)) as database:
        assert sorted(database.execute("select * from labels")) == [("b", "dog"), ("x", "cat")]
    store.undo("undo-skip", {"a"})
    assert labels_of(path, ["a", "b"], CLASSES).tolist() == [0, 1]


def test_files_that_are_no_labels(tmp_path):
    (tmp_path / "labels.db").write_bytes(b"something else altogether" * 50)
    assert "cannot be used" in told(LabelStore, tmp_path / "labels.db")
    assert "cannot be read" in told(labels_of, tmp_path / "labels.db", ["a"], CLASSES)
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("create table mine (x)")
    assert "another program's" in told(LabelStore, tmp_path / "other.db")
    (tmp_path / "file").write_text("")
    assert "cannot be made private" in told(LabelStore, tmp_path / "file" / "labels.db", kind=ServiceError)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["label", "skip", "flag", "unflag", "undo"]),
        st.sampled_from("abc"),
        st.sampled_from(CLASSES),
    ),
    max_size=25,
)


@pytest.mark.properties
@given(steps=STEPS)
def test_any_history_comes_to_what_a_stack_of_states_says(tmp_path_factory, steps):
    """The reference keeps every state there was and goes back to the one before."""
    path = tmp_path_factory.mktemp("store") / "labels.db"
    states = [{}]
    with closing(LabelStore(path)) as store:
        for number, (action, sample, label) in enumerate(steps):
            if action == "undo":
                kept = store.undo(f"nonce-{number}", "abc")
                assert (kept is None) == (len(states) == 1)
                states = states[:-1] or states
                continue
            store.decide(Decision(f"nonce-{number}", sample, action, label if action == "label" else None))
            now = dict(states[-1])
            before, _, flagged = now.get(sample, (None, False, False))
            if action in ("label", "skip"):
                now[sample] = (label, False, flagged) if action == "label" else (None, True, flagged)
            else:
                now[sample] = (before, now.get(sample, (None, False))[1], action == "flag")
            states.append(now)
        found = {
            sample: (one.label, one.skipped is not None, one.flagged)
            for sample, one in store.states().items()
            if one != UNTOUCHED
        }
    assert found == {sample: one for sample, one in states[-1].items() if one != (None, False, False)}
    for sample, (label, _, _) in states[-1].items():
        read = labels_of(path, [sample], CLASSES)
        assert (read is None and label is None) or CLASSES[read[0]] == label


def test_a_key_for_every_class():
    assert keys_of(tuple("0123456789")) == tuple("0123456789")
    assert keys_of(("cat", "car", "fish", "flag")) == ("c", "a", "s", "l")
    assert keys_of(("10", "11", "7")) == ("1", "a", "7")
    many = keys_of([f"class {n}" for n in range(34)])
    assert len(set(many)) == 34
    assert not {"f", None} & set(many)
    assert set(keys_of([f"class {n}" for n in range(35)])) == {None}  # they are found by typing
