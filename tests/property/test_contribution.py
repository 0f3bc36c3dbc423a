"""Shapley and leave-one-out values: against their definition, their axioms, and each other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.mechanisms import federations
from truthfl import (
    InputError,
    Strategies,
    flat_pay,
    leave_one_out_drops,
    leave_one_out_pay,
    model_coalition_loss,
    observe,
    paper_bound,
    pay_on_model,
    shapley_drops,
    shapley_share_pay,
)
from truthfl.contracts.baselines import _monte_carlo
from truthfl.studies.reproduce.errata import example

pytestmark = pytest.mark.properties


def random_game(count, seed):
    """Any loss for any coalition."""
    table = np.random.default_rng(seed).uniform(0, 10, 1 << count)
    return lambda members: table[members @ (1 << np.arange(count))]


def shapley_by_definition(loss, count):
    """The mean, over all orders of arrival, of what each one's arrival takes off the loss."""
    total = np.zeros(count)
    orders = list(itertools.permutations(range(count)))
    for order in orders:
        members = np.zeros((1, count), dtype=bool)
        for client in order:
            before = loss(members)[0]
            members[0, client] = True
            total[client] += before - loss(members)[0]
    return total / len(orders)


@given(st.integers(1, 5), st.integers(0, 2**32))
def test_exact_shapley_is_the_mean_over_all_orders(count, seed):
    loss = random_game(count, seed)
    found = shapley_drops(loss, count)
    assert found.drop == pytest.approx(shapley_by_definition(loss, count))
    nobody, everybody = loss(np.array([[False] * count, [True] * count]))
    assert found.drop.sum() == pytest.approx(nobody - everybody)


def test_monte_carlo_is_within_its_stated_error_of_the_exact_values():
    loss = random_game(12, 3)
    exact = shapley_drops(loss, 12)
    drawn = [_monte_carlo(loss, 12, 400, seed) for seed in range(60)]
    errors = np.array([(one.drop - exact.drop) / one.standard_error for one in drawn])
    assert 0.85 < np.sqrt(np.mean(np.square(errors))) < 1.15  # the errors are as large as stated, no more, no less


def test_beyond_twelve_clients_the_error_is_stated_and_shares_still_add_up():
    weights = np.arange(1.0, 16.0)

    def loss(members):
        return 1.0 / (1.0 + members @ weights)

    found = shapley_drops(loss, 15, permutations=500, seed=1)
    assert (found.standard_error > 0).all()
    assert found.drop.sum() == pytest.approx(1.0 - 1.0 / (1.0 + weights.sum()))
    again = shapley_drops(loss, 15, permutations=500, seed=1)
    assert (found.drop == again.drop).all()
    with pytest.raises(InputError, match="permutations is 1"):
        shapley_drops(loss, 15, permutations=1)


@given(federations(max_clients=7), st.integers(0, 2**32))
def test_on_the_loss_model_both_values_are_the_own_drop(federation, seed):
    """The game is additive there; enumeration of its coalitions says the same as the shortcut."""
    generator = np.random.default_rng(seed)
    count = len(federation.clients)
    played = Strategies(
        generator.integers(0, 2, count), generator.integers(1, 50, count), generator.uniform(0, 2, count)
    )
    game = model_coalition_loss(federation.model, played)
    enumerated = shapley_drops(lambda members: game(members), count).drop
    scale = 1e-9 * (abs(game.loss_with_all) + np.abs(game.drop).sum())
    assert enumerated == pytest.approx(game.drop, abs=scale)
    assert shapley_drops(game, count).drop == pytest.approx(game.drop)
    assert leave_one_out_drops(lambda members: game(members), count) == pytest.approx(game.drop, abs=scale)
    absent = Strategies(1.0, np.where(np.arange(count) == 0, 1e300, played.batch_size), np.arange(count) != 0)
    honest = Strategies(1.0, played.batch_size, 1.0)
    assert float(federation.model.expected_loss(absent)) == pytest.approx(
        float(model_coalition_loss(federation.model, honest)(np.arange(count) != 0))
    )


@given(federations())
def test_baselines_pay_honest_work_its_cost_in_all(federation):
    clients, model, training = federation.setting
    batches = clients.dataset_size.astype(float)
    cost = flat_pay(clients, model, training, batches).amount.sum()
    if (model.reporting > model.sampling / batches).any():
        assert pay_on_model(shapley_share_pay(clients, model, training, batches), model).sum() == pytest.approx(cost)
    if (model.reporting - model.sampling / batches).sum() > 0:
        paid = pay_on_model(leave_one_out_pay(clients, model, training, batches), model)
        assert paid.sum() == pytest.approx(cost, rel=1e-6)
    else:
        with pytest.raises(InputError, match="leave-one-out pay needs it to be positive"):
            leave_one_out_pay(clients, model, training, batches)


def test_a_rule_that_pays_for_contributions_must_see_them():
    clients, training, constants = example()
    rule = shapley_share_pay(clients, paper_bound(clients, training, constants), training, 20)
    with pytest.raises(InputError, match="shapley share pays by shapley contributions; give coalition_loss"):
        observe(rule, test_loss=0.5, claimed_batch_size=20)
    job = {"test_loss": 0.5, "claimed_batch_size": 20}
    seen = observe(rule, **job, coalition_loss=lambda members: -1.0 * members.sum(axis=1))
    assert rule.pay(seen) == pytest.approx(rule.total / 10)
    useless = observe(rule, **job, coalition_loss=lambda members: 1.0 * members.sum(axis=1))
    assert rule.pay(useless).sum() == 0.0  # nobody lowered the loss: nobody is paid, nothing is divided by 0
