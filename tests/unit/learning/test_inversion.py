"""The attacks that `benchmarks.inversion` measures find what they say; noise hides it."""

import numpy as np
import pytest
from benchmarks.attacks.inversions import LastLayer, from_first_report, from_solo_model, likeness, membership

from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.models.model import log_softmax
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.solo import Recipe, train_alone
from truthfl.learning.training.local_training import local_model

DIGITS = bundled_mnist()
ROWS = np.concatenate([np.flatnonzero(DIGITS.labels == label)[: 1 + label] for label in range(10)])
IMAGES, LABELS = DIGITS.images[ROWS], DIGITS.labels[ROWS]
MODEL = SoftmaxRegression(784, 10)


def _attacked(model):
    """Label counts and pictures from one gradient over all samples, drawn once each."""
    start, count = MODEL.init(0), len(LABELS)
    layer = LastLayer.of(MODEL, DIGITS.images[:100], start)
    if isinstance(model, PrivateModel):
        work = {"client": 0, "round_": 0, "batch_size": count, "local_steps": 1, "step_size": 0.5, "seed": 0}
        change = local_model(model, start, IMAGES, LABELS, **work) - start
    else:
        weight = np.full(count, 1 / count, dtype=np.float32)
        change = -0.5 * model.weighted_gradient(start, IMAGES, LABELS, weight)
    return from_first_report(layer, change, 0.5, count, np.full(10, 0.1))


def test_the_first_report_tells_label_counts_and_single_pictures():
    counts, pictures = _attacked(MODEL)
    assert counts.tolist() == list(range(1, 11))
    like = likeness(pictures, IMAGES.reshape(len(IMAGES), -1) / 255)
    assert like[0] > 0.95  # of the class that has one picture
    assert like.mean() > 0.7


def test_noise_hides_them():
    counts, pictures = _attacked(PrivateModel(MODEL, 1.0, 2.0))
    assert (counts == np.arange(1, 11)).mean() < 0.5
    assert likeness(pictures, IMAGES.reshape(len(IMAGES), -1) / 255).max() < 0.9


def test_a_solo_model_tells_who_trained_it_and_noise_hides_it():
    recipe, held = Recipe(150, 32, 1.0, 0.0, 0), (IMAGES, LABELS)
    others = np.concatenate([np.flatnonzero(DIGITS.labels == label)[50 : 51 + label] for label in range(10)])
    away = DIGITS.images[others], DIGITS.labels[others]
    told = membership(MODEL, train_alone(MODEL, *held, recipe, 0), held, away)
    private = PrivateModel(MODEL, 1.0, 20.0)
    hidden = np.mean([membership(private, train_alone(private, *held, recipe, k), held, away) for k in range(4)])
    assert told > 0.8
    assert abs(hidden - 0.5) < 0.11  # two standard errors with 55 samples of each kind
    layer = LastLayer.of(MODEL, DIGITS.images[:100], MODEL.init(0))
    weight, _ = from_solo_model(layer, MODEL.init(0), train_alone(MODEL, *held, Recipe(1, 2000, 1.0, 0.0, 0), 0))
    assert np.corrcoef(weight, np.bincount(LABELS))[0, 1] > 0.95


def test_probabilities_at_the_start_are_equal():
    assert np.exp(log_softmax(MODEL.scores(MODEL.init(0), IMAGES))) == pytest.approx(0.1)
