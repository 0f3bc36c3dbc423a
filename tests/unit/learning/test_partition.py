"""Who holds what: the paper's split as a loop would make it, every choice alike, and the same whoever else is there."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.contracts.setting import Training
from truthfl.errors import InputError
from truthfl.learning.data import partition as module
from truthfl.learning.data.partition import (
    Federated,
    Partition,
    client_blocks,
    dirichlet_partition,
    iid_partition,
    owners_and_positions,
    paper_partition,
)
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.aggregation import ReportRule

LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 50))
SEEDS = st.integers(0, 2**64 - 1)
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)

SPLITS = {
    "paper": lambda sizes, seed: paper_partition(LABELS, sizes, seed=seed),
    "dirichlet": lambda sizes, seed: dirichlet_partition(LABELS, sizes, concentration=0.5, seed=seed),
    "iid": lambda sizes, seed: iid_partition(len(LABELS), sizes, seed=seed),
}
each_split = pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)


@each_split
@given(sizes=SIZES, seed=SEEDS)
def test_everybody_gets_as_many_as_they_should_all_different(split, sizes, seed):
    partition = split(sizes, seed)
    assert len(partition) == len(sizes)
    assert partition.sizes.tolist() == sizes
    assert partition.weights() == pytest.approx(np.array(sizes) / sum(sizes))
    for client, size in enumerate(sizes):
        rows = partition.rows_of(client)
        assert len(rows) == len(set(rows.tolist())) == size
        assert rows.min() >= 0
        assert rows.max() < len(LABELS)


@each_split
@given(sizes=SIZES, seed=SEEDS, other=st.integers(1, 40))
def test_what_a_client_holds_does_not_depend_on_the_others(split, sizes, seed, other):
    mine = split([*sizes, 17], seed).rows_of(len(sizes))
    changed = split([*(other for _ in sizes), 17, other], seed).rows_of(len(sizes))
    assert mine.tolist() == changed.tolist()


@each_split
@given(sizes=SIZES, seed=SEEDS)
def test_blocks_make_no_difference(split, sizes, seed):
    whole = split(sizes, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", 30)
        assert (split(sizes, seed).rows == whole.rows).all()


@each_split
def test_seeds_and_clients_differ(split):
    first, second = split([30, 30], 1), split([30, 30], 2)
    assert set(first.rows_of(0).tolist()) != set(second.rows_of(0).tolist())
    assert set(first.rows_of(0).tolist()) != set(first.rows_of(1).tolist())


@given(sizes=SIZES, seed=SEEDS, degree=st.floats(0, 1), classes=st.sampled_from([3, 10]))
def test_the_papers_split(sizes, seed, degree, classes):
    labels = LABELS % classes
    partition = paper_partition(labels, sizes, degree=degree, seed=seed, classes=classes)
    for i, size in enumerate(sizes, start=1):  # counted from 1, as in the paper
        held = labels[partition.rows_of(i - 1)]
        own = round(degree * size)
        assert (held[:own] == i % classes).all()


def test_the_rest_of_the_papers_split_comes_from_all_classes_alike():
    partition = paper_partition(LABELS, np.full(5000, 20), degree=0.4, seed=3)
    held = LABELS[partition.rows].reshape(5000, 20)
    assert (held[:, :8] == (np.arange(1, 5001) % 10)[:, None]).all()
    rest = held[9::10, 8:]  # clients 10, 20, …: of their class, 0, 42 remain for the 12 others, out of 492
    counts = np.bincount(rest.ravel(), minlength=10)
    expected = rest.size * np.array([42, *[50] * 9]) / 492
    assert (np.square(counts - expected) / expected).sum() < 34  # chi-squared with 9 degrees of freedom: 34 is 9e-5


@pytest.mark.parametrize(("count", "of"), [(2, 5), (4, 5), (5, 5), (1, 1), (1, 4)])
def test_every_choice_is_as_likely_as_every_other(count, of):
    """Drawn by drawing again (2 of 5), and by sorting (4 of 5)."""
    clients = 60_000
    rows = iid_partition(of, np.full(clients, count), seed=9).rows.reshape(clients, count)
    codes = (rows * 10 ** np.arange(count)).sum(axis=1)
    possible = [sum(row * 10**k for k, row in enumerate(choice)) for choice in permutations(range(of), count)]
    counts = np.array([(codes == code).sum() for code in possible])
    assert counts.sum() == clients
    freedom = max(len(possible) - 1, 1)
    expected = clients / len(possible)
    assert (np.square(counts - expected) / expected).sum() < freedom + 4 * np.sqrt(2 * freedom)


def test_the_rest_avoids_what_the_client_has_already():
    """One class of two is the client's; the others are drawn from what remains, all samples equally likely."""
    labels = np.array([0, 1] * 4)
    partition = paper_partition(labels, np.full(20_000, 4), degree=0.5, seed=2, classes=2)
    rows = partition.rows.reshape(-1, 4)[1::2]  # clients 2, 4, …: class 0
    assert (labels[rows[:, :2]] == 0).all()
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    counts = np.bincount(rows[:, 2], minlength=8)
    expected = len(rows) * np.where(labels == 0, 0.5, 1.0) / 6  # half of class 0 is taken
    assert (np.square(counts - expected) / expected).sum() < 30


def held_by_class(partition):
    """How often each sample is held, a row per class."""
    return np.bincount(partition.rows, minlength=500)[np.argsort(LABELS, kind="stable")].reshape(10, 50)


def test_a_pool_with_too_few_is_gone_through_again():
    assert (held_by_class(SPLITS["iid"]([2000], 4)) == 4).all()
    assert (np.ptp(held_by_class(SPLITS["dirichlet"]([2000], 4)), axis=1) <= 1).all()
    passes = iid_partition(50, [100], seed=4).rows.reshape(2, 50)
    assert (np.sort(passes, axis=1) == np.arange(50)).all()
    assert (passes[0] != passes[1]).any()
    own_only = held_by_class(paper_partition(LABELS, [125], degree=1.0, seed=4))
    assert set(own_only[1].tolist()) == {2, 3}
    assert own_only.sum() == 125
    both = held_by_class(SPLITS["paper"]([2000], 4))  # 800 of its class's 50; the other 1,200 go twice through all 500
    assert (both[1] >= 18).all()
    assert set(np.delete(both, 1, axis=0).ravel().tolist()) == {2, 3}


def test_dirichlet_concentration():
    def shares(concentration):
        partition = dirichlet_partition(LABELS, np.full(2000, 40), concentration=concentration, seed=5)
        client, _ = owners_and_positions(partition.sizes)
        return np.bincount(client * 10 + LABELS[partition.rows], minlength=20_000).reshape(2000, 10) / 40

    assert shares(1e-4).max(axis=1).mean() > 0.99
    assert shares(1e4).max(axis=1).mean() < 0.25
    for concentration in (0.1, 1.0):
        found = shares(concentration)
        assert found.mean(axis=0) == pytest.approx(np.full(10, 0.1), abs=0.02)
        variance = 0.1 * 0.9 / (10 * concentration + 1)  # of a share; drawing 40 samples adds to it
        expected = variance + (0.1 * 0.9 - variance) / 40
        assert found.var(axis=0).mean() == pytest.approx(expected, rel=0.1)


def test_dirichlet_knows_only_classes_that_occur():
    labels = np.array([3, 3, 7, 10**9] * 5)
    partition = dirichlet_partition(labels, [9, 4], concentration=1.0, seed=1)
    assert partition.sizes.tolist() == [9, 4]


def test_many_clients():
    partition = paper_partition(LABELS, np.full(20_000, 60), seed=1)
    assert len(partition) == 20_000
    assert (np.diff(np.sort(partition.rows.reshape(-1, 60), axis=1), axis=1) > 0).all()


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 100))
def test_blocks_cover_everybody_once_and_fit(sizes, limit):
    starts = np.concatenate([[0], np.cumsum(sizes)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLES_PER_BLOCK", limit)
        blocks = list(client_blocks(starts))
    assert [k for first, last in blocks for k in range(first, last)] == list(range(len(sizes)))
    assert all(starts[last] - starts[first] <= limit or last == first + 1 for first, last in blocks)


def test_numbering():
    owner, position = owners_and_positions(np.array([2, 0, 3]))
    assert owner.tolist() == [0, 0, 2, 2, 2]
    assert position.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([], "sizes has shape (0,); it must be a list with one whole number per client."),
        (5, "sizes has shape (); it must be a list with one whole number per client."),
        ([5, 0], "sizes of client 1 is 0; it must be a whole number, at least 1."),
        ([5, 2.5], "sizes of client 1 is 2.5; it must be a whole number."),
        ([5, np.nan], "sizes of client 1 is nan; it must be a whole number, at least 1 and at most 1e+15."),
        ([[5], [5, 5]], "sizes has rows of different lengths; they must all be of one length."),
    ],
)
@each_split
def test_sizes_that_cannot_be_used(split, sizes, sentence):
    assert told(split, sizes, 1) == sentence


def test_other_things_that_cannot_be_used():
    assert told(paper_partition, LABELS, [5], degree=1.5, seed=1) == "degree is 1.5; it must be from 0 to 1."
    assert told(paper_partition, LABELS, [5], degree=-1, seed=1) == (
        "degree is -1; it must be a finite number, at least 0."
    )
    assert told(paper_partition, LABELS, [5], seed=1, classes=5).endswith("it must be from 0 to 4.")
    assert told(paper_partition, LABELS / 2, [5], seed=1) == "labels has type float64; it must hold whole numbers."
    assert told(paper_partition, [0, 1, 3], [5, 5, 5], seed=1, classes=4) == (
        "labels has no sample of class 2, of which client 1 needs 2; every class must have a sample."
    )
    assert told(dirichlet_partition, LABELS, [5], concentration=0, seed=1) == (
        "concentration is 0; it must be a positive finite number."
    )
    assert told(iid_partition, 0, [5], seed=1) == "count is 0; it must be at least 1."


def test_custom_partitions():
    partition = Partition([4, 4, 0], [0, 1, 3])
    assert partition.rows_of(1).tolist() == [4, 0]
    assert told(partition.rows_of, 2) == "client is 2; it must be from 0 to 1."
    assert told(partition.rows_of, -1) == "client is -1; it must be from 0 to 1."
    for starts in ([0], [0, 2], [1, 3], [0, 2, 2, 3], [0, 2, 1, 3]):
        assert told(Partition, [1, 2, 3], starts) == (
            "starts does not divide 3 rows among clients; it must rise from 0 to 3, so that everybody has a sample."
        )
    assert told(Partition, [1, -2], [0, 2]).startswith("rows at position 1 is -2; ")
    with pytest.raises(ValueError, match="read-only"):
        partition.rows[0] = 1


def test_replace_keeps_the_clients_weights_and_other_clients_have_their_own():
    data = LabeledSamples(np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 0, 1]), ["a", "b"])
    model, rule = SoftmaxRegression(2, 2), ReportRule("median")
    federated = Federated(
        model, data, Partition([0, 1], [0, 1, 2]), Training(3), weight=[0.2, 0.8], participation=0.5, rule=rule
    )
    longer = replace(federated, training=Training(9), partition=Partition([0, 1, 2], [0, 1, 3]))
    assert (longer.training.rounds, longer.rule, longer.weight.tolist()) == (9, rule, [0.2, 0.8])
    assert longer.participation.tolist() == [0.5, 0.5]
    others = federated.of_others(Partition([0, 1, 2, 3], [0, 1, 4]))
    assert (others.rule, others.weight.tolist(), others.participation.tolist()) == (rule, [0.25, 0.75], [1, 1])
    with pytest.raises(InputError, match="the partition contains sample 4; the data have 4"):
        replace(federated, partition=Partition([0, 4], [0, 1, 2]))
