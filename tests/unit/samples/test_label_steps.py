"""Steps of several decisions, which are undone together; files of other versions; conflicts between two who decide."""

import sqlite3
from contextlib import closing

import pytest

from helpers.commands import told
from truthfl.samples.label_store import (
    Decision,
    LabelConflictError,
    LabelState,
    LabelStore,
    other_labels,
    other_labels_in_words,
)


@pytest.fixture
def store(tmp_path):
    with closing(LabelStore(tmp_path / "labels.db")) as opened:
        yield opened


def labels(store):
    return {sample: state.label for sample, state in store.states().items()}


def anything(*_):
    return True


def test_a_file_of_another_version_is_left_as_it_is(tmp_path):
    path = tmp_path / "labels.db"
    with closing(LabelStore(path)) as store:
        store.decide(Decision("nonce-1", "a", "label", "cat"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 3")
    before = path.read_bytes()
    sentence = f"{path} is another program's file, or another version's; name another folder."
    assert told(LabelStore, path) == sentence
    assert path.read_bytes() == before


def test_a_step_is_made_once_and_undone_whole(store):
    store.decide(Decision("first-nonce", "b", "label", "cat"))
    for _ in range(2):  # sent again
        stored = store.decide_together("step-nonce", dict.fromkeys("abc", "dog"), anything)
        assert (stored.sample, stored.action, stored.state) == ("a", "label", LabelState("dog"))
        assert stored.also == {"b": LabelState("dog"), "c": LabelState("dog")}
    for _ in range(2):
        undone = store.undo("undo-nonce", {"c"})
        assert (undone.action, undone.also["b"]) == ("label", LabelState("cat"))
    assert labels(store) == {"a": None, "b": "cat", "c": None}
    assert len(store.recent_times(10)) == 1  # a step says nothing of the pace


def test_an_import_is_one_step(store):
    store.decide(Decision("first-nonce", "a", "label", "cat"))
    agreed = store.differing({"a": "dog", "b": "dog"})
    assert agreed == {"a"}
    with pytest.raises(LabelConflictError):
        store.add_imported({"a": "dog", "b": "dog"})
    assert labels(store) == {"a": "cat"}
    store.add_imported({"a": "dog", "b": "dog"}, flagged=["c"], replacing=agreed)
    assert labels(store) == {"a": "dog", "b": "dog", "c": None}
    store.undo("undo-nonce", {"a", "b", "c"})
    assert labels(store) == {"a": "cat", "b": None, "c": None}
    assert not store.states()["c"].flagged


def test_somebody_who_believed_another_label_stores_nothing(store):
    store.decide(Decision("first-nonce", "a", "label", "cat"))
    with pytest.raises(LabelConflictError) as conflict:
        store.decide(Decision("second-nonce", "a", "label", "dog"), lambda _, state: state.label is None)
    assert conflict.value.states == {"a": LabelState("cat")}
    assert "nothing was stored" in told(
        store.decide_together, "third-nonce", {"b": "dog", "a": "dog"}, lambda _, state: state.label is None
    )
    assert labels(store) == {"a": "cat"}
    again = store.decide(Decision("first-nonce", "a", "label", "cat"), lambda _, state: state.label is None)
    assert again.state.label == "cat"  # sent again, it is no conflict with itself


def test_labels_of_other_classes_are_counted(store, tmp_path):
    for number, label in enumerate(("cat", "fox", "fox", "elk")):
        store.decide(Decision(f"nonce-{number}", f"s{number}", "label", label))
    path = tmp_path / "labels.db"
    assert other_labels(path, ["cat", "dog"]) == {"fox": 2, "elk": 1}
    assert other_labels(path, ["cat", "dog"], ["s0", "s3", "s9"]) == {"elk": 1}
    assert other_labels(tmp_path / "none.db", ["cat"]) == {}
    assert other_labels_in_words({"fox": 2, "elk": 1}, ["cat", "dog"]) == (
        "3 labels are of classes that are not among cat, dog: fox, elk. They are kept, and their samples count as not "
        "labeled until they get another label."
    )
