"""Constants: exact ones against independent computation, bounds against what they bound, estimates against formulas."""

import numpy as np
import pytest

from truthfl import InputError, Training
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models import convex
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.constants import honest_path, measure_constants, measure_gradients

DIGITS = small_digits()


@pytest.fixture(scope="module")
def federated():
    partition = paper_partition(DIGITS.labels, [60, 80, 100, 120], seed=1)
    return Federated(SoftmaxRegression(64, 10, 0.01), DIGITS, partition, Training(30, 1, 0.3))


@pytest.fixture(scope="module")
def measured(federated):
    return measure_constants(federated, batch_size=20)


def client_loss(federated, client, params):
    rows = federated.partition.rows_of(client)
    return federated.model.loss(params.astype(np.float32), DIGITS.images[rows], DIGITS.labels[rows])


def test_no_descent_from_the_optimum(federated, measured):
    """F* is the least loss: gradient descent from elsewhere comes near it and never below."""
    model, p = federated.model, federated.weight
    weight = np.repeat(p / federated.partition.sizes, federated.partition.sizes).astype(np.float32)
    images, labels = DIGITS.images[federated.partition.rows], federated.true_labels()
    w = np.zeros(model.size, dtype=np.float32)
    for _ in range(3000):
        w -= np.float32(1.0 / measured.smoothness.value) * model.weighted_gradient(w, images, labels, weight)
    reached = sum(p[i] * client_loss(federated, i, w) for i in range(4))
    assert reached == pytest.approx(measured.optimal_loss.value, abs=2e-4)
    assert reached >= measured.optimal_loss.value - 1e-6
    assert float(np.square(w).sum()) == pytest.approx(measured.initial_distance.value, rel=0.02)


def test_smoothness_and_strong_convexity_bound_the_curvature(federated, measured):
    generator = np.random.default_rng(0)
    for client in range(4):
        x = convex.inputs(federated.model, DIGITS.images[federated.partition.rows_of(client)])
        y = DIGITS.labels[federated.partition.rows_of(client)]
        for size in (0.1, 1.0):
            w, v = generator.normal(size=(2, 10, 65)) * size

            def gradient(matrix, x=x, y=y):
                p = convex.probabilities(matrix, x)
                p[np.arange(len(y)), y] -= 1.0
                return p.T @ x / len(x) + federated.model.penalty * matrix

            change = ((gradient(w) - gradient(v)) * (w - v)).sum() / np.square(w - v).sum()
            assert measured.strong_convexity.value - 1e-12 <= change <= measured.smoothness.value


def test_variance_and_shift_are_those_of_single_gradients(federated, measured):
    """Against per-sample gradients at the visited points, one by one."""
    model = federated.model
    one = np.ones(1, dtype=np.float32)
    variance, norm, shift = np.zeros(4), 0.0, np.zeros(4)
    for params in honest_path(federated, 20, 0):
        for client in range(4):
            rows = federated.partition.rows_of(client)
            single = np.array(
                [model.weighted_gradient(params, DIGITS.images[[r]], DIGITS.labels[[r]], one) for r in rows]
            )
            mean = single.mean(axis=0)
            variance[client] = max(variance[client], np.square(single - mean).sum(axis=1).mean())
            norm = max(norm, np.square(mean).sum())
            others = [
                np.mean(
                    [
                        np.square(model.weighted_gradient(params, DIGITS.images[[r]], np.array([k]), one) - g).sum()
                        for k in range(10)
                    ]
                )
                for r, g in zip(rows[:30], single[:30], strict=True)
            ]
            shift[client] = max(shift[client], np.mean(others))
    assert (measured.gradient_variance.value >= variance * (1 - 1e-5)).all()
    assert (measured.gradient_variance.value <= variance * 1.2).all()  # the optimum was looked at besides
    assert norm * (1 - 1e-5) <= measured.gradient_bound.value
    assert measured.label_shift.value == pytest.approx(shift.max(), rel=0.1)  # thirty samples each


def test_heterogeneity_is_what_a_client_loses_by_the_common_optimum(federated, measured):
    assert (measured.heterogeneity.value > 0).all()
    assert measured.heterogeneity.value.max() < measured.optimal_loss.value + 2.0
    alone = Federated(federated.model, DIGITS, paper_partition(DIGITS.labels, [200], seed=1), federated.training)
    assert measure_constants(alone).heterogeneity.value == pytest.approx([0.0], abs=1e-6)


def test_every_constant_says_what_it_is_and_how_it_was_found(federated, measured):
    for found in vars(measured).values():
        assert found.kind in ("exact", "bound", "estimate")
        assert len(found.how) > 10 or found.how == "the penalty"
    constants = measured.constants()
    assert constants.smoothness == measured.smoothness.value
    clients = measured.clients(federated, sample_cost=0.01, labeling_cost=[1, 2, 3, 4])
    assert clients.dataset_size.tolist() == [60, 80, 100, 120]
    assert clients.weight == pytest.approx(np.array([60, 80, 100, 120]) / 360)


def test_sampled_gradients_agree_with_the_formulas(federated, measured):
    sampled = measure_gradients(federated, batch_size=20)
    assert sampled.gradient_variance == pytest.approx(measured.gradient_variance.value, rel=0.35)
    assert sampled.label_shift == pytest.approx(measured.label_shift.value, rel=0.35)
    assert sampled.gradient_bound == pytest.approx(measured.gradient_bound.value, rel=0.35)


def test_what_is_not_convex_has_no_such_constants(federated):
    network = Federated(ConvolutionalNetwork(8, 8, 1, 2, 10), DIGITS, federated.partition, federated.training)
    with pytest.raises(InputError, match="ConvolutionalNetwork has no strongly convex loss"):
        measure_constants(network)
    found = measure_gradients(network, batch_size=20)
    assert (found.gradient_variance > 0).all()
    assert found.label_shift > 0
    with pytest.raises(InputError, match="penalty is 0"):
        measure_constants(Federated(SoftmaxRegression(64, 10), DIGITS, federated.partition, federated.training))
