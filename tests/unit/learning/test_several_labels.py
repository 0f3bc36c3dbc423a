"""Several labels per sample: one is drawn for each round, so that gradients are those of soft targets on average."""

import json
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.contracts.setting import Training
from truthfl.errors import InputError
from truthfl.job.sections import task_from
from truthfl.learning.data.federations import sample_sets
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.data.samples import LabeledSamples, LabelSets, labels_in_round
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.labels import sets_given
from truthfl.learning.people.profile import Profile
from truthfl.learning.tasks.custom import guarded
from truthfl.learning.tasks.pictures import Pictures
from truthfl.learning.tasks.tables import Tables
from truthfl.learning.tasks.task import ReadSamples, Task
from truthfl.learning.tasks.task_choice import TaskChoice, task_choice
from truthfl.learning.tasks.texts import Texts
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train
from truthfl.samples.handmade_labels import count_labels, handmade_labels
from truthfl.samples.label_exchange import export_labels, import_labels
from truthfl.samples.label_store import Decision, LabelStore, other_labels
from truthfl.samples.sources import open_samples

CLASSES = ("a", "b", "c", "d")
SETS = st.lists(st.sets(st.integers(0, 3), min_size=1).map(sorted), min_size=1, max_size=12)


@given(SETS, st.integers(0, 2**63), st.data())
def test_a_label_that_is_drawn_is_one_of_the_samples_own(sets, seed, data):
    labels = LabelSets.of(sets)
    assert labels.lists() == sets
    rows = np.array(data.draw(st.lists(st.integers(0, len(sets) - 1), max_size=8)), dtype=np.int64)
    assert labels.take(rows).lists() == [sets[row] for row in rows] if len(rows) else True
    for drawn in (labels.in_round(seed, 3, 7), labels.alone(seed, 3), labels.of_data(seed)):
        assert all(one in own for one, own in zip(drawn.tolist(), sets, strict=True))
    single = np.arange(len(sets)) % 2 == 0
    changed = labels.with_singles(single, np.full(len(sets), 2)).lists()
    assert changed == [[2] if alone else own for alone, own in zip(single, sets, strict=True)]


def softmax_gradient(weights, features, targets):
    """The gradient of the mean cross-entropy by the weights (features, classes); targets are (samples, classes)."""
    scores = features @ weights
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return features.T @ (shares - targets) / len(features)


def test_the_mean_gradient_over_rounds_is_that_of_uniform_soft_targets():
    rng = np.random.default_rng(1)
    sets = LabelSets.of([[0], [0, 1], [1, 2, 3], [0, 1, 2, 3], [2, 3], [1, 3]])
    features, weights = rng.normal(size=(6, 5)), rng.normal(size=(5, 4))
    soft = sets.matrix(4) / sets.sizes[:, None]
    rounds = 20_000
    gradients = np.array(
        [softmax_gradient(weights, features, np.eye(4)[labels_in_round(sets, 9, 2, t)]) for t in range(rounds)]
    )
    standard_error = gradients.std(axis=0) / np.sqrt(rounds)
    difference = np.abs(gradients.mean(axis=0) - softmax_gradient(weights, features, soft))
    assert (difference <= 5 * standard_error + 1e-12).all()
    assert (standard_error < 0.01).all()


def test_rounds_clients_and_samples_draw_independently():
    sets = LabelSets.of([[0, 1]] * 4000)
    here, next_round, other_client = sets.in_round(5, 0, 0), sets.in_round(5, 0, 1), sets.in_round(5, 1, 0)
    for one, other in ((here, next_round), (here, other_client), (here[:-1], here[1:]), (here, sets.alone(5, 0))):
        assert abs(np.mean(one == other) - 0.5) < 0.04  # five standard deviations
    together = LabelSets.of([[0, 1]] * 2).in_round(5, np.array([0, 1]), 0, np.array([7, 9]))
    assert together.tolist() == [here[7], other_client[9]]


def federation(sizes=(40, 30, 30), **training):
    rng = np.random.default_rng(2)
    features = rng.integers(0, 256, (300, 6)).astype(np.uint8)
    sets = LabelSets.of([sorted({int(row[0] > 128), 2 + int(row[1] > 128)}) for row in features])
    data = LabeledSamples(features, sets.of_data(1), CLASSES, sets)
    partition = iid_partition(len(data), sizes, seed=3)
    return Federated(SoftmaxRegression(6, 4, 0.01), data, partition, Training(9, 2, 0.5), **training)


@pytest.mark.parametrize("name", ["truthful", "few labels", "half parrot", "sloppy labeler", "neighbour labeler"])
def test_the_fast_training_draws_the_labels_of_the_plain_one(name):
    federated, profile = federation(participation=(1.0, 0.6, 1.0)), Profile(["truthful", name, "garbage"], 8)
    fast, plain = train(federated, profile, 7).params[0], train_plainly(federated, profile, 7)
    assert np.abs(fast - plain).max() < 1e-5
    once = Federated(
        federated.model,
        replace_sets(federated.data),
        federated.partition,
        federated.training,
        participation=federated.participation,
    )
    assert np.abs(fast - train(once, profile, 7).params[0]).max() > 1e-4


def replace_sets(data):
    return LabeledSamples(data.features, data.labels, data.classes)


def test_runs_by_strategies_draw_the_same_labels_as_runs_by_behaviours():
    federated, profile = federation(), Profile(["truthful"] * 3, 8)
    assert np.array_equal(train(federated, profile.strategies, 7).params, train(federated, profile, 7).params)
    given_labels = train(federated, profile, 7, labels=federated.true_labels()).params
    assert not np.array_equal(given_labels, train(federated, profile, 7).params)


def test_somebody_who_guesses_gives_one_label_and_somebody_who_looks_gives_all():
    federated = federation()
    profile = Profile(["truthful", "lazy labeler", "half-hearted labeler"], 8)
    labels = profile.labels(federated, 4)
    sets = sets_given(federated, labels, profile.labeling_effort(federated.partition.sizes), 4)
    sizes = np.split(sets.sizes, federated.partition.starts[1:-1])
    assert (sizes[0] == 2).all()
    assert (sizes[1] == 1).all()
    assert {1, 2} == set(sizes[2].tolist())
    assert BEHAVIOURS["lazy labeler"].labeling_effort == 0


def test_the_operators_samples_have_one_label_of_their_own_and_the_clients_all(tmp_path):
    lines = [f"{k},{'a|b' if k % 3 else 'c'}" for k in range(60)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x,label", *lines]) + "\n")
    choice = task_choice("tables", {"several_labels": True})
    sets = sample_sets(choice, str(path), 20, 20, 5)
    assert sets.task.classes == ("a", "b", "c")
    assert (sets.pilot.sets, sets.test.sets) == (None, None)
    assert sorted(set(sets.clients.sets.sizes.tolist())) == [1, 2]
    for part in (sets.pilot, sets.test, sets.clients):
        number = np.rint(part.features[:, 0] * sets.task.scales[0] + sets.task.means[0])
        assert ((part.labels == 2) == (number % 3 == 0)).all()
        assert {0, 1} <= set(part.labels.tolist())


def test_files_have_several_classes_with_a_separator_a_list_or_a_matrix(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\nx,b ; a\ny,b\n")
    (tmp_path / "t.jsonl").write_text('{"text": "x", "label": ["b", "a"]}\n{"text": "y", "label": "b"}\n')
    matrix = np.array([[True, True], [False, True]])
    np.savez(tmp_path / "t.npz", rows=np.ones((2, 1)), columns=["x"], labels=matrix, classes=["a", "b"])
    np.savez(tmp_path / "p.npz", images=np.zeros((2, 3, 3), np.uint8), labels=matrix, classes=["a", "b"])
    semicolon = Texts(several_labels=True, label_separator=";")
    read = semicolon.read(tmp_path / "t.csv")
    semicolon.write(tmp_path / "again.csv", read)
    assert semicolon.read(tmp_path / "again.csv").labels == ("a|b", "b")
    assert "a;b" in (tmp_path / "again.csv").read_text()
    for found in (
        read,
        Texts(several_labels=True).read(tmp_path / "t.jsonl"),
        Tables(several_labels=True).read(tmp_path / "t.npz"),
        Pictures(several_labels=True).read(tmp_path / "p.npz"),
    ):
        assert found.labels == ("a|b", "b")


def test_a_custom_task_gives_lists():
    class Own(Task):
        def read(self, path):  # noqa: ARG002
            return ReadSamples(np.ones((2, 1)), (["dog", "cat"], "cat"))

    task = guarded(Own)(several_labels=True)
    read = task.read(Path())
    assert read.labels == ("cat|dog", "cat")
    assert task.fit(read, read).classes == ("cat", "dog")
    with pytest.raises(InputError, match="several_labels must be true"):
        guarded(Own)().read(Path())


def test_the_option_stands_in_the_document():
    for made in (Tables, Texts, Pictures):
        assert made().document()["several_labels"] is False
        assert made.of_document(made().document()) == made()
        document = made(several_labels=True).document()
        assert document["several_labels"] is True
        assert made.of_document(document) == made(several_labels=True)
    assert task_choice("tables", {"several_labels": False}) == TaskChoice("tables")
    assert task_from({"use": "pictures", "several_labels": False}, Path()) == TaskChoice()
    assert Tables(several_labels=True, label_separator=";").document()["label_separator"] == ";"


def several(path):
    return Tables(several_labels=True).read(path)


BAD = {
    "no class": (lambda folder: several(folder / "gap.csv"), "line 3 of .* has no class in 'label'"),
    "half empty": (lambda folder: several(folder / "half.csv"), r"line 2 of .* has the classes 'a\|'; there must be"),
    "unknown": (
        lambda folder: Tables(("a", "c"), several_labels=True).label_sets(several(folder / "ok.csv").labels, "ok.csv"),
        "ok.csv has the label 'b'; the classes are a, c",
    ),
    "separator": (
        lambda _: Tables(("a|b", "c"), several_labels=True),
        r"classes has the name 'a\|b'; with several labels per sample, '\|' stands between names",
    ),
    "other separator": (
        lambda _: Texts(("a;b", "c"), several_labels=True, label_separator=";"),
        "classes has the name 'a;b'; label_separator ';' cannot be in a name",
    ),
    "separator of files": (
        lambda folder: Tables(several_labels=True, label_separator=";").read(folder / "ok.csv"),
        r"line 2 of .* has the class 'a\|b'; with several",
    ),
    "alone": (lambda _: Tables(label_separator=";"), "label_separator is given without several_labels"),
    "no text": (
        lambda _: Tables(several_labels=True, label_separator=" "),
        "label_separator is ' '; it must be a char",
    ),
    "no bool": (
        lambda _: task_from({"use": "texts", "several_labels": "yes"}, Path()),
        r"\[task\] several_labels is 'yes'; it must be true or false",
    ),
    "zero": (lambda _: task_from({"use": "texts", "several_labels": 0}, Path()), "several_labels is 0; it must be"),
    "shape": (lambda folder: several(folder / "shape.npz"), r"shape \(2, 3\); .* \(2, 2\): one row per sample"),
    "numbers": (lambda folder: several(folder / "numbers.npz"), "labels of type int64 and shape"),
    "no names": (lambda folder: several(folder / "nameless.npz"), "names of its columns in 'classes'"),
    "empty row": (lambda folder: several(folder / "empty.npz"), "sample 1 in .* has no label; each must have"),
    "not allowed": (lambda folder: Tables().read(folder / "empty.npz"), r"there must be one per row, \(2,\)"),
    "nothing": (lambda _: LabelSets.of([[1], []]), "sample 1 has no label"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_told_in_a_sentence(tmp_path, case):
    for name, lines in {"gap": ("1,a", "2,"), "half": ("1,a|", "2,a"), "ok": ("1,a|b", "2,a")}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    table = {"rows": np.ones((2, 1)), "columns": ["x"], "classes": ["a", "b"]}
    np.savez(tmp_path / "shape.npz", **table, labels=np.ones((2, 3), bool))
    np.savez(tmp_path / "numbers.npz", **table, labels=np.ones((2, 2), np.int64))
    np.savez(tmp_path / "empty.npz", **table, labels=np.array([[True, False], [False, False]]))
    del table["classes"]
    np.savez(tmp_path / "nameless.npz", **table, labels=np.ones((2, 2), bool))
    attempt, message = BAD[case]
    assert re.search(message, told(attempt, tmp_path))


def labeled(folder, labels):
    (folder / "texts.csv").write_text("text\none\ntwo\nthree\n")
    source, store = open_samples(folder / "texts.csv"), LabelStore(folder / "labels.db")
    for sample, label in zip(source.ids, labels, strict=False):
        store.decide(Decision(f"nonce-{sample}", sample, "label", label))
    return source, store


def test_labels_made_by_hand_are_sets_for_a_job_that_allows_them(tmp_path):
    source, store = labeled(tmp_path, ["a|c", "b", "a|b|c"])
    with closing(store):
        labels = handmade_labels(store.path, source.ids, CLASSES, several=True)
        assert labels.lists() == [[0, 2], [1], [0, 1, 2]]
        assert count_labels(store.path, source.ids, ("a", "b"), several=True) == 1
        assert other_labels(store.path, ("a", "b"), several=True) == {"a|c": 1, "a|b|c": 1}
        with pytest.raises(InputError, match=r"2 of your labels are none of the job's classes, as is 'a\|c'"):
            handmade_labels(store.path, source.ids, CLASSES)


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_sets_go_out_and_come_in_again(tmp_path, ending):
    source, store = labeled(tmp_path, ["a|c", "b"])
    file = tmp_path / f"labels.{ending}"
    with closing(store):
        assert export_labels(file, source, store, several=True) == 2
        states = store.states()
    if ending == "json":
        choices = [task["annotations"][0]["result"][0]["value"]["choices"] for task in json.loads(file.read_text())[:2]]
        assert choices == [["a", "c"], ["b"]]
    with closing(LabelStore(tmp_path / "other.db")) as other:
        with pytest.raises(InputError, match=r"has 2 classes; a sample has one|has the label 'a\|c'"):
            import_labels(file, source, other, CLASSES)
        assert import_labels(file, source, other, CLASSES, several=True) == 2
        assert other.states() == states
        file.write_text(file.read_text().replace("a|c", "a|x").replace('"c"', '"x"'))
        with pytest.raises(InputError, match="has the label 'x'; it must be one of a, b, c, d"):
            import_labels(file, source, other, CLASSES, several=True)
