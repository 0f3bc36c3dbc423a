"""Labels derived from those made by hand: by the nearest of them, or by the client's own model."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truthfl.contracts.setting import Training
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, Partition, paper_partition
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people import labels as derived
from truthfl.learning.people.behaviour import Behaviour, Unlabeled
from truthfl.learning.people.labels import derived_labels, nearest_labels, own_model_labels
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.local_training import samples_by_hand
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train

DIGITS = small_digits()
MODEL = SoftmaxRegression(64, 10, 0.01)
HOW = [Unlabeled.OWN_MODEL, Unlabeled.NEAREST]


def own(unlabeled, effort=0.2, **traits):
    honest = {"labels_honestly": False, "computes_honestly": True, "reports_honestly": True}
    return Behaviour("my own", "Derives.", **honest, unlabeled=unlabeled, labeling_effort=effort, **traits)


def federation(behaviours, training=Training(20, 1, 0.5)):  # noqa: B008  (it is frozen)
    partition = paper_partition(DIGITS.labels, 60 + 20 * np.arange(len(behaviours)), seed=3)
    return Federated(MODEL, DIGITS, partition, training), Profile(behaviours, 20)


@given(st.data(), st.integers(1, 6), st.integers(0, 9), st.sampled_from([1, 3, 1 << 22]))
def test_the_nearest_is_the_nearest_and_of_several_the_first(data, known, others, at_once):
    few_values = st.one_of(st.sampled_from([0, 1, 255]), st.integers(0, 255))
    here = data.draw(arrays(np.uint8, (known, 2, 2, 1), elements=few_values))
    there = data.draw(arrays(np.uint8, (others, 2, 2, 1), elements=few_values))
    expected = []
    for picture in there.astype(int):
        distances = [int(np.square(picture - one).sum()) for one in here.astype(int)]
        expected.append(distances.index(min(distances)))
    before = derived.MOST_DISTANCES
    try:
        derived.MOST_DISTANCES = at_once
        assert nearest_labels(here, np.arange(known), there).tolist() == expected
    finally:
        derived.MOST_DISTANCES = before


@pytest.mark.parametrize("model", [MODEL, ConvolutionalNetwork(8, 8, 1, 4, 10)], ids=["softmax", "cnn"])
def test_the_clients_own_model_is_trained_on_all_their_labeled_samples_in_every_step(model):
    known, labels, others = DIGITS.images[:50], DIGITS.labels[:50], DIGITS.images[50:400]
    params = model.init(4)
    for _ in range(30):
        gradients = [model.weighted_gradient(params, known[k : k + 1], labels[k : k + 1], np.ones(1, np.float32))
                     for k in range(50)]  # fmt: skip
        params = params - np.float32(0.5) * np.mean(gradients, axis=0, dtype=np.float32)
    found = own_model_labels(model, known, labels, others, steps=30, step_size=0.5, seed=4)
    assert np.mean(found == model.predict(params, others)) > 0.99  # sums in another order
    assert np.mean(found == DIGITS.labels[50:400]) > 0.5
    untrained = own_model_labels(model, known, labels, others, steps=0, step_size=0.5, seed=4)
    assert (untrained == model.predict(model.init(4), others)).all()


@pytest.mark.parametrize("unlabeled", HOW)
def test_a_profile_derives_what_each_client_would_alone_and_leaves_the_other_clients_labels(unlabeled):
    kind = own(unlabeled, error_rate=0.3)
    federated, profile = federation(["lazy labeler", kind, "truthful", kind])
    labels, before = profile.labels(federated, 5), profile.labels_before_derived(federated, 5)
    assert (before == Profile([replace(kind, unlabeled=Unlabeled.DRAWN) if profile[i] is kind else profile[i]
                               for i in range(4)], 20).labels(federated, 5)).all()  # fmt: skip
    for client in range(4):
        its = federated.samples_of(client)
        if client in (0, 2):
            assert (labels[its] == before[its]).all()
            continue
        by_hand = samples_by_hand(kind, len(before[its]), client, 5)
        assert 0 < by_hand.sum() < len(by_hand)
        assert (labels[its][by_hand] == before[its][by_hand]).all(), "errors stay"
        images, hidden = DIGITS.images[federated.partition.rows_of(client)], np.where(by_hand, before[its], -1)
        alone = derived_labels(unlabeled, MODEL, images, hidden, by_hand, rounds=20, step_size=0.5, seed=5)
        assert (labels[its] == alone).all()
        assert (hidden[~by_hand] == -1).all()
        assert np.mean(labels[its] != before[its]) > 0.5


@pytest.mark.parametrize("unlabeled", HOW)
def test_wrong_labels_made_by_hand_are_what_is_learned_from(unlabeled):
    federated, _ = federation(["truthful"] * 3)
    right, wrong = (Profile([own(unlabeled, error_rate=rate)] * 3, 20).labels(federated, 5) for rate in (0.0, 1.0))
    true = federated.true_labels()
    others = Profile([own(unlabeled)] * 3, 20).not_by_hand(federated.partition, unlabeled, 5)
    assert np.mean(right[others] == true[others]) > 0.5
    assert np.mean(wrong[others] == true[others]) < np.mean(right[others] == true[others]) - 0.25


@pytest.mark.parametrize("unlabeled", HOW)
def test_one_sample_is_labeled_at_least(unlabeled):
    kind = own(unlabeled, effort=0.001)
    federated = Federated(MODEL, DIGITS, Partition([5, 6, 7], [0, 3]), Training(3, 1, 0.3))
    by_hand = samples_by_hand(kind, 3, 0, 1)
    assert by_hand.sum() == 1
    labels = Profile([kind], 20).labels(federated, 1)
    assert (labels == DIGITS.labels[5:8][by_hand]).all()
    assert kind.labeling_effort_for(3) == pytest.approx(1 / 3)
    assert kind.cost(100.0, 0.0, 20) == pytest.approx(0.1)
    full = own(unlabeled, effort=1.0)
    assert (Profile([full], 20).labels(federated, 1) == DIGITS.labels[5:8]).all()


@pytest.mark.parametrize("unlabeled", Unlabeled)
def test_an_effort_that_is_rounded_to_all_samples_leaves_nothing_to_be_labeled_otherwise(unlabeled):
    kind = own(unlabeled, effort=0.9)
    federated = Federated(MODEL, DIGITS, Partition([5, 6, 7], [0, 3]), Training(3, 1, 0.3))
    true, everything = DIGITS.labels[5:8], np.ones(3, dtype=bool)
    assert (Profile([kind], 20).labels(federated, 1) == true).all()
    assert (derived_labels(unlabeled, MODEL, DIGITS.images[5:8], true, everything, rounds=3, step_size=0.3, seed=1)
            == true).all()  # fmt: skip
    honest = train(federated, Profile(["truthful"], 20), 1).params[0]
    assert (train(federated, Profile([kind], 20), 1).params[0] == honest).all()
    assert np.abs(train_plainly(federated, Profile([kind], 20), 1) - honest).max() < 1e-6


def test_a_model_that_diverges_labels_without_a_warning():
    federated, profile = federation([own(Unlabeled.OWN_MODEL), "truthful"], Training(40, 1, 1e30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = profile.labels(federated, 5)
        with np.errstate(all="raise"):
            assert (profile.labels(federated, 5) == labels).all()
    assert labels.min() >= 0
    assert labels.max() < 10


def test_the_clients_own_models_steps_are_those_of_the_run():
    """As many as rounds, and as long as the run's, whether that is the federation's or the run's own."""
    kind = own(Unlabeled.OWN_MODEL, effort=0.3)
    federated, profile = federation([kind, "truthful"], Training(6, 1, 0.3))
    small, large = (replace(federated, training=Training(6, 1, step)) for step in (0.05, 5.0))
    assert (profile.labels(small, 7) != profile.labels(large, 7)).any()
    assert (profile.labels(federated, 7, step_size=5.0) == profile.labels(large, 7)).all()
    many = train(federated, profile, [7, 7], step_sizes=[0.05, 5.0]).params
    for run, alike in enumerate((small, large)):
        assert (many[run] == train(alike, profile, 7).params[0]).all()
    longer = replace(federated, training=Training(60, 1, 0.3))
    assert (profile.labels(federated, 7) != profile.labels(longer, 7)).any()


@pytest.mark.parametrize("unlabeled", HOW)
def test_labels_that_are_given_are_trained_with_as_they_are(unlabeled):
    federated, profile = federation([own(unlabeled), "truthful"])
    given_labels = (federated.true_labels() + 1) % 10
    fast = train(federated, profile, 7, labels=given_labels).params[0]
    honest = train(federated, Profile(["truthful"] * 2, 20), 7, labels=given_labels).params[0]
    assert (fast == honest).all()
    assert np.abs(fast - train_plainly(federated, profile, 7, labels=given_labels)).max() < 1e-6
