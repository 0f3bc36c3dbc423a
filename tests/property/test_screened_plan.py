"""Clients who state their costs: whole items of the exact menu, no gain by other statements, nobody left below 0."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from helpers.mechanisms import decades
from truthfl import Clients, InputError, LossModel, ScreeningMenu, Training, client_payoff
from truthfl.contracts.contract import PlanInputs, Prices
from truthfl.contracts.lceme.contract import LCEME
from truthfl.contracts.lceme.private_costs import whole_menu

pytestmark = pytest.mark.properties
GRID = 300


@st.composite
def menus(draw):
    """The menu of one client: uniform costs or a power law, with a labeling floor that binds or not."""
    low, width = draw(st.just(0.0) | decades(-2, 1)), draw(decades(-2, 1))
    power = draw(st.sampled_from((1.0, 0.5, 3.0)))
    distribution = scipy.stats.beta(power, 1.0, loc=low, scale=width)
    rounds, value, sampling = draw(st.integers(1, 200)), draw(decades(0, 3)), draw(decades(-2, 2))
    batch = np.sqrt(value * sampling / (rounds * (low + width)))
    scale = (draw(st.floats(1.0, 40.0)) / batch) ** 2
    size = draw(st.integers(3, 300))
    floor = draw(st.floats(0.0, 1.0)) * min(size, 1.2 * scale**0.5 * batch) + 1e-3
    labeling = 2.0
    cost = floor**2 * rounds * (low + width) * labeling / (sampling * scale)
    clients = Clients(weight=[1.0], gradient_variance=1, sample_cost=1, labeling_cost=cost, dataset_size=size)
    model = LossModel(constant=0.1, sampling=[sampling * scale], labeling=[labeling], reporting=[1.0])
    return ScreeningMenu(clients, model, Training(rounds), distribution, loss_value=value)


def payoffs(menu, items, cost):
    """(items, costs): what honest work, and the best work, leave at these costs under each item."""
    rounds, v = menu.rounds[0], menu.model.sampling[0]
    batch, transfer = items.batch_size[:, None], (rounds * items.cost * items.batch_size + items.rent)[:, None]
    slope = rounds * items.cost[:, None] * batch**2 / v
    with np.errstate(divide="ignore"):
        best = np.clip(np.sqrt(slope * v / (rounds * cost)), 1.0, menu.clients.dataset_size[0])
    return transfer - rounds * batch * cost, transfer + slope * v * (1 / batch - 1 / best) - rounds * cost * best


@given(menus())
def test_every_item_is_the_exact_menus_at_its_cost(menu):
    items = whole_menu(menu)
    low, high = menu.virtual_cost.lowest, menu.virtual_cost.highest
    assert (np.diff(items.batch_size) == 1.0).all()
    assert (items.batch_size == np.rint(items.batch_size)).all()
    within = (items.cost >= low) & (items.cost <= high)
    assert (~within).sum() <= 2
    batch, cost, rent = items.batch_size[within], items.cost[within], items.rent[within]
    before, after = (menu.batch_size_at(np.minimum(cost * step, high)) for step in (1 - 1e-9, 1 + 1e-9))
    assert (after * (1 - 1e-6) <= batch).all()  # both are D but where D' jumps
    assert (batch <= before * (1 + 1e-6)).all()
    assert rent.tolist() == menu.rent_at(cost).tolist()
    for here in np.flatnonzero(before - after < 1e-6 * before)[:5]:
        slope = items.rounds * cost[here] * batch[here] ** 2 / menu.model.sampling[0]
        assert slope == pytest.approx(menu.slope([cost[here]])[0], rel=1e-6)
    strength = np.sqrt(items.cost) * items.batch_size  # of the slope; in the proof it must not rise with the cost
    assert (np.diff(strength) >= -1e-6 * strength[1:]).all()
    worth = items.rounds * items.cost * items.batch_size**2 / menu.model.sampling[0] * menu.model.labeling[0]
    assert (worth >= menu.clients.labeling_cost[0] * (1.0 - 1e-6)).all()


@given(menus())
def test_no_other_statement_gains_and_with_other_work_half_a_percent_at_most(menu):
    """The last only from batches of ten on; smaller ones are far apart."""
    items = whole_menu(menu)
    cost = np.linspace(menu.virtual_cost.lowest, menu.virtual_cost.highest, GRID)[1:]
    honest, best = payoffs(menu, items, cost)
    chosen = np.array([items.item(c) for c in cost])
    left = honest[chosen, np.arange(len(cost))]
    pay = left + menu.rounds[0] * items.batch_size[chosen] * cost + menu.clients.labeling_cost[0]
    assert (honest.max(axis=0) - left <= 1e-9 * pay).all()
    large = items.batch_size[chosen] >= 10
    assert ((best.max(axis=0) - left)[large] <= 0.005 * pay[large]).all()


@given(menus(), st.floats(0.0, 1.0))
def test_nobody_is_left_below_nothing_and_the_margin_covers_an_error_of_the_loss(menu, error):
    items = whole_menu(menu)
    cost = np.linspace(menu.virtual_cost.lowest, menu.virtual_cost.highest, GRID)[1:]
    honest, _ = payoffs(menu, items, cost)
    chosen = np.array([items.item(c) for c in cost])
    slope = items.rounds * items.cost * items.batch_size**2 / menu.model.sampling[0]
    margin = items.margin(menu.model.sampling[0], error)
    left = honest[chosen, np.arange(len(cost))] + margin - slope[chosen] * error
    assert (left >= -1e-9 * (margin + items.rounds * items.batch_size[chosen] * cost)).all()


CLIENTS = {"weight": [0.5, 0.3, 0.2], "gradient_variance": 1, "labeling_cost": 8, "dataset_size": 500}
MODEL = LossModel(constant=0.1, sampling=[300, 200, 100], labeling=[5, 5, 5], reporting=[1, 1, 1])
COSTS, PRICES = scipy.stats.uniform(0.5, 1.5), Prices(60.0)


def planned(sample_cost, stated, **more):
    clients = Clients(sample_cost=sample_cost, **CLIENTS)
    inputs = PlanInputs(clients, MODEL, Training(100), PRICES, cost_distribution=COSTS, stated=np.array(stated), **more)
    return clients, LCEME.plan(inputs)


def test_a_client_who_states_a_cost_gets_their_item_and_others_the_usual_contract():
    """Ada's item, pay and rent do not depend on what others do but for the expected loss."""
    clients, contract = planned([1.0, 1.0, 1.0], [True, False, False])
    _, usual = Clients, LCEME.plan(PlanInputs(clients, MODEL, Training(100), PRICES))
    assert contract.batch_size.tolist()[1:] == usual.batch_size.tolist()[1:]
    assert contract.slope[1:] == pytest.approx(usual.slope[1:])
    payoff = client_payoff(contract, clients, MODEL, Training(100))
    assert payoff[1:] == pytest.approx(0.0, abs=1e-9)
    alone = Clients(weight=[1.0], gradient_variance=1, sample_cost=1, labeling_cost=8, dataset_size=500)
    menu = ScreeningMenu(
        alone, LossModel(constant=0, sampling=[300], labeling=[5], reporting=[1]), Training(100), COSTS, loss_value=60.0
    )
    assert abs(contract.batch_size[0] - menu.batch_size([1.0])[0]) < 1.0
    assert payoff[0] == pytest.approx(menu.rent([1.0])[0], rel=0.01)
    _, low = planned([0.6, 1.0, 1.0], [True, False, False])
    assert low.batch_size[0] > contract.batch_size[0]


def test_the_margin_of_who_states_does_not_depend_on_what_is_stated():
    """With a loss error that depends on the batches, pay is compared with pay without any error."""
    margins = []
    for cost in (0.6, 1.0, 1.9):
        pay = []
        for error in (lambda _: 0.0, lambda batches: float(1.0 / batches.sum())):
            clients, contract = planned([cost, 1.0, 1.2], [True, False, True], loss_error=error)
            pay.append(client_payoff(contract, clients, MODEL, Training(100)))
        margins.append(pay[1] - pay[0])
    assert margins[0][0] > 0
    for other in margins[1:]:
        assert other[[0, 2]] == pytest.approx(margins[0][[0, 2]])


def test_a_cost_outside_of_the_range_is_told():
    with pytest.raises(InputError, match=r"reported_cost .* is 3; it must lie in the distribution's range \[0\.5, 2\]"):
        planned([3.0, 1.0, 1.0], [True, False, False])
