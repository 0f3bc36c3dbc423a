"""Truthfulness and individual rationality, over random federations; and the same checks finding what is wrong."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers import mechanisms as paper
from helpers.mechanisms import assignments, federations
from truthfl import (
    Clients,
    Contract,
    LossModel,
    Strategies,
    Training,
    best_deviation,
    client_payoff,
    flat_pay,
    free_riding_gain,
    is_individually_rational,
    is_truthful,
    labeling_floor,
    lceme,
    leave_one_out_pay,
    optimal_batch_sizes,
    paper_bound,
    pay_per_claimed_sample,
    shapley_share_pay,
    work_cost,
)
from truthfl.contracts.deviation import _Unilateral
from truthfl.studies.reproduce.errata import example

pytestmark = pytest.mark.properties


@given(federations(), st.data())
def test_lceme_is_truthful_against_every_joint_deviation_at_any_assignment(federation, data):
    contract = lceme(*federation.setting, data.draw(assignments(federation)))
    found = best_deviation(contract, federation.clients, federation.model, federation.training)
    assert found.confirmed
    assert is_truthful(contract, federation.clients, federation.model, federation.training)


@given(federations())
def test_lceme_is_truthful_and_rational_at_the_optimal_assignment(federation):
    batches = optimal_batch_sizes(*federation.setting, loss_value=federation.loss_value)
    contract = lceme(*federation.setting, batches)
    assert is_truthful(contract, federation.clients, federation.model, federation.training)
    assert is_individually_rational(contract, federation.clients, federation.model, federation.training)


@given(federations(max_clients=6), st.data())
def test_no_random_joint_deviation_gains_by_the_papers_own_formulas(federation, data):
    """Random (e, D, γ), judged by the slow version that reads like the paper."""
    assigned = data.draw(assignments(federation))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = len(assigned)
    contract = lceme(*federation.setting, assigned)
    for _ in range(20):
        i = int(generator.integers(count))
        effort, batch, scale = np.ones(count), assigned.copy(), np.ones(count)
        honest = paper.lceme_payoff(*federation.setting, assigned, Strategies.truthful(assigned), i)
        effort[i] = generator.integers(0, 2)
        batch[i] = np.exp(generator.uniform(0, np.log(federation.clients.dataset_size[i])))
        scale[i] = 1.0 if generator.random() < 0.3 else generator.exponential()
        payoff = paper.lceme_payoff(*federation.setting, assigned, Strategies(effort, batch, scale), i)
        money = contract.slope[i] * abs(federation.model.truthful_loss(assigned)) + abs(contract.base[i])
        assert payoff <= honest + 1e-9 * federation.clients.labeling_cost[i] + 1e-12 * money


@given(federations(max_clients=6), st.data())
def test_payoffs_are_those_of_the_definitions(federation, data):
    assigned = data.draw(assignments(federation))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = len(assigned)
    played = Strategies(
        generator.integers(0, 2, count),
        np.exp(generator.uniform(0, np.log(federation.clients.dataset_size))),
        generator.uniform(0, 3, count),
    )
    contract = lceme(*federation.setting, assigned)
    fast = client_payoff(contract, federation.clients, federation.model, federation.training, played)
    loss = float(federation.model.expected_loss(played))
    assert loss - federation.model.optimal_loss == pytest.approx(
        paper.gap(federation.model, played), rel=1e-9, abs=1e-9
    )
    for i in range(count):
        slow = paper.lceme_payoff(*federation.setting, assigned, played, i)
        assert fast[i] == pytest.approx(slow, rel=1e-9, abs=1e-9 * (contract.slope[i] * loss + abs(contract.base[i])))


@given(federations(max_clients=8), st.data())
def test_each_world_of_one_deviator_is_the_world_that_the_server_would_see(federation, data):
    """The side-by-side evaluation that the search uses, against one full job per deviator, for every rule."""
    assigned = data.draw(assignments(federation))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    clients, model, training = federation.setting
    count = len(assigned)
    effort, scale = float(generator.integers(0, 2)), generator.uniform(0, 2, count)
    batch, claim = assigned * generator.uniform(0.5, 1, count), assigned * generator.uniform(0.5, 2, count)
    drop = (model.reporting - model.sampling / assigned).sum()
    rules = [lceme(clients, model, training, assigned), pay_per_claimed_sample(clients, model, training, assigned)]
    rules += [flat_pay(clients, model, training, assigned), shapley_share_pay(clients, model, training, assigned)]
    rules += [leave_one_out_pay(clients, model, training, assigned)] if drop > 0 else []
    for rule in rules:
        world = _Unilateral(rule, clients, model, training)
        side_by_side = world.gain(effort, batch, scale, claim)
        for i in range(count):
            one = np.arange(count) == i
            played = Strategies(
                np.where(one, effort, 1.0),
                np.where(one, batch, assigned),
                np.where(one, scale, 1.0),
                np.where(one, claim, assigned),
            )
            honest = client_payoff(rule, clients, model, training)[i]
            gain = client_payoff(rule, clients, model, training, played)[i] - honest
            scale_of_money = world.resolution()[i] * 1e3 + 1e-9 * (abs(honest) + world.honest_cost[i])
            assert side_by_side[i] == pytest.approx(gain, rel=1e-6, abs=scale_of_money)


# What is wrong is found by the same checks.


@given(federations(participation=False, bounds=(paper_bound,)))
def test_below_the_floor_the_check_finds_the_client_who_does_not_label(federation):
    """Erratum 1: the printed floor is √p_i too low; between the two floors a client gains c_l − Φ b by e = 0."""
    printed = labeling_floor(*federation.setting, as_printed=True)
    correct = labeling_floor(*federation.setting)
    assert printed == pytest.approx(correct * np.sqrt(federation.clients.weight))
    assigned = np.sqrt(printed * correct)
    assume((federation.clients.weight < 0.9).all())
    assume((assigned <= federation.clients.dataset_size).all())
    contract = lceme(*federation.setting, assigned, as_printed=True)
    found = best_deviation(contract, federation.clients, federation.model, federation.training)
    expected = federation.clients.labeling_cost - contract.slope * federation.model.labeling
    assert (expected > 0).all()
    assert found.gain == pytest.approx(expected, rel=1e-6)
    assert (found.strategies.labeling_effort == 0).all()
    assert found.confirmed
    assert not is_truthful(contract, federation.clients, federation.model, federation.training)


@given(federations(participation=False))
def test_without_the_optimal_loss_the_check_finds_that_honest_work_is_a_loss(federation):
    """Erratum 4: without F̂* in the base, honest work loses Φ F*."""
    assume(federation.constants.optimal_loss > 1e-3)
    batches = optimal_batch_sizes(*federation.setting, loss_value=federation.loss_value)
    contract = lceme(*federation.setting, batches, as_printed=True)
    payoff = client_payoff(contract, federation.clients, federation.model, federation.training)
    lost = contract.slope * federation.constants.optimal_loss
    assert payoff == pytest.approx(-lost, rel=1e-6, abs=1e-9 * (contract.slope * federation.model.constant).max())
    assert not is_individually_rational(contract, federation.clients, federation.model, federation.training)
    assert is_truthful(contract, federation.clients, federation.model, federation.training)  # incentives are untouched


def test_golden_value_of_erratum_1():
    """Reference values for the ten clients of `example`: floors 1.0 and 3.1623; at D' = 1 not labeling earns 45.0."""
    clients, training, constants = example()
    model = paper_bound(clients, training, constants)
    assert labeling_floor(clients, model, training, as_printed=True)[0] == pytest.approx(1.0, abs=5e-5)
    assert labeling_floor(clients, model, training)[0] == pytest.approx(3.1623, abs=5e-5)
    found = best_deviation(lceme(clients, model, training, np.ones(10), as_printed=True), clients, model, training)
    assert found.gain == pytest.approx(45.0)
    assert found.searched_gain == pytest.approx(45.0)


@given(federations())
def test_flat_and_claimed_pay_reward_doing_nothing(federation):
    clients, model, training = federation.setting
    batches = optimal_batch_sizes(clients, model, training, loss_value=federation.loss_value)
    for rule in (
        flat_pay(clients, model, training, batches),
        pay_per_claimed_sample(clients, model, training, batches),
    ):
        found = best_deviation(rule, clients, model, training)
        assert found.confirmed
        assert (found.gain >= clients.labeling_cost * (1 - 1e-9)).all()
        assert (found.strategies.labeling_effort == 0).all()
        assert (found.strategies.batch_size == np.minimum(1, batches)).all()
        assert not is_truthful(rule, clients, model, training)


def ten_unequal_clients():
    """Costs and weights differ, so no single price of loss suits everybody."""
    clients = Clients(
        weight=np.arange(1, 11) / 55,
        gradient_variance=np.linspace(10, 60, 10),
        sample_cost=np.geomspace(0.001, 0.01, 10),
        labeling_cost=np.geomspace(20, 200, 10),
        dataset_size=1000,
    )
    _, training, constants = example()
    model = paper_bound(clients, training, constants)
    return clients, model, training


@pytest.mark.parametrize("rule_of", [leave_one_out_pay, shapley_share_pay])
def test_contribution_pay_rewards_a_lie(rule_of):
    clients, model, training = ten_unequal_clients()
    batches = optimal_batch_sizes(clients, model, training, loss_value=3000)
    rule = rule_of(clients, model, training, batches)
    found = best_deviation(rule, clients, model, training)
    assert not is_truthful(rule, clients, model, training)
    assert found.gain.max() > 0.05 * found.honest_pay[np.argmax(found.gain)]
    lie = int(np.argmax(found.gain))
    one = np.arange(10) == lie
    played = Strategies(
        np.where(one, found.strategies.labeling_effort, 1.0),
        np.where(one, found.strategies.batch_size, batches),
        np.where(one, found.strategies.report_scale, 1.0),
    )
    gained = (client_payoff(rule, clients, model, training, played) - client_payoff(rule, clients, model, training))[
        lie
    ]
    assert gained == pytest.approx(found.gain[lie], rel=1e-6)


@given(federations(max_clients=10), st.floats(1.5, 100.0))
def test_a_loss_model_that_exaggerates_sampling_elicits_too_little_work(federation, factor):
    """With v overestimated s times, the real best response is D'/√s (mechanism, section 2d)."""
    clients, model, training = federation.setting
    real = LossModel(
        constant=model.constant,
        sampling=model.sampling / factor,
        labeling=model.labeling,
        reporting=model.reporting,
        optimal_loss=model.optimal_loss,
    )
    assigned = clients.dataset_size.astype(float)
    contract = lceme(clients, model, training, assigned)
    found = best_deviation(contract, clients, real, training)
    wanted = np.maximum(assigned / np.sqrt(factor), np.minimum(1.0, assigned))
    assert found.strategies.batch_size == pytest.approx(wanted)
    assert found.confirmed


def test_a_custom_rule_is_searched():
    """A contract that is studied needs a kind, batch sizes and pay, and nothing else."""

    class PayForLowLoss(Contract):
        kind = "prize"
        batch_size = np.array([10.0, 20.0])

        def pay(self, seen):
            return np.where(np.asarray(seen.test_loss) < 1.0, 5.0, 0.0) + np.zeros(2)

    clients = Clients(weight=[0.5, 0.5], gradient_variance=1, sample_cost=0.01, labeling_cost=1, dataset_size=100)
    model = LossModel(constant=0.1, sampling=[1.0, 1.0], labeling=[2.0, 0.1], reporting=[1.0, 1.0])
    found = best_deviation(PayForLowLoss(), clients, model, Training(10))
    assert found.closed_form_gain is None
    assert not found.confirmed
    assert found.strategies.labeling_effort.tolist() == [
        1.0,
        0.0,
    ]  # only the second can skip labeling and keep the prize
    assert found.gain[0] == pytest.approx(10 * 0.01 * (10 - 1 / 0.85), rel=1e-3)
    assert found.gain[1] == pytest.approx(1 + 10 * 0.01 * (20 - 1 / 0.7), rel=1e-3)


@given(federations(), st.data())
def test_free_riding_gains_what_an_empty_report_saves(federation, data):
    """Against the loss model at γ = 0 and a batch so large that no sampling noise is left; costs of nothing at all."""
    clients, model, training = federation.setting
    assigned = data.draw(assignments(federation))
    contract = lceme(clients, model, training, assigned)
    rise = model.own_gap(1.0, 1e300, 0.0) - model.own_gap(1.0, assigned, 1.0)
    saved = work_cost(clients, training, Strategies.truthful(assigned))
    gain = free_riding_gain(contract, clients, model, training)
    assert gain == pytest.approx(saved - contract.slope * rise, rel=1e-9, abs=1e-9 * float(saved.max()))
    price = training.rounds * clients.participation * clients.sample_cost
    pays = clients.labeling_cost + 2 * price * assigned > contract.slope * model.reporting
    near = np.abs(gain) < 1e-6 * saved
    assert ((gain > 0) == pays)[~near].all()


def test_margin_changes_no_incentive():
    clients, model, training = ten_unequal_clients()
    batches = optimal_batch_sizes(clients, model, training, loss_value=3000)
    contract = lceme(clients, model, training, batches, margin=7.5)
    assert client_payoff(contract, clients, model, training) == pytest.approx(7.5)
    assert is_truthful(contract, clients, model, training)
