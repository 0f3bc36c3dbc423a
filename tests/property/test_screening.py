"""Private costs: no false report, followed by any work, gains; rents are what the integral says."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from helpers.mechanisms import decades, federations
from truthfl import (
    Clients,
    InfeasibleError,
    InputError,
    LossModel,
    ScreeningMenu,
    Strategies,
    Training,
    best_deviation,
    best_double_deviation,
    client_payoff,
    labeling_floor,
)
from truthfl.contracts.lceme import private_costs as screening
from truthfl.contracts.lceme.private_costs import VirtualCost, _payoff_of_report

pytestmark = pytest.mark.properties


def menu_of_one(distribution, *, v=300.0, b=5.0, labeling_cost=8.0, rounds=100, size=10**9, loss_value=1.0):
    clients = Clients(weight=[1.0], gradient_variance=1, sample_cost=1, labeling_cost=labeling_cost, dataset_size=size)
    model = LossModel(constant=1.0, sampling=[v], labeling=[b], reporting=[2.0], reporting_sampling=v)
    return ScreeningMenu(clients, model, Training(rounds), distribution, loss_value=loss_value)


def test_golden_rents():
    """Uniform [0.5, 2], v = 300, b = 5, c_l = 8, T = 100, κ = 1."""
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5))
    rents = [float(menu.rent([cost])[0]) for cost in (0.5, 1.0, 1.5, 2.0)]
    assert rents == pytest.approx([309.839, 181.499, 83.021, 0.0], abs=5e-4)


def test_no_double_deviation_gains_on_a_full_grid():
    """61 true costs × 61 reports × 400 batch sizes × 2 efforts × 4 report scales, from the definitions."""
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5))
    v, b, labeling_cost, T = 300.0, 5.0, 8.0, 100
    costs = np.linspace(0.5, 2.0, 61)
    asked = np.array([menu.batch_size([c])[0] for c in costs])
    slope = np.array([menu.slope([c])[0] for c in costs])
    rent = np.array([menu.rent([c])[0] for c in costs])
    batch = np.geomspace(1.0, 40.0, 400)[:, None, None]
    for c, honest in zip(costs, rent, strict=True):
        for effort in (0.0, 1.0):
            for scale in (0.0, 0.5, 1.0, 2.0):
                rise = v / batch - v / asked + b * (1 - effort) + (scale - 1) ** 2 * (2 + v / batch)
                pay = -slope * rise + T * costs * asked + rent + labeling_cost
                assert (pay - labeling_cost * effort - T * c * batch).max() <= honest + 1e-9


@st.composite
def distributions(draw):
    """Regular ones: uniform from 0 or from above it, and power laws F(c) ∝ (c − c̲)^a, for which ψ is linear in c."""
    low = draw(st.just(0.0) | decades(-2, 1))
    width = draw(decades(-2, 1))
    if draw(st.booleans()):
        return scipy.stats.uniform(low, width)
    return scipy.stats.beta(draw(st.floats(0.5, 4.0)), 1.0, loc=low, scale=width)


@st.composite
def menus(draw):
    """A federation of few clients, whose data may be small enough to cap what they are asked."""
    federation = draw(federations(max_clients=6, room=30))
    distribution = draw(distributions())
    highest = distribution.support()[1]
    unlimited = with_costs(federation.clients, highest, size=2**40)
    floor = np.ceil(np.maximum(labeling_floor(unlimited, federation.model, federation.training), 1.0))
    extra = federation.clients.dataset_size - federation.lowest.astype(int)
    clients = with_costs(federation.clients, highest, size=floor.astype(int) + extra)
    menu = ScreeningMenu(clients, federation.model, federation.training, distribution, loss_value=federation.loss_value)
    return menu, federation.training, distribution


def with_costs(clients, cost, size=None):
    """The same clients, their sample cost known."""
    return Clients(
        weight=clients.weight,
        gradient_variance=clients.gradient_variance,
        sample_cost=cost,
        labeling_cost=clients.labeling_cost,
        dataset_size=clients.dataset_size if size is None else size,
        participation=clients.participation,
    )


def draw_costs(menu, share):
    low, high = menu.virtual_cost.lowest, menu.virtual_cost.highest
    return np.clip(low + share * (high - low), low, high)


@given(menus(), st.floats(0.01, 1.0))
def test_no_double_deviation_gains(made, share):
    menu, _, _ = made
    cost = draw_costs(menu, np.full(len(menu.clients), share))
    gain, _ = best_double_deviation(menu, cost, reports=101, zooms=8)
    scale = menu.rent(cost) + menu.rounds * cost * menu.batch_size(cost) + menu.clients.labeling_cost
    assert (gain <= 1e-8 * scale).all()


def one_report_after_the_other(menu, cost, *, reports, zooms):
    """`best_double_deviation`, slowly: for each report in turn, by what the menu states of it."""
    low, high = menu.virtual_cost.lowest, menu.virtual_cost.highest
    best, at, width = np.zeros_like(cost), cost.copy(), (high - low) / (reports - 1)
    tried = [np.full_like(cost, report) for report in np.linspace(low, high, reports)]
    for _ in range(zooms + 1):
        for report in tried:
            gain = _payoff_of_report(menu, cost, report) - menu.rent(cost)
            better = gain > best
            best[better], at[better] = gain[better], report[better]
        tried = [np.clip(at + step * width, low, high) for step in np.linspace(-1.0, 1.0, 9)]
        width /= 4.0
    return best, at


@settings(max_examples=25)
@given(menus(), st.floats(0.01, 1.0), st.floats(0.2, 0.9), st.sampled_from([1, 25, 2**14]))
def test_many_reports_at_once_find_what_one_after_the_other_finds(made, share, paid, together):
    """On menus that pay a part of the rent, so that false reports gain."""
    menu, _, _ = made
    cost = draw_costs(menu, np.full(len(menu.clients), share))
    whole = menu.rent_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(menu, "rent_at", lambda cost: paid * whole(cost))
        patch.setattr(screening, "PAYOFFS_TOGETHER", together)
        found = best_double_deviation(menu, cost, reports=11, zooms=2)
        expected = one_report_after_the_other(menu, cost, reports=11, zooms=2)
    scale = menu.rounds * cost * menu.batch_size(cost) + menu.clients.labeling_cost + whole(cost)
    assert (np.abs(found[0] - expected[0]) <= 1e-12 * scale).all()
    gains = expected[0] > 1e-6 * scale
    assert found[1][gains] == pytest.approx(expected[1][gains], rel=1e-6)


@given(menus(), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_after_any_report_the_best_deviation_is_the_one_the_check_assumes(made, true_share, report_share):
    """`best_deviation` on the contract of a false report, at the true cost, against the check's formula."""
    menu, training, _ = made
    count = len(menu.clients)
    cost, report = draw_costs(menu, np.full(count, true_share)), draw_costs(menu, np.full(count, report_share))
    contract = menu.contract(report)
    true_clients = with_costs(menu.clients, cost)
    found = best_deviation(contract, true_clients, menu.model, training)
    assert found.confirmed
    assumed = _payoff_of_report(menu, cost, report)
    scale = np.abs(assumed) + menu.rounds * np.maximum(cost, report) * menu.batch_size(report)
    assert found.honest_payoff + found.gain == pytest.approx(
        assumed, abs=float((1e-9 * scale + 1e3 * found.resolution).max())
    )


@given(menus(), st.floats(0.01, 1.0))
def test_honest_clients_earn_their_rent_and_never_less_than_nothing(made, share):
    menu, training, _ = made
    cost = draw_costs(menu, np.full(len(menu.clients), share))
    true_clients = with_costs(menu.clients, cost)
    contract = menu.contract(cost)
    payoff = client_payoff(contract, true_clients, menu.model, training)
    rounding = 1e-11 * contract.slope * abs(menu.model.truthful_loss(contract.batch_size))
    rent = menu.rent(cost)
    assert (rent >= -1e-12).all()
    assert (np.abs(payoff - rent) <= 1e-9 * (rent + menu.rounds * cost * contract.batch_size) + rounding).all()
    assert menu.rent(np.full(len(cost), menu.virtual_cost.highest)) == pytest.approx(0.0, abs=1e-12)
    assert (contract.slope * menu.model.labeling >= menu.clients.labeling_cost * (1 - 1e-9)).all()


@given(menus(), st.floats(0.01, 0.9))
def test_rent_is_the_integral_of_the_batch_sizes(made, share):
    menu, _, _ = made
    cost = draw_costs(menu, np.full(len(menu.clients), share))
    for i in range(min(2, len(cost))):
        count = len(cost)
        kinks = sorted({float(menu._full_data[i]), float(menu._one_sample[i]), float(menu._floor_from[i])})
        slow, error = quad(
            lambda z, i=i, count=count: menu.rounds[i] * menu.batch_size(np.full(count, z))[i],
            cost[i],
            menu.virtual_cost.highest,
            points=[k for k in kinks if cost[i] < k < menu.virtual_cost.highest] or None,
            limit=200,
        )
        assert menu.rent(cost)[i] == pytest.approx(slow, rel=1e-6, abs=10 * error)


def test_without_the_virtual_cost_the_check_finds_a_double_deviation():
    """If the rent were paid on half the integral, low-cost clients would report high."""
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5))
    whole = menu.rent_at
    menu.rent_at = lambda cost: 0.5 * whole(cost)  # type: ignore[method-assign]
    assert menu.rent([0.6]) == pytest.approx(0.5 * whole(np.array([0.6])))  # honest work is paid by it too
    gain, report = best_double_deviation(menu, [0.6])
    assert gain[0] > 1.0
    assert report[0] > 0.6


def test_one_item_for_all_who_would_be_asked_for_more_than_their_data():
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5), size=2)
    low, less_low = menu.contract([0.5]), menu.contract([0.7])
    assert low.batch_size.tolist() == less_low.batch_size.tolist() == [2.0]
    assert low.slope == pytest.approx(less_low.slope)
    assert low.base == pytest.approx(less_low.base)
    for cost in (0.5, 0.7, 1.3, 2.0):
        assert best_double_deviation(menu, [cost])[0][0] <= 1e-9


@pytest.mark.parametrize(
    ("distribution", "told"),
    [
        (scipy.stats.lognorm(1.0), "lies on [0, inf]; it must lie on a bounded interval"),
        (scipy.stats.norm(1.0, 0.1), "lies on [-inf, inf]"),
        (scipy.stats.uniform(-1.0, 2.0), "lies on [-1, 1]"),
        (scipy.stats.beta(0.5, 0.5, loc=0.5), "is not regular: virtual cost over cost, (c + F(c)/f(c))/c, falls from"),
        (scipy.stats.poisson(3), "the cost distribution rv_discrete_frozen has no pdf"),
        (3.0, "the cost distribution float has no support"),
    ],
)
def test_distributions_that_cannot_be_screened(distribution, told):
    with pytest.raises(InputError) as error:
        VirtualCost(distribution)
    assert told in str(error.value)


def test_reports_outside_the_range_and_data_that_do_not_suffice():
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5))
    with pytest.raises(InputError, match=r"reported_cost of client 0 is 3; it must lie .* \[0\.5, 2\]"):
        menu.contract([3.0])
    with pytest.raises(InfeasibleError, match=r"client 0: needs 1\.549 samples, dataset_size is 1"):
        menu_of_one(scipy.stats.uniform(0.5, 1.5), size=1)


def test_uniform_virtual_cost_is_twice_the_cost_less_the_lowest():
    psi = VirtualCost(scipy.stats.uniform(0.5, 1.5))
    cost = np.linspace(0.5, 2.0, 7)
    assert psi(cost) == pytest.approx(2 * cost - 0.5)
    exact = np.sqrt(2 * 2.0 - 0.5) - np.sqrt(2 * 0.8 - 0.5)
    assert psi.integral_of_inverse_root(np.array([0.8]), np.array([2.0])) == pytest.approx(exact, rel=1e-12)


def test_strategies_of_a_screened_job_are_judged_like_any_other():
    menu = menu_of_one(scipy.stats.uniform(0.5, 1.5))
    contract = menu.contract([1.0])
    clients = Clients(weight=[1.0], gradient_variance=1, sample_cost=1.0, labeling_cost=8.0, dataset_size=10**9)
    lazy = client_payoff(contract, clients, menu.model, Training(100), Strategies(0.0, contract.batch_size, 1.0))
    honest = client_payoff(contract, clients, menu.model, Training(100))
    assert lazy[0] <= honest[0] + 1e-9
