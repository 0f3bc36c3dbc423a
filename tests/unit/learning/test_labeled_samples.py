"""Samples as numbers: bytes or floats, checked, taken and split alike; models and digests that tell the two apart."""

import numpy as np
import pytest

from truthfl.errors import InputError
from truthfl.learning.data.samples import LabeledImages, LabeledSamples
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.compute import supports
from truthfl.ledger.canonical import test_set_digest as digest_of

ROWS = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
LABELS = np.arange(12) % 2


def samples(features=ROWS):
    return LabeledSamples(features, LABELS, ["a", "b"])


def test_samples_are_read_only_and_keep_their_type():
    made = samples()
    assert made.features.dtype == np.float32
    assert not made.features.flags.writeable
    taken = made.take([3, 1])
    assert (type(taken), taken.labels.tolist()) == (LabeledSamples, [1, 1])
    np.testing.assert_array_equal(taken.features, ROWS[[3, 1]])


def test_rows_and_pictures_are_split_by_the_same_draws():
    pictures = LabeledImages(np.arange(12 * 4, dtype=np.uint8).reshape(12, 2, 2), LABELS, ["a", "b"])
    rows = samples(pictures.features.reshape(12, 4))
    for of_rows, of_pictures in zip(rows.split_off(5, 7), pictures.split_off(5, 7), strict=True):
        np.testing.assert_array_equal(of_rows.features, of_pictures.features.reshape(-1, 4))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (ROWS.astype(np.float64), r"features has type float64; it must be uint8 \(0 to 255\) or float32."),
        (np.where(np.arange(36).reshape(12, 3) == 17, np.nan, ROWS), "features holds NaN or infinity at sample 5"),
        (ROWS[:, 0], r"features has shape \(12,\); it must be \(samples, numbers\)"),
        (ROWS[:5], "there are 5 samples and 12 labels; there must be one label per sample"),
    ],
    ids=range(4),
)
def test_features_that_do_not_do(features, message):
    with pytest.raises(InputError, match=message):
        samples(features)


def test_bytes_stand_for_shares_of_255_and_floats_for_themselves():
    model, params = SoftmaxRegression(4, 2, 1e-3), np.linspace(-1, 1, 10).astype(np.float32)
    as_bytes = np.array([[0, 51, 102, 255], [255, 0, 0, 153]], dtype=np.uint8)
    as_floats = (as_bytes / 255).astype(np.float32)
    np.testing.assert_allclose(model.scores(params, as_bytes), model.scores(params, as_floats), rtol=1e-6)
    assert supports(model, as_bytes)
    assert not supports(model, as_floats)


def test_the_digest_of_a_test_set_knows_the_type_of_its_numbers():
    as_bytes = ROWS.view(np.uint8)
    assert digest_of(ROWS, LABELS) != digest_of(as_bytes.reshape(12, 3, 4), LABELS)
