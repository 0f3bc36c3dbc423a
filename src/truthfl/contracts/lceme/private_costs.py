"""Private costs: a menu of contracts from which a client's best choice is the one for their true sample cost.

docs/mechanism.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.contract import CostDistribution, PlanInputs
from truthfl.contracts.lceme.assignment import optimal_batch_sizes, require_usable
from truthfl.contracts.lceme.contract import LCEME, lceme
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.payoff import confidence_margin, covered_error
from truthfl.contracts.setting import (
    Clients,
    FloatArray,
    Training,
    client_array,
    list_clients,
    number,
    require_rounds,
)
from truthfl.errors import InfeasibleError, InputError

GRID = 4001
PANELS = 256
REGULARITY_TOLERANCE = 1e-9


class VirtualCost:
    """ψ(c) = c + F(c)/f(c) on the support [lowest, highest], checked to be regular: ψ(c)/c never falls."""

    def __init__(self, distribution: CostDistribution) -> None:
        for method in ("support", "cdf", "pdf"):
            if not callable(getattr(distribution, method, None)):
                raise InputError(
                    f"the cost distribution {type(distribution).__name__} has no {method}; "
                    "give a frozen continuous SciPy distribution such as scipy.stats.uniform(0.5, 1.5)."
                )
        self.distribution = distribution
        self.lowest, self.highest = (float(end) for end in distribution.support())
        if not (np.isfinite(self.highest) and self.lowest >= 0.0 and self.lowest < self.highest):
            raise InputError(
                f"the cost distribution lies on [{self.lowest:g}, {self.highest:g}]; it must lie on a bounded "
                "interval of costs from 0 up, for the highest cost decides what every other is paid."
            )
        self._require_regular()
        self._nodes, self._weights = np.polynomial.legendre.leggauss(16)
        self._starts = np.linspace(0.0, np.sqrt(self.highest - self.lowest), PANELS + 1)
        pieces = self._panel(self._starts[:-1], self._starts[1:])
        self._sums = np.concatenate(([0.0], np.cumsum(pieces)))

    def __call__(self, cost: FloatArray) -> FloatArray:
        """ψ at each cost."""
        below = np.asarray(self.distribution.cdf(cost), dtype=float)
        density = np.asarray(self.distribution.pdf(cost), dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = np.where(below > 0.0, below / density, 0.0)
        return cost + hazard

    def integral_of_inverse_root(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """∫ ψ(z)^{−1/2} dz from start to end; 0 where end is not above start."""
        return np.where(end > start, self._from_lowest(end) - self._from_lowest(start), 0.0)

    def crossing(self, ratio: FloatArray) -> FloatArray:
        """The largest cost in the support at which ψ(c)/c is not above the ratio; the lowest cost where none is."""
        low, high = np.full_like(ratio, self.lowest), np.full_like(ratio, self.highest)
        return bisect(lambda cost: self(cost) <= ratio * cost, low, high)

    def _from_lowest(self, cost: FloatArray) -> FloatArray:
        root = np.sqrt(np.clip(cost - self.lowest, 0.0, None))
        panel = np.clip(np.searchsorted(self._starts, root, side="right") - 1, 0, PANELS - 1)
        return self._sums[panel] + self._panel(self._starts[panel], root)

    def _panel(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """Gauss quadrature in s = √(z − lowest), in which the integrand is smooth even at cost 0."""
        half = (end - start) / 2.0
        s = (start + end)[..., None] / 2.0 + half[..., None] * self._nodes
        cost = self.lowest + s**2
        psi = self(np.minimum(cost, self.highest))
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(s > 0.0, 2.0 * s / np.sqrt(psi), 0.0)
        return np.asarray((inside * self._weights).sum(axis=-1) * half)

    def _require_regular(self) -> None:
        inner = np.linspace(self.lowest, self.highest, GRID)
        near = np.geomspace(1e-6, 1e-3, 25) * (self.highest - self.lowest)
        cost = np.sort(np.concatenate((inner[1:], self.lowest + near, self.highest - near)))
        ratio = self(cost) / cost
        falls = ratio[1:] < ratio[:-1] * (1.0 - REGULARITY_TOLERANCE)
        falls |= np.isnan(ratio[1:]) | (np.isinf(ratio[:-1]) & np.isfinite(ratio[1:]))
        if falls.any():
            where = int(np.argmax(falls))
            raise InputError(
                "the cost distribution is not regular: virtual cost over cost, (c + F(c)/f(c))/c, falls from "
                f"{ratio[where]:.6g} at c = {cost[where]:.6g} to {ratio[where + 1]:.6g} at c = {cost[where + 1]:.6g}; "
                "it must never fall, as for a uniform distribution."
            )


def bisect(holds: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest value in [low, high] at which a condition holds that is monotone; low if it never holds."""
    reaches = holds(high)
    low, high = low.copy(), high.copy()
    low[reaches] = high[reaches]
    for _ in range(200):
        middle = 0.5 * (low + high)
        if ((middle <= low) | (middle >= high)).all():
            break
        good = holds(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low


PAYOFFS_TOGETHER = 2**14  # reports times clients whose payoffs are computed at once; bounds the memory of a search


class ScreeningMenu:
    """Batch sizes and pay of all clients as functions of the costs ĉ that they report.

    D'(ĉ) = max( √(κ v/(T ψ(ĉ))), √(c_l v/(T b ĉ)) ), within [1, n]      Φ(ĉ) = T c̃ D'(ĉ)²/v
    rent(ĉ) = ∫_ĉ^c̄ T D'(z) dz        r = Φ (gap + F̂* − f) + T ĉ D'(ĉ) + rent(ĉ) + c_l

    where T stands for T q_i. c̃ is ĉ, with two exceptions. All reports below the cost at which D' reaches the data size
    n share one item, and so do all above the cost at which it reaches 1. D' is a real number here: between two whole
    sizes, use both in turn.
    `clients.sample_cost` is not used: it is private.
    """

    def __init__(
        self,
        clients: Clients,
        model: LossModel,
        training: Training,
        distribution: CostDistribution,
        *,
        loss_value: float = 1.0,
    ) -> None:
        require_rounds(training)
        require_usable(clients, model)
        self.clients, self.model = clients, model
        self.loss_value = number("loss_value", loss_value, positive=True)
        self.rounds = training.rounds * clients.participation
        self.virtual_cost = VirtualCost(distribution)
        self._largest = clients.dataset_size.astype(float)
        self._floor_factor = clients.labeling_cost * model.sampling / (self.rounds * model.labeling)
        self._require_feasible()
        count = len(clients)
        low = np.full(count, self.virtual_cost.lowest)
        high = np.full(count, self.virtual_cost.highest)
        self._full_data = bisect(lambda cost: self._unlimited(cost) >= self._largest, low, high)
        self._one_sample = bisect(lambda cost: self._unlimited(cost) > 1.0, low, high)
        self._floor_from = self.virtual_cost.crossing(self.loss_value * model.labeling / clients.labeling_cost)

    def batch_size(self, reported_cost: ArrayLike) -> FloatArray:
        """D'(ĉ)."""
        return self.batch_size_at(self._costs(reported_cost))

    def batch_size_at(self, cost: FloatArray) -> FloatArray:
        """D' at costs of shape (…, N); whether they lie in the distribution's range is not checked."""
        return np.clip(self._unlimited(cost), 1.0, self._largest)

    def cost_at(self, batch_size: FloatArray) -> FloatArray:
        """The cost of the menu's item with these batch sizes, of shape (…, N) and within the range of D'."""
        low = np.full_like(batch_size, self.virtual_cost.lowest)
        high = np.full_like(batch_size, self.virtual_cost.highest)
        cost = bisect(lambda cost: self._unlimited(cost) >= batch_size, low, high)
        return np.clip(cost, self._full_data, self._one_sample)

    def slope(self, reported_cost: ArrayLike) -> FloatArray:
        """Φ(ĉ)."""
        return self.slope_at(self._costs(reported_cost))

    def slope_at(self, cost: FloatArray) -> FloatArray:
        """Φ at costs of shape (…, N); whether they lie in the distribution's range is not checked."""
        item = np.clip(cost, self._full_data, self._one_sample)
        slope: FloatArray = self.rounds * item * np.square(self.batch_size_at(cost)) / self.model.sampling
        return slope

    def rent(self, reported_cost: ArrayLike) -> FloatArray:
        """rent(ĉ), an honest client's payoff because their cost is private; integrated piece by piece."""
        return self.rent_at(self._costs(reported_cost))

    def rent_at(self, cost: FloatArray) -> FloatArray:
        """The rent at costs of shape (…, N); whether they lie in the distribution's range is not checked."""
        top = np.full_like(cost, self.virtual_cost.highest)
        rent: FloatArray = self._largest * np.clip(self._full_data - cost, 0.0, None)
        rent += np.clip(top - np.maximum(cost, self._one_sample), 0.0, None)
        start = np.maximum(cost, self._full_data)
        middle = np.clip(self._floor_from, self._full_data, self._one_sample)
        stake = np.sqrt(self.loss_value * self.model.sampling / self.rounds)
        rent += stake * self.virtual_cost.integral_of_inverse_root(start, middle)
        above = np.maximum(start, middle)
        root = np.sqrt(np.maximum(self._one_sample, above)) - np.sqrt(above)
        rent += 2.0 * np.sqrt(self._floor_factor) * root
        return self.rounds * rent

    def contract(self, reported_cost: ArrayLike) -> LCEME:
        """The contract for the reported costs of all clients."""
        cost = self._costs(reported_cost)
        batches, slope = self.batch_size(cost), self.slope(cost)
        base = slope * self.model.truthful_loss(batches) + self.rounds * cost * batches + self.rent(cost)
        own_cost = self.clients.labeling_cost.copy()
        return LCEME(batches, slope, base, own_cost, name="lceme with private costs")

    def _unlimited(self, cost: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            efficient = self.loss_value * self.model.sampling / (self.rounds * self.virtual_cost(cost))
            return np.sqrt(np.maximum(efficient, self._floor_factor / cost))

    def _costs(self, reported_cost: ArrayLike) -> FloatArray:
        cost = client_array("reported_cost", reported_cost, len(self.clients), self.clients.label)
        low, high = self.virtual_cost.lowest, self.virtual_cost.highest
        outside = (cost < low) | (cost > high)
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"reported_cost of {self.clients.label(first)} is {cost[first]:g}; it must lie in the distribution's "
                f"range [{low:g}, {high:g}]."
            )
        return cost

    def _require_feasible(self) -> None:
        floor = np.sqrt(self._floor_factor / self.virtual_cost.highest)
        positions = np.flatnonzero(floor > self._largest * (1.0 + 1e-12)).tolist()
        if positions:
            raise InfeasibleError(
                "no batch within the data makes labeling worth while at any reported cost for "
                + list_clients(
                    positions,
                    lambda i: (
                        f"{self.clients.label(i)}: needs {floor[i]:.4g} samples, dataset_size is "
                        f"{self.clients.dataset_size[i]}"
                    ),
                )
                + "; leave them out or lower their labeling_cost.",
                tuple(positions),
            )


def best_double_deviation(
    menu: ScreeningMenu, true_cost: ArrayLike, *, reports: int = 201, zooms: int = 12
) -> tuple[FloatArray, FloatArray]:
    """The most that a client gains by reporting a false cost and then also deviating in their work, and that report.

    Searched over reports. For each report the best (e, D, γ) comes from `best_deviation`: γ = 1, D = √(Φ(ĉ) v/(T c))
    within the client's limits, and no labels if Φ(ĉ) b < c_l. The gain is relative to an honest report and honest work.
    """
    cost = menu._costs(true_cost)
    low, high = menu.virtual_cost.lowest, menu.virtual_cost.highest
    honest = menu.rent(cost)
    best, at = np.zeros_like(cost), cost.copy()
    width = (high - low) / (reports - 1)
    tried = np.broadcast_to(np.linspace(low, high, reports)[:, None], (reports, len(cost)))
    together = max(1, PAYOFFS_TOGETHER // len(cost))
    for _ in range(zooms + 1):
        for first in range(0, len(tried), together):
            some = tried[first : first + together]
            gain = np.fmax(_payoff_of_report(menu, cost, some) - honest, -np.inf)  # NaN gains nothing
            row = np.argmax(gain, axis=0)[None, :]
            most, report = (np.take_along_axis(values, row, axis=0)[0] for values in (gain, some))
            better = most > best
            best[better], at[better] = most[better], report[better]
        tried = np.clip(at + np.linspace(-1.0, 1.0, 9)[:, None] * width, low, high)
        width /= 4.0
    return best, at


def _payoff_of_report(menu: ScreeningMenu, cost: FloatArray, report: FloatArray) -> FloatArray:
    """The payoff of the best work after reports of shape (…, N) within the distribution's range."""
    model, labeling_cost = menu.model, menu.clients.labeling_cost
    assigned, slope = menu.batch_size_at(report), menu.slope_at(report)
    with np.errstate(divide="ignore"):
        batch = np.clip(np.sqrt(slope * model.sampling / (menu.rounds * cost)), 1.0, menu._largest)
    saved_labeling = np.maximum(0.0, labeling_cost - slope * model.labeling)
    transfer = menu.rent_at(report) + menu.rounds * report * assigned
    payoff: FloatArray = (
        transfer + slope * model.sampling * (1.0 / assigned - 1.0 / batch) - menu.rounds * cost * batch + saved_labeling
    )
    return payoff


@dataclass(frozen=True, eq=False)
class WholeMenu:
    """The items of one client's screening menu with whole batch sizes D, by rising D.

    Each is the item of `ScreeningMenu` at the cost c_D at which D'(c_D) = D: LCEME's pay at the cost c_D, and a rent.
    One more item may be needed at either end of the distribution's range. For it the menu is continued with √ĉ D'(ĉ)
    constant, which never rises there either. A client who states a cost gets the item that leaves them most if they
    then do what it asks for.

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
        """The position of the item for a client who states this cost."""
        return int((self._switches > stated_cost).sum())

    def margin(self, sampling: float, error: float) -> float:
        """The amount added to every item so that nobody's pay is below their cost if the loss is too high by `error`.

        It is the same for all items, so it changes nobody's best statement. The worst of an item's costs is the highest
        one at which it is chosen.
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
        """The costs below which the next larger item leaves more, for each item but the largest."""
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
    """The cost at which the menu, continued beyond an end of its range, has this batch, and the increase of the rent.

    With √c D' constant, rent is the integral of T D'(end) √(end/z).
    """
    cost = end * (batch_at_end / batch) ** 2
    return cost, 2.0 * rounds * batch_at_end * np.sqrt(end) * (np.sqrt(end) - np.sqrt(cost))


def plan_screened(inputs: PlanInputs) -> LCEME:
    """The contract: clients who state their cost get their item of the menu, and others the server's best batches.

    For a client who states their cost, the margin covers the loss error measured with the smallest batches of all
    menus. So it does not depend on anybody's statement.
    """
    clients, model, training = inputs.clients, inputs.loss_model, inputs.training
    stated = _who_states(inputs)
    menus = _menus(inputs, stated)
    cost, rent = clients.sample_cost.copy(), np.zeros(len(clients))
    for client, menu in menus.items():
        cost[client] = menu.highest
    batches = optimal_batch_sizes(
        replace(clients, sample_cost=cost), model, training, loss_value=inputs.prices.loss_value
    ).astype(float)
    for client, menu in menus.items():
        batches[client] = menu.batch_size[0]
    error = covered_error(inputs.loss_error(batches.copy()), confidence=inputs.prices.confidence)
    for client, menu in menus.items():
        item = menu.item(float(clients.sample_cost[client]))
        batches[client], cost[client] = menu.batch_size[item], menu.cost[item]
        rent[client] = menu.rent[item] + menu.margin(float(model.sampling[client]), error)
    at_items = replace(clients, sample_cost=cost)
    bare = lceme(at_items, model, training, batches)
    margin = confidence_margin(bare, inputs.loss_error(batches), confidence=inputs.prices.confidence)
    return lceme(at_items, model, training, batches, margin=np.where(stated, rent, margin) + inputs.prices.margin)


def stated_rents(inputs: PlanInputs) -> FloatArray:
    """What their item leaves each client at their stated cost, without margins; 0 for a client who states none."""
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
        menu = ScreeningMenu(alone, own, inputs.training, distribution, loss_value=inputs.prices.loss_value)
        menu.batch_size(alone.sample_cost)
        return whole_menu(menu)
    except InfeasibleError as error:
        raise InfeasibleError(str(error), (client,)) from None
