"""Trainings in which one client lies, or two share labels: against the plain loop, which reads like the paper."""

from dataclasses import replace

import numpy as np
import pytest

from truthfl import Training
from truthfl.adversary.measure import MAX_LOSS, Case, coalition, make_split, most_labels, train_lies, train_pairs
from truthfl.adversary.strategy import ABSENCE, TRUTH, LiePoint, ReportKind
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, Partition, paper_partition
from truthfl.learning.data.samples import LabeledImages
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import Unlabeled
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.plain import train_plainly

DIGITS = small_digits()
MODEL = SoftmaxRegression(64, 10, 0.001)
TRAINING = Training(8, 1, 0.8)
BATCHES = np.array([12.0, 20.0, 16.0])
WHISPER = LiePoint(labels=0.0, rest=Unlabeled.DRAWN, batch=0.05, scale=0.02, last_scale=0.02)
LIES = [
    WHISPER,
    LiePoint(labels=0.4),
    LiePoint(labels=0.3, rest=Unlabeled.NEAREST, batch=2.0),
    LiePoint(labels=0.3, rest=Unlabeled.OWN_MODEL, scale=2.0, last_scale=0.1),
    LiePoint(labels=0.0, rest=Unlabeled.PREDICTED),
    LiePoint(report=ReportKind.ECHO, scale=1.4, noise=0.5).canonical(),
    LiePoint(report=ReportKind.GARBAGE, scale=0.5).canonical(),
    LiePoint(report=ReportKind.LAST_BIT).canonical(),
]


@pytest.fixture(scope="module")
def split():
    train, test = DIGITS.split_off(400, 0)
    federated = Federated(MODEL, train, paper_partition(train.labels, [80, 100, 60], seed=1), Training(1))
    return make_split(federated, test, TRAINING, seed=5)


def plain_loss(federated, test, behaviours, seed):
    params = train_plainly(federated, Profile(behaviours, BATCHES.astype(int)), seed)
    return MODEL.loss(params, test.images, test.labels)


@pytest.mark.parametrize("point", LIES, ids=lambda point: point.words)
def test_a_lie_is_trained_as_it_says(split, point):
    case = Case(1, 3)
    found = train_lies(split, BATCHES, [point], [case])
    lie = point.behaviour(BATCHES[1], 100)
    expected = plain_loss(split.federated, split.test, ["truthful", lie, "truthful"], 3)
    assert found.loss[0, 0] == pytest.approx(expected, abs=2e-5)
    echoes = point.report in (ReportKind.ECHO, ReportKind.GARBAGE)
    assert found.delivered[0, 0] == (7 / 8 if echoes else 1.0)  # there is nothing to repeat in the first round


def test_truth_and_absence_are_those_of_the_trainer(split):
    found = train_lies(split, BATCHES, [TRUTH, ABSENCE], [Case(0, 1), Case(2, 1)])
    assert (
        found.loss[0, 0]
        == found.loss[0, 1]
        == pytest.approx(plain_loss(split.federated, split.test, ["truthful"] * 3, 1), abs=2e-5)
    )
    without = plain_loss(split.federated, split.test, ["truthful", "truthful", "free rider"], 1)
    assert found.loss[1, 1] == pytest.approx(without, abs=2e-5)
    assert found.delivered.tolist() == [[1, 1], [0, 0]]


def test_runs_are_paired_by_seed_and_do_not_depend_on_what_else_is_trained(split):
    cases = [Case(client, seed) for client in range(3) for seed in (4, 5)]
    together = train_lies(split, BATCHES, [TRUTH, *LIES[:3], LiePoint(labels=1.3)], cases)
    for k, point in enumerate([TRUTH, *LIES[:3], LiePoint(labels=1.3)]):
        alone = train_lies(split, BATCHES, [point], cases[3:4])
        assert alone.loss[0, 0] == together.loss[k, 3]
    assert np.isnan(together.joined).all()


def test_more_labels_are_made_by_hand_on_samples_that_the_client_does_not_hold(split):
    federated = split.federated
    assert [len(rows) for rows in split.further] == [40, 50, 30]
    for client in range(3):
        further = split.further[client].tolist()
        assert not {*federated.partition.rows_of(client).tolist()} & {*further}
        assert len({*further}) == len(further)
        more = split.with_more_samples(client, round(1.3 * federated.partition.sizes[client]))
        assert more.partition.sizes[client] == round(1.3 * federated.partition.sizes[client])
        assert set(federated.partition.rows_of(client)) <= set(more.partition.rows_of(client))
        assert (more.weight == federated.weight).all()
        others = [other for other in range(3) if other != client]
        assert all((more.partition.rows_of(o) == federated.partition.rows_of(o)).all() for o in others)
    found = train_lies(split, BATCHES, [LiePoint(labels=1.3)], [Case(0, 2)])
    expected = plain_loss(split.with_more_samples(0, 104), split.test, ["truthful"] * 3, 2)
    assert found.loss[0, 0] == pytest.approx(expected, abs=2e-5)


def test_further_samples_are_of_the_clients_classes(split):
    labels = split.federated.data.labels
    for client in range(3):
        own = np.bincount(labels[split.federated.partition.rows_of(client)], minlength=10)
        more = np.bincount(labels[split.further[client]], minlength=10)
        assert np.abs(more - own / 2).max() <= 4  # rounded by class, and filled up
        assert more.sum() == own.sum() / 2


def test_somebody_who_holds_all_samples_cannot_label_more():
    everything = Partition(np.concatenate((np.arange(300), np.arange(100))), np.array([0, 300, 400]))
    images = LabeledImages(DIGITS.images[:300], DIGITS.labels[:300], DIGITS.classes)
    full = make_split(Federated(MODEL, images, everything, TRAINING), images, TRAINING, 0)
    assert [len(rows) for rows in full.further] == [0, 50]
    assert most_labels([300, 100], 300) == 1.0
    assert most_labels([250, 100], 300) == 1.2
    assert most_labels([100, 100], 300) == 1.5


def test_a_client_who_labels_more_uses_no_larger_batch_than_they_pay_for(split):
    """A batch is at most as large as the samples that the client was asked to label, and that is what it costs."""
    point = LiePoint(labels=1.5, batch=50.0)
    found = train_lies(split, BATCHES, [point], [Case(2, 2)])
    lie = replace(BEHAVIOURS["truthful"], batch_share=float(point.batch_size(16, 60)) / 16)
    expected = plain_loss(split.with_more_samples(2, 90), split.test, ["truthful", "truthful", lie], 2)
    assert found.loss[0, 0] == pytest.approx(expected, abs=2e-5)
    assert point.cost(0.0, 1.0, 16, 60) == 60


def test_a_diverging_lie_has_a_large_finite_loss(split):
    shout = LiePoint(labels=0.0, rest=Unlabeled.DRAWN, scale=1e30, last_scale=1e30)
    assert train_lies(split, BATCHES, [shout], [Case(0, 0)]).loss[0, 0] == MAX_LOSS


@pytest.mark.parametrize("coalitions", [False, True])
def test_one_who_copies_the_labels_of_another(split, coalitions):
    pairs, seeds = [(0, 2), (1, 0)], [3, 4]
    found = train_pairs(split, BATCHES, pairs, seeds, coalitions=coalitions)
    for number, (pair, seed) in enumerate(zip(pairs, seeds, strict=True)):
        shared = split.with_shared_labels(*pair)
        assert (shared.partition.rows_of(pair[1]) == split.federated.partition.rows_of(pair[0])).all()
        for way, federated in enumerate((split.federated, shared)):

            def loss(present, federated=federated, seed=seed):
                there = ["truthful" if client in present else "free rider" for client in range(3)]
                return pytest.approx(plain_loss(federated, split.test, there, seed), abs=2e-5)

            assert found.loss[way, number].tolist() == [loss({0, 1, 2})] * 2
            for k, client in enumerate(pair):
                assert found.without[way, number, k] == loss({0, 1, 2} - {client})
                others = set(np.flatnonzero(coalition(client, 3, seed)).tolist())
                if coalitions:
                    assert found.alone[way, number, k] == loss(others)
                    assert found.joined[way, number, k] == loss(others | {client})
        assert np.isnan(found.nobody[number]) != coalitions


def test_somebody_who_copies_few_samples_has_no_larger_batch_than_them(split):
    large = np.array([12.0, 100.0, 16.0])
    found = train_pairs(split, large, [(2, 1)], [3])
    small = np.array([12, 60, 16])
    params = train_plainly(split.with_shared_labels(2, 1), Profile(["truthful"] * 3, small), 3)
    expected = MODEL.loss(params, split.test.images, split.test.labels)
    assert found.loss[1, 0, 0] == pytest.approx(expected, abs=2e-5)


def test_coalitions_are_of_every_size_alike_and_leave_the_client_out(split):
    drawn = np.stack([coalition(1, 5, seed) for seed in range(50)])
    assert not drawn[:, 1].any()
    times = np.bincount(drawn.sum(axis=1))
    assert len(times) == 5
    assert times.min() >= 8
    cases = [Case(1, seed) for seed in range(4)]
    found = train_lies(split, BATCHES, [TRUTH, WHISPER], cases, coalitions=True)
    for number, case in enumerate(cases):
        members = coalition(1, 3, case.seed)
        there = ["truthful" if member else "free rider" for member in members]
        alone = plain_loss(split.federated, split.test, there, case.seed)
        joined = plain_loss(split.federated, split.test, [there[0], "truthful", there[2]], case.seed)
        assert (found.alone[number], found.joined[0, number]) == pytest.approx((alone, joined), abs=2e-5)
        assert np.isnan(train_lies(split, BATCHES, [WHISPER], [case], coalitions=True).alone).all()  # it is known
        untrained = MODEL.loss(MODEL.init(case.seed), split.test.images, split.test.labels)
        assert found.nobody[number] == pytest.approx(untrained)
