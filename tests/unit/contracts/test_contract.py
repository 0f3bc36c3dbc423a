"""The contract's own numbers, its spread and margin, and payoffs for a given loss."""

import numpy as np
import pytest

from truthfl import (
    InputError,
    Strategies,
    client_payoff,
    confidence_margin,
    feature_norm_bound,
    lceme,
    linear_regression_label_shift,
    paper_bound,
    pay_on_model,
    pay_standard_deviation,
    samples_for_share,
    server_payoff,
    softmax_label_shift,
    work_cost,
)
from truthfl.studies.reproduce.errata import example


@pytest.fixture
def job():
    clients, training, constants = example()
    model = paper_bound(clients, training, constants)
    return clients, model, training, lceme(clients, model, training, np.full(10, 20))


def test_reward_is_base_minus_slope_times_loss_plus_labeling_cost(job):
    _, model, _, contract = job
    assert contract.slope == pytest.approx(100 * 0.01 * 20**2 / model.sampling)
    assert contract.base == pytest.approx(contract.slope * model.truthful_loss(np.full(10, 20)) + 100 * 0.01 * 20)
    losses = np.array([0.0, 0.3, 2.0])
    assert contract.reward(losses).shape == (3, 10)
    assert contract.reward(losses)[1] == pytest.approx(contract.base - contract.slope * 0.3 + 50)
    assert contract.reward(0.3) == pytest.approx(contract.reward(losses)[1])


def test_payoffs_for_a_given_loss(job):
    clients, model, training, contract = job
    payoff = client_payoff(contract, clients, model, training, test_loss=0.4)
    assert payoff == pytest.approx(contract.reward(0.4) - 50 - 100 * 0.01 * 20)
    assert server_payoff(contract, model, loss_value=7, test_loss=0.4) == pytest.approx(
        -7 * 0.4 - contract.reward(0.4).sum()
    )
    lazy = Strategies(0.0, np.full(10, 5.0), 1.0)
    assert work_cost(clients, training, lazy) == pytest.approx(5.0)
    assert pay_on_model(contract, model, lazy) == pytest.approx(contract.reward(float(model.expected_loss(lazy))))


def test_the_server_pays_exactly_cost_on_the_model(job):
    _, model, _, contract = job
    assert pay_on_model(contract, model) == pytest.approx(70.0)
    loss = model.truthful_loss(contract.batch_size)
    assert server_payoff(contract, model, loss_value=3) == pytest.approx(-3 * loss - 700)


def test_standard_deviation_of_pay_is_that_of_drawn_test_samples(job):
    contract = job[3]
    losses = np.random.default_rng(0).exponential(0.5, size=(100_000, 4)).mean(axis=1)
    drawn = contract.reward(losses).std(axis=0)
    assert drawn == pytest.approx(pay_standard_deviation(contract, 0.25, test_samples=4), rel=0.02)


def test_samples_for_share_is_the_first_number_that_suffices(job):
    _, model, _, contract = job
    pay = pay_on_model(contract, model)
    enough = samples_for_share(contract, pay, 0.5, share=0.1)
    assert (pay_standard_deviation(contract, 0.5, test_samples=enough) <= 0.1 * pay * (1 + 1e-9)).all()
    assert (pay_standard_deviation(contract, 0.5, test_samples=enough - 1) > 0.1 * pay).any()


def test_confidence_margin_keeps_honest_pay_above_cost(job):
    """gap + F̂* estimated with a normal error: honest pay is at or above cost in the stated share of cases."""
    clients, model, training, _ = job
    error, batches = 0.05, np.full(10, 20)
    margin = confidence_margin(lceme(clients, model, training, batches), error, confidence=0.95)
    contract = lceme(clients, model, training, batches, margin=margin)
    true_losses = model.truthful_loss(batches) + np.random.default_rng(0).normal(0, error, 100_000)
    covered = (contract.reward(true_losses)[:, 0] >= 70.0).mean()
    assert covered == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda c: pay_standard_deviation(c, -1), "loss_variance is -1"),
        (lambda c: pay_standard_deviation(c, 1, test_samples=0), "test_samples is 0"),
        (lambda c: samples_for_share(c, np.zeros(10), 1, share=0.1), "expected_pay is not positive"),
        (lambda c: confidence_margin(c, 1, confidence=1.0), "confidence is 1;"),
    ],
)
def test_bad_numbers(job, call, told):
    with pytest.raises(InputError, match=told):
        call(job[3])


def test_label_shifts_of_no_data():
    with pytest.raises(InputError, match="classes is 1; it must be at least 2"):
        softmax_label_shift(1.0, 1)
    with pytest.raises(InputError, match="label_low must be the lower one"):
        linear_regression_label_shift(1.0, 2.0, 1.0)


def test_label_shift_of_linear_regression_against_drawn_gradients():
    """Erratum 5: 4YX is reached, the printed 2YX is exceeded, by labels −√Y and √Y; YX holds for one sign."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1000, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(3.0)
    w = generator.normal(size=5)

    def shift(y, other):
        difference = ((x @ w - y)[:, None] - (x @ w - other)[:, None]) * x
        return np.square(difference).sum(axis=1).max()

    y, other = generator.choice([-2.0, 2.0], size=(2, 1000))
    assert shift(y, other) == pytest.approx(linear_regression_label_shift(3.0, -2.0, 2.0)) == 4 * 4 * 3
    assert shift(y, other) > linear_regression_label_shift(3.0, -2.0, 2.0, as_printed=True) == 2 * 4 * 3
    assert shift(np.abs(y), np.zeros(1000)) == pytest.approx(linear_regression_label_shift(3.0, 0.0, 2.0)) == 4 * 3


def test_label_shift_of_softmax_against_drawn_gradients():
    generator = np.random.default_rng(0)
    classes, x = 7, generator.uniform(-1, 1, (20_000, 4))
    weights, bias = generator.normal(size=(4, classes)), generator.normal(size=classes)
    scores = np.exp(x @ weights + bias)
    likely = scores / scores.sum(axis=1, keepdims=True)
    y, other = generator.integers(classes, size=(2, len(x)))
    one_hot = np.eye(classes)

    def gradient(labels):
        residual = likely - one_hot[labels]
        return np.concatenate((x[:, :, None] * residual[:, None, :], residual[:, None, :]), axis=1).reshape(len(x), -1)

    shifts = np.square(gradient(y) - gradient(other)).sum(axis=1)
    exact = 2 * (1 - 1 / classes) * (np.square(x).sum(axis=1).mean() + 1)
    assert shifts.mean() == pytest.approx(exact, rel=0.02)
    bound = softmax_label_shift(feature_norm_bound(-1, 1, 4), classes)
    assert bound == pytest.approx(2 * 6 / 7 * 5)
    assert shifts.mean() <= bound
    assert softmax_label_shift(4.0, classes, bias=False) == pytest.approx(2 * 6 / 7 * 4)
