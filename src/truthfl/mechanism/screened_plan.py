"""Plans the LCEME contract of clients who state their sample cost, by a screening menu of whole batch sizes.

docs/mechanism.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InfeasibleError
from truthfl.mechanism.assignment import optimal_batch_sizes
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.screening import ScreeningMenu
from truthfl.mechanism.setting import Clients
from truthfl.mechanism.spread import confidence_margin, covered_error


@dataclass(frozen=True, eq=False)
class WholeMenu:
    """The items of one client's screening menu with whole batch sizes D, by rising D.

    Each is the item of `ScreeningMenu` at the cost c_D at which D'(c_D) = D: pay is LCEME's at the cost c_D, and a
    rent. At either end of the distribution's range one item more may be needed; for it the menu is continued with
    √ĉ D'(ĉ) constant, which never rises there either. Who states a cost gets the item that leaves her most if she then
    does what it asks for.

    batch_size, cost, rent   (items,) D, c_D and the rent at c_D
    rounds                   T q_i
    highest                  the highest cost that can be stated
    """

    batch_size: FloatArray
    cost: FloatArray
    rent: FloatArray
    rounds: float
    highest: float

    def item(self, stated_cost: float) -> int:
        """The position of the item of who states this cost."""
        return int((self._switches > stated_cost).sum())

    def margin(self, sampling: float, error: float) -> float:
        """What is added to every item so that nobody's pay is below her cost if the loss is too high by `error`.

        It is the same for all items, so that it changes nobody's best statement. The worst of an item's costs is the
        highest at which it is chosen.
        """
        slope = self.rounds * self.cost * np.square(self.batch_size) / sampling
        worst_cost = np.concatenate(([np.inf], self._switches))
        left = self._transfer - self.rounds * self.batch_size * np.minimum(worst_cost, self.highest)
        chosen = np.append(self._switches, -np.inf) <= self.highest
        return max(float((slope * error - left)[chosen].max()), 0.0)

    @property
    def _transfer(self) -> FloatArray:
        """Pay at the expected loss, without the labeling cost: T c_D D and the rent."""
        return self.rounds * self.cost * self.batch_size + self.rent

    @property
    def _switches(self) -> FloatArray:
        """The costs below which the next larger item leaves more than each but the largest one."""
        return np.diff(self._transfer) / (self.rounds * np.diff(self.batch_size))


def whole_menu(menu: ScreeningMenu) -> WholeMenu:
    """The whole items of a menu for one client."""
    low, high, rounds = menu.virtual_cost.lowest, menu.virtual_cost.highest, float(menu.rounds[0])
    most, least = (float(menu.batch_size([cost])[0]) for cost in (low, high))
    inner = np.arange(np.ceil(least), np.floor(most) + 1.0)
    cost = menu.cost_at(inner)
    rent = menu.rent_at(cost)
    if np.floor(least) < least:
        batch = np.floor(least)
        beyond, gain = _continued(high, least, batch, rounds)
        inner, cost, rent = np.append(batch, inner), np.append(beyond, cost), np.append(gain, rent)
    if np.ceil(most) > most:
        batch = np.ceil(most)
        beyond, gain = _continued(low, most, batch, rounds)
        gain += float(menu.rent([low])[0])
        inner, cost, rent = np.append(inner, batch), np.append(cost, beyond), np.append(rent, gain)
    return WholeMenu(inner, cost, rent, rounds, high)


def _continued(end: float, batch_at_end: float, batch: float, rounds: float) -> tuple[float, float]:
    """The cost at which the menu, continued beyond an end of its range, has this batch; how much more the rent is.

    With √c D' constant, rent is the integral of T D'(end) √(end/z).
    """
    cost = end * (batch_at_end / batch) ** 2
    return cost, 2.0 * rounds * batch_at_end * np.sqrt(end) * (np.sqrt(end) - np.sqrt(cost))


def plan_screened(inputs: PlanInputs) -> Contract:
    """The contract in which who states her cost gets her item of the menu, and others the server's best batches.

    The margin of a client who states her cost covers the loss error that is measured with the least batches of all
    menus, so that it does not depend on what anybody states.
    """
    clients, model, training = inputs.clients, inputs.loss_model, inputs.training
    stated = _who_states(inputs)
    menus = _menus(inputs, stated)
    cost, rent = clients.sample_cost.copy(), np.zeros(len(clients))
    for client, menu in menus.items():
        cost[client] = menu.highest
    batches = optimal_batch_sizes(_with_cost(clients, cost), model, training, loss_value=inputs.loss_value).astype(
        float
    )
    for client, menu in menus.items():
        batches[client] = menu.batch_size[0]
    error = covered_error(inputs.loss_error(batches.copy()), confidence=inputs.confidence)
    for client, menu in menus.items():
        item = menu.item(float(clients.sample_cost[client]))
        batches[client], cost[client] = menu.batch_size[item], menu.cost[item]
        rent[client] = menu.rent[item] + menu.margin(float(model.sampling[client]), error)
    at_items = _with_cost(clients, cost)
    bare = lceme(at_items, model, training, batches)
    margin = confidence_margin(bare, inputs.loss_error(batches), confidence=inputs.confidence)
    return lceme(at_items, model, training, batches, margin=np.where(stated, rent, margin) + inputs.margin)


def stated_rents(inputs: PlanInputs) -> FloatArray:
    """What her item leaves each client at the cost that she states, without margins; 0 for who states none."""
    rents = np.zeros(len(inputs.clients))
    for client, menu in _menus(inputs, _who_states(inputs)).items():
        cost = float(inputs.clients.sample_cost[client])
        item = menu.item(cost)
        rents[client] = menu.rent[item] + menu.rounds * menu.batch_size[item] * (menu.cost[item] - cost)
    return rents


def _who_states(inputs: PlanInputs) -> NDArray[np.bool_]:
    return np.ones(len(inputs.clients), dtype=bool) if inputs.stated is None else np.asarray(inputs.stated, dtype=bool)


def _menus(inputs: PlanInputs, stated: NDArray[np.bool_]) -> dict[int, WholeMenu]:
    return {client: _menu_of(inputs, client) for client in np.flatnonzero(stated).tolist()}


def _menu_of(inputs: PlanInputs, client: int) -> WholeMenu:
    clients, model, distribution = inputs.clients, inputs.loss_model, inputs.cost_distribution
    assert distribution is not None
    alone = clients.without(set(range(len(clients))) - {client})
    own = LossModel(
        constant=0.0,
        sampling=model.sampling[[client]],
        labeling=model.labeling[[client]],
        reporting=model.reporting[[client]],
    )
    try:
        menu = ScreeningMenu(alone, own, inputs.training, distribution, loss_value=inputs.loss_value)
        menu.batch_size(alone.sample_cost)
        return whole_menu(menu)
    except InfeasibleError as error:
        raise InfeasibleError(str(error), (client,)) from None


def _with_cost(clients: Clients, cost: FloatArray) -> Clients:
    """The same clients with other sample costs."""
    return Clients(
        weight=clients.weight,
        gradient_variance=clients.gradient_variance,
        sample_cost=cost,
        labeling_cost=clients.labeling_cost,
        dataset_size=clients.dataset_size,
        heterogeneity=clients.heterogeneity,
        participation=clients.participation,
        name=clients.name,
    )
