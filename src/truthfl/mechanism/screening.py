"""Private costs: a menu of contracts from which a client's best choice is the one for her true sample cost.

docs/mechanism.md, section 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InfeasibleError, InputError
from truthfl.mechanism.assignment import require_usable
from truthfl.mechanism.checks import FloatArray, client_array, list_clients, number
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.virtual_cost import CostDistribution, VirtualCost, bisect

PAYOFFS_TOGETHER = 2**14  # reports times clients whose payoffs are computed at once; bounds the memory of a search


class ScreeningMenu:
    """Batch sizes and pay of all clients as functions of the costs ĉ that they report.

    D'(ĉ) = max( √(κ v/(T ψ(ĉ))), √(c_l v/(T b ĉ)) ), within [1, n]      Φ(ĉ) = T c̃ D'(ĉ)²/v
    rent(ĉ) = ∫_ĉ^c̄ T D'(z) dz        r = Φ (gap + F̂* − f) + T ĉ D'(ĉ) + rent(ĉ) + c_l

    with T standing for T q_i. c̃ is ĉ, except that all reports below the cost at which D' reaches the data size n share
    one item, and so do all above the cost at which it reaches 1. D' is a real number here: between two whole sizes, use
    both in turn.
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
        """D' at costs of shape (…, N), of which it is not checked that they lie in the distribution's range."""
        return np.clip(self._unlimited(cost), 1.0, self._largest)

    def cost_at(self, batch_size: FloatArray) -> FloatArray:
        """The cost of the menu's item with these batch sizes, of shape (…, N) and within what D' takes."""
        low = np.full_like(batch_size, self.virtual_cost.lowest)
        high = np.full_like(batch_size, self.virtual_cost.highest)
        cost = bisect(lambda cost: self._unlimited(cost) >= batch_size, low, high)
        return np.clip(cost, self._full_data, self._one_sample)

    def slope(self, reported_cost: ArrayLike) -> FloatArray:
        """Φ(ĉ)."""
        return self.slope_at(self._costs(reported_cost))

    def slope_at(self, cost: FloatArray) -> FloatArray:
        """Φ at costs of shape (…, N), of which it is not checked that they lie in the distribution's range."""
        item = np.clip(cost, self._full_data, self._one_sample)
        slope: FloatArray = self.rounds * item * np.square(self.batch_size_at(cost)) / self.model.sampling
        return slope

    def rent(self, reported_cost: ArrayLike) -> FloatArray:
        """rent(ĉ), the payoff of an honest client, due to the privacy of her cost; integrated piece by piece."""
        return self.rent_at(self._costs(reported_cost))

    def rent_at(self, cost: FloatArray) -> FloatArray:
        """The rent at costs of shape (…, N), of which it is not checked that they lie in the distribution's range."""
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

    def contract(self, reported_cost: ArrayLike) -> Contract:
        """The contract for the reported costs of all clients."""
        cost = self._costs(reported_cost)
        batches, slope = self.batch_size(cost), self.slope(cost)
        base = slope * self.model.truthful_loss(batches) + self.rounds * cost * batches + self.rent(cost)
        own_cost = self.clients.labeling_cost.copy()
        return Contract(batches, slope, base, own_cost, name="lceme with private costs")

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
    """The most a client gains by reporting a false cost and then also working otherwise than assigned, and that report.

    Searched over reports; for each report the best (e, D, γ) is the one of `best_deviation`: γ = 1, D = √(Φ(ĉ) v/(T c))
    within her limits, and no labels if Φ(ĉ) b < c_l. The gain is measured against an honest report and honest work.
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
