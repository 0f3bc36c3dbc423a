"""Labels are as good as the effort, and depend on nobody else's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.learning.data import partition as module
from truthfl.learning.data.partition import Partition, iid_partition, paper_partition
from truthfl.learning.people.labels import assigned_labels

TRUE = np.random.default_rng(2).integers(0, 10, 400)
SEEDS = st.integers(0, 2**64 - 1)
SHARES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


def federation(clients=6, seed=1):
    return paper_partition(TRUE, 5 + 7 * np.arange(clients), seed=seed)


def labels(partition, effort, error_rate=0.0, seed=7, classes=10):
    return assigned_labels(TRUE, partition, labeling_effort=effort, error_rate=error_rate, classes=classes, seed=seed)


def of(client, partition, values):
    return values[partition.starts[client] : partition.starts[client + 1]]


@given(SEEDS)
def test_full_effort_labels_correctly(seed):
    partition = federation()
    assert (labels(partition, 1, seed=seed) == TRUE[partition.rows]).all()


def test_no_effort_labels_uniformly_over_all_classes():
    partition = iid_partition(len(TRUE), np.full(1000, 100), seed=1)
    drawn = labels(partition, 0)
    counts = np.bincount(TRUE[partition.rows] * 10 + drawn, minlength=100).reshape(10, 10)
    expected = counts.sum(axis=1, keepdims=True) / 10
    assert (np.square(counts - expected) / expected).sum() < 150  # chi-squared with 90 degrees of freedom: 150 is 7e-5
    by_position = np.bincount(np.tile(np.arange(100), 1000) * 10 + drawn, minlength=1000)
    assert (np.square(by_position - 100) / 100).sum() < 900 + 4 * np.sqrt(1800)


@given(effort=st.lists(SHARES, min_size=6, max_size=6), error=SHARES, seed=SEEDS, client=st.integers(0, 5), new=SHARES)
def test_nobodys_labels_depend_on_another(effort, error, seed, client, new):
    partition = federation()
    before = labels(partition, effort, error, seed)
    after = labels(partition, [new if k == client else e for k, e in enumerate(effort)], error, seed)
    for other in set(range(6)) - {client}:
        assert (of(other, partition, before) == of(other, partition, after)).all()
    alone = Partition(partition.rows[: partition.starts[3]], partition.starts[:4])
    assert (labels(alone, effort[:3], error, seed) == before[: partition.starts[3]]).all()


@given(effort=st.lists(SHARES, min_size=6, max_size=6), error=SHARES, seed=SEEDS)
def test_blocks_make_no_difference(effort, error, seed):
    partition = federation()
    whole = labels(partition, effort, error, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", 20)
        assert (labels(partition, effort, error, seed) == whole).all()


@given(less=SHARES, more=SHARES, seed=SEEDS)
def test_more_effort_only_adds_honest_labels(less, more, seed):
    less, more = sorted((less, more))
    partition = federation()
    true, some, all_of_them = (
        TRUE[partition.rows],
        labels(partition, less, seed=seed),
        labels(partition, more, seed=seed),
    )
    assert ((all_of_them == some) | (all_of_them == true)).all()
    changed = np.add.reduceat(all_of_them != some, partition.starts[:-1])
    assert (changed <= np.rint(more * partition.sizes) - np.rint(less * partition.sizes)).all()


def test_effort_between_labels_that_share():
    partition = iid_partition(len(TRUE), np.full(500, 40), seed=1)
    guesses = labels(partition, 0)
    half = labels(partition, 0.5)
    true = TRUE[partition.rows]
    looked_for_sure = ((half == true) & (guesses != true)).reshape(500, 40)
    not_looked_for_sure = ((half != true) & (half == guesses)).reshape(500, 40)
    assert (looked_for_sure.sum(axis=1) <= 20).all()
    assert (not_looked_for_sure.sum(axis=1) <= 20).all()
    assert ((half == true) | (half == guesses)).all()
    assert looked_for_sure.mean() == pytest.approx(0.45, abs=0.01)
    assert (looked_for_sure.mean(axis=0) > 0.35).all()  # which samples is drawn: no position is favoured
    assert (looked_for_sure.mean(axis=0) < 0.55).all()


def test_errors_hit_wrong_classes_alike():
    partition = iid_partition(len(TRUE), np.full(1000, 100), seed=1)
    true = TRUE[partition.rows]
    made = labels(partition, 1, 0.2)
    assert (made != true).mean() == pytest.approx(0.2, abs=0.006)
    counts = np.bincount((made - true) % 10, minlength=10)[1:]
    expected = counts.sum() / 9
    assert (np.square(counts - expected) / expected).sum() < 32  # chi-squared with 8 degrees of freedom: 32 is 9e-5
    assert (labels(partition, 1, 1.0) != true).all()


def test_errors_concern_only_labels_made_by_looking():
    partition = federation()
    assert (labels(partition, 0, 1.0) == labels(partition, 0)).all()
    rates = [0, 0, 1, 0, 0, 0]
    wrong = labels(partition, 1, rates) != TRUE[partition.rows]
    assert [bool(of(k, partition, wrong).any()) for k in range(6)] == [False, False, True, False, False, False]
    assert of(2, partition, wrong).all()


@given(less=SHARES, more=SHARES, seed=SEEDS)
def test_a_lower_error_rate_only_mends_labels(less, more, seed):
    less, more = sorted((less, more))
    partition = federation()
    few, many = labels(partition, 1, less, seed), labels(partition, 1, more, seed)
    assert ((few == many) | (few == TRUE[partition.rows])).all()


def test_seeds_label_differently():
    partition = federation()
    assert (labels(partition, 0, seed=1) != labels(partition, 0, seed=2)).any()
    first, second = labels(Partition(np.zeros(200, int), [0, 100, 200]), 0).reshape(2, 100)
    assert (first != second).any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"effort": 2}, "labeling_effort is 2 for every client; it must be a number from 0 up to 1."),
        (
            {"effort": [1, -1, 1, 1, 1, 1]},
            "labeling_effort of client 1 is -1; it must be a number from 0 up to 1.",
        ),
        (
            {"effort": [1, 1]},
            "labeling_effort has shape (2,); it must be one number, or 6 numbers, one per client.",
        ),
        (
            {"effort": 1, "error_rate": np.nan},
            "error_rate is nan for every client; it must be a number from 0 up to 1.",
        ),
        ({"effort": 1, "classes": 0}, "classes is 0; it must be at least 1."),
    ],
)
def test_labeling_that_cannot_be(options, sentence):
    assert told(labels, federation(), **options) == sentence


def test_labels_that_do_not_fit():
    common = {"labeling_effort": 1, "classes": 1, "seed": 1}
    two = Partition([0, 4], [0, 1, 2])
    assert told(assigned_labels, [0, 0], two, **common) == ("true_labels has 2 labels; the partition wants 5 or more.")
    assert told(assigned_labels, [0] * 5, two, error_rate=0.1, **common) == (
        "error_rate is above 0 with 1 class; an error needs at least 2 classes."
    )
    assert (
        told(assigned_labels, [0.5] * 5, two, **common) == "true_labels has type float64; it must hold whole numbers."
    )
