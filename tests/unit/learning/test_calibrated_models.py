"""Calibration: it never makes the fitted loss worse, does not depend on the scores' scale, and reads no nonsense."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfl import InputError
from truthfl.learning.calibration import (
    MOST_SAMPLES,
    ScoreCalibration,
    calibration_of,
    cross_calibrated,
    fit_calibration,
)
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.solo import solo_mean

CLASSES = tuple("abcd")


class Scoring:
    """A model whose parameters are the scores of its samples, whose features are their numbers."""

    def scores(self, params, features):
        return params.reshape(-1, len(CLASSES))[features[:, 0].astype(int)]


def samples(labels):
    return LabeledSamples(np.arange(len(labels), dtype=np.float32)[:, None], np.asarray(labels), CLASSES)


def plain_loss(scores, labels):
    wide = scores.astype(np.float64)
    wide = wide - wide.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(wide).sum(axis=1)) - wide[np.arange(len(labels)), labels]))


def drawn(seed, count, sharpness, scale, bias):
    """Labels, and scores that know something of them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), count)
    scores = sharpness * np.eye(len(CLASSES))[labels] + rng.standard_normal((count, len(CLASSES)))
    return labels, (scale * (scores + bias * rng.standard_normal(len(CLASSES)))).astype(np.float32)


KNOWN = st.builds(
    drawn,
    st.integers(0, 2**32 - 1),
    st.integers(20, 300),
    st.floats(0.0, 4.0),
    st.floats(0.01, 100.0),
    st.floats(0.0, 5.0),
)


@given(KNOWN)
@settings(max_examples=60, deadline=None)
def test_it_is_never_worse_than_no_calibration_on_the_samples_to_which_it_was_fitted(known):
    """Up to the small ridge on the biases."""
    labels, scores = known
    fitted = fit_calibration(Scoring(), scores.ravel(), samples(labels))
    loss, accuracy = fitted.loss_and_accuracy(scores, labels)
    assert loss <= plain_loss(scores, labels) + 5e-4 * (1.0 + np.square(fitted.biases).sum())
    assert loss <= np.log(len(CLASSES)) + 1e-3  # nor than to know nothing
    assert loss == pytest.approx(fitted.losses(scores, labels).mean())
    assert 0.0 <= accuracy <= 1.0
    same = ScoreCalibration(1.0, (0.0,) * len(CLASSES))
    assert same.loss_and_accuracy(scores, labels)[0] == pytest.approx(plain_loss(scores, labels), rel=1e-6)


@given(KNOWN, st.integers(-8, 8), st.floats(-50.0, 50.0))
@settings(max_examples=60, deadline=None)
def test_the_scale_of_scores_does_not_matter(known, power, more):
    """Nor what is added to all scores of a sample."""
    labels, scores = known
    other = (2.0**power * scores.astype(np.float64) + more).astype(np.float64)
    one, two = (fit_calibration(Scoring(), own.ravel(), samples(labels)) for own in (scores.astype(np.float64), other))
    assert two.factor == pytest.approx(one.factor / 2.0**power, rel=1e-5, abs=1e-9)
    np.testing.assert_allclose(two.log_probabilities(other), one.log_probabilities(scores), atol=1e-5)


def test_biases_are_for_classes_that_the_model_scores_too_high():
    labels, scores = drawn(3, 4000, 2.0, 1.0, 0.0)
    high = scores + np.float32([0.0, 3.0, 0.0, 0.0])
    fitted, usual = (fit_calibration(Scoring(), own.ravel(), samples(labels)) for own in (high, scores))
    assert np.argmin(fitted.biases) == 1
    assert fitted.loss_and_accuracy(high, labels)[0] == pytest.approx(
        usual.loss_and_accuracy(scores, labels)[0], abs=0.01
    )
    assert fitted.loss_and_accuracy(high, labels)[1] > 1.1 * np.mean(high.argmax(axis=1) == labels)


def test_of_many_samples_some_are_enough():
    labels, scores = drawn(4, 3 * MOST_SAMPLES, 2.0, 5.0, 1.0)
    fitted = fit_calibration(Scoring(), scores.ravel(), samples(labels))
    every_third = np.linspace(0, len(labels) - 1, MOST_SAMPLES).astype(int)
    assert fitted == fit_calibration(Scoring(), scores[every_third].ravel(), samples(labels[every_third]))


def test_a_model_that_says_nothing_gets_the_class_frequencies():
    labels = np.repeat(np.arange(4), [40, 30, 20, 10])
    for value in (0.0, np.nan, 7.0):
        scores = np.full((100, 4), value, dtype=np.float32)
        fitted = fit_calibration(Scoring(), scores.ravel(), samples(labels))
        assert np.isfinite([fitted.factor, *fitted.biases]).all()
        if np.isfinite(value):
            found = np.exp(fitted.log_probabilities(scores))[0]
            np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1], atol=2e-3)


@given(KNOWN)
@settings(max_examples=30, deadline=None)
def test_its_document_is_read_back_to_the_bit(known):
    labels, scores = known
    fitted = fit_calibration(Scoring(), scores.ravel(), samples(labels))
    assert calibration_of(json.loads(json.dumps(fitted.document())), 4) == fitted


@pytest.mark.parametrize(
    "document",
    [
        None, [], "1", {}, {"factor": 1.0}, {"biases": [0.0]}, {"factor": 1.0, "biases": [0.0], "more": 1},
        {"factor": "1", "biases": [0.0]}, {"factor": 1.0, "biases": 0.0}, {"factor": 1.0, "biases": ["0"]},
        {"factor": float("nan"), "biases": [0.0]}, {"factor": 1.0, "biases": [float("inf")]},
        {"factor": None, "biases": [0.0]}, {"factor": 1.0, "biases": {"a": 1.0}}, {"factor": [1.0], "biases": [0.0]},
        {"factor": True, "biases": [0.0]}, {"factor": 10**400, "biases": [0.0]}, {"factor": 1.0, "biases": []},
        {"factor": 1.0, "biases": [0.0, 0.0]},
    ],
)  # fmt: skip
def test_what_is_no_calibration_is_one_sentence(document):
    with pytest.raises(InputError, match="this is no calibration"):
        calibration_of(document, 1)


def test_pilot_models_are_tested_on_the_half_to_which_the_calibration_was_not_fitted():
    """By hand; and unlike a calibration fitted on all samples, random scores gain nothing by it."""
    (labels, known), (_, random) = drawn(5, 201, 1.5, 3.0, 1.0), drawn(6, 201, 0.0, 1.0, 0.0)
    models = np.stack([known.ravel(), random.ravel()])
    loss, accuracy = cross_calibrated(Scoring(), models, samples(labels))
    for number, scores in enumerate((known, random)):
        halves = []
        for fit, tested in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            own = fit_calibration(Scoring(), scores[fit].ravel(), samples(labels[fit]))
            halves.append((own.losses(scores[tested], labels[tested]), own.log_probabilities(scores[tested])))
        assert loss[number] == pytest.approx(np.concatenate([one for one, _ in halves]).mean())
        right = [np.sum(p.argmax(axis=1) == labels[1 - k :: 2]) for k, (_, p) in enumerate(halves)]
        assert accuracy[number] == pytest.approx(sum(right) / 201)
    assert fit_calibration(Scoring(), models[1], samples(labels)).loss_and_accuracy(random, labels)[0] < loss[1]


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_mean_of_solo_models_is_the_weighted_sum_in_their_order(count, size, seed):
    rng = np.random.default_rng(seed)
    models, weight = rng.standard_normal((count, size)).astype(np.float32), rng.uniform(0.1, 1.0, count)
    weight /= weight.sum()
    mean = solo_mean(models, weight.tolist())
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, weight @ models.astype(np.float64), rtol=1e-6, atol=1e-7)
    assert (mean <= models.max(axis=0) + 1e-6).all()
    assert (mean >= models.min(axis=0) - 1e-6).all()
    np.testing.assert_array_equal(solo_mean(models[:1], [1.0]), models[0])
    with pytest.raises(ValueError, match="zip"):
        solo_mean(models, [*weight.tolist(), 0.0])
