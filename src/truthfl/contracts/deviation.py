"""The largest gain of each client from deviating while the others are honest: by formula and by search.

Works for any contract on any loss model, also another one than it was planned on. docs/mechanism.md,
sections 3 and 6.

For each labeling effort and each claim there is a coarse grid over batch size (in its logarithm) and report scale.
Finer and finer grids follow around the best point. All clients are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.contracts import formulas
from truthfl.contracts.contract import Contract, Contribution, LinearPay, Observation
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.payoff import pay_slope, require_same_clients, work_cost
from truthfl.contracts.setting import Clients, FloatArray, Strategies, Training, batch_price

AGREEMENT = 1e-6  # largest difference between search and closed form, as a share of the money at stake
ROUNDING_UNITS = 64.0


@dataclass(frozen=True, eq=False)
class Deviation:
    """The best deviations of all clients, each assuming that the others are honest.

    gain              payoff above that of honest work; 0 if honest work is best
    strategies        the best deviations
    honest_payoff     payoff of honest work
    honest_pay        pay for honest work
    closed_form_gain  the gain by formula; None if the contract has none
    searched_gain     the gain by a search that does not use the formula; None if there was no search
    resolution        differences in money below this are rounding errors
    """

    gain: FloatArray
    strategies: Strategies
    honest_payoff: FloatArray
    honest_pay: FloatArray
    closed_form_gain: FloatArray | None
    searched_gain: FloatArray | None
    resolution: FloatArray

    @property
    def confirmed(self) -> bool:
        """Whether formula and search agree for every client."""
        if self.closed_form_gain is None or self.searched_gain is None:
            return False
        stake = self.closed_form_gain + np.abs(self.honest_pay) + np.abs(self.honest_payoff)
        return bool((np.abs(self.closed_form_gain - self.searched_gain) <= AGREEMENT * stake + self.resolution).all())


def best_deviation(
    contract: Contract, clients: Clients, model: LossModel, training: Training, *, search: bool = True
) -> Deviation:
    """The largest gain of any joint deviation (e, D, γ and the claimed batch), per client.

    e is 0 or 1, D any number from 1 (or D', if that is less) to the client's data size, γ ≥ 0. A claim is the assigned
    batch size or all the client's data. If pay falls linearly with the loss that the client causes, slope Φ_i, the best
    deviation is known (section 3): γ = 1, D = √(Φ_i v_i/(T q_i c_p)) within their limits, and e = 1 exactly if
    Φ_i b_i ≥ c_l.
    """
    game = _Unilateral(contract, clients, model, training)
    formula = None if (linear := contract.linear()) is None else game.closed_form(linear)
    searched = None
    if search or formula is None:
        claims = [game.honest] if (game.honest == game.highest).all() else [game.honest, game.highest]
        searched = search_best(game.gain, game.lowest, game.highest, game.honest, claims)
    best = formula or searched
    assert best is not None
    return Deviation(
        gain=best[0],
        strategies=best[1],
        honest_payoff=game.honest_pay - game.honest_cost,
        honest_pay=game.honest_pay,
        closed_form_gain=None if formula is None else formula[0],
        searched_gain=None if searched is None else searched[0],
        resolution=game.resolution(),
    )


def pay_resolution(contract: Contract, clients: Clients, model: LossModel, training: Training) -> FloatArray:
    """(clients,) Differences in each client's pay below this are rounding errors."""
    return _Unilateral(contract, clients, model, training).resolution()


def is_truthful(
    contract: Contract,
    clients: Clients,
    model: LossModel,
    training: Training,
    *,
    tolerance: float = 1e-9,
    search: bool = True,
) -> bool:
    """Whether no client gains by a joint deviation more than this share of their cost of honest work (and rounding)."""
    best = best_deviation(contract, clients, model, training, search=search)
    cost = best.honest_pay - best.honest_payoff
    within = best.gain <= tolerance * cost + (0.0 if best.closed_form_gain is not None else best.resolution)
    if best.searched_gain is not None:
        within &= best.searched_gain <= tolerance * cost + best.resolution
    return bool(within.all())


def is_individually_rational(
    contract: Contract, clients: Clients, model: LossModel, training: Training, *, tolerance: float = 1e-9
) -> bool:
    """Whether no honest client is paid below their cost in expectation by more than this share of it (and rounding)."""
    game = _Unilateral(contract, clients, model, training)
    payoff = game.honest_pay - game.honest_cost
    return bool((payoff >= -tolerance * game.honest_cost - game.resolution()).all())


def absence_rise(model: LossModel, batch_size: FloatArray) -> FloatArray:
    """g_i − v_i/D'_i: by how much the loss rises without client i (section 6). Times κ, what their work is worth."""
    rise: FloatArray = model.reporting - model.sampling / batch_size
    return rise


def free_riding_gain(contract: Contract, clients: Clients, model: LossModel, training: Training) -> FloatArray:
    """The gain of each client by sending back the received model unchanged: no labels, no computing, γ_i = 0.

    The paper's strategies have D_i ≥ 1, so they leave this out. Nothing of the client's reaches the model, so only g_i
    is left of their bracket of the gap. They gain c_l + 2 T q_i c_p D'_i − Φ_i g_i. Honest work is best only where this
    is not positive (section 6). Negative where free riding costs them money.
    """
    require_same_clients(contract, clients, model)
    cost = work_cost(clients, training, Strategies.truthful(contract.batch_size))
    rise = absence_rise(model, contract.batch_size)
    if contract.linear() is not None:
        return cost - pay_slope(contract) * rise
    game = _Unilateral(contract, clients, model, training)
    return cost + game.pay(rise, game.honest) - game.honest_pay


class _Unilateral:
    """N game computed at once: in scenario i client i deviates and the others are honest."""

    def __init__(self, contract: Contract, clients: Clients, model: LossModel, training: Training) -> None:
        require_same_clients(contract, clients, model)
        self.contract, self.model = contract, model
        self.honest = np.asarray(contract.batch_size, dtype=float)
        self.lowest = np.minimum(1.0, self.honest)
        self.highest = np.maximum(clients.dataset_size, self.honest)
        self.price, self.labeling_cost = batch_price(clients, training), clients.labeling_cost
        self.loss = model.truthful_loss(self.honest)
        self.own = model.own_gap(1.0, self.honest, 1.0)
        self.contribution = model.reporting - self.own
        positive = np.maximum(self.contribution, 0.0)
        self.others_contribution = positive.sum() - positive
        self.honest_cost = work_cost(clients, training, Strategies.truthful(self.honest))
        self.honest_pay = self.pay(np.zeros(len(model)), self.honest)

    def pay(self, change: FloatArray, claimed: FloatArray) -> FloatArray:
        """The pay of each client if they alone change the loss by `change`."""
        own = self.contribution - change
        contribution = Contribution(own, self.others_contribution + np.maximum(own, 0.0))
        return self.contract.pay(Observation(self.loss + change, claimed_batch_size=claimed, contribution=contribution))

    def gain(self, effort: float, batch: FloatArray, scale: FloatArray, claimed: FloatArray) -> FloatArray:
        change = self.model.own_gap(effort, batch, scale) - self.own
        cost: FloatArray = formulas.work_cost(self.labeling_cost, effort, self.price, batch)
        return self.pay(change, claimed) - self.honest_pay - (cost - self.honest_cost)

    def closed_form(self, pay: LinearPay) -> tuple[FloatArray, Strategies]:
        slope, claim_rate = np.asarray(pay.slope, dtype=float), np.asarray(pay.claim_rate, dtype=float)
        with np.errstate(over="ignore"):
            batch = np.clip(np.sqrt(slope * self.model.sampling / self.price), self.lowest, self.highest)
        labeling_pays = slope * self.model.labeling >= self.labeling_cost * (1.0 - 1e-12)
        effort = labeling_pays.astype(float)
        claimed = np.where(claim_rate > 0, self.highest, self.honest)
        saved = self.price * (self.honest - batch) - slope * self.model.sampling * (1.0 / batch - 1.0 / self.honest)
        idle = np.maximum(self.labeling_cost - slope * self.model.labeling, 0.0) * (1.0 - effort)
        gain = np.maximum(saved, 0.0) + idle + claim_rate * (claimed - self.honest)
        return gain, Strategies(effort, batch, 1.0, claimed)

    def resolution(self) -> FloatArray:
        """The effect of rounding errors on each client's pay: a few units in the last place of loss and pay."""
        unit = ROUNDING_UNITS * np.finfo(float).eps
        nudge = np.full(len(self.model), unit * abs(self.loss))
        moved = np.abs(self.pay(nudge, self.honest) - self.pay(-nudge, self.honest))
        return moved + unit * (np.abs(self.honest_pay) + self.honest_cost)


Gain = Callable[[float, FloatArray, FloatArray, FloatArray], FloatArray]
"""(labeling effort, batch sizes, report scales, claimed batch sizes) → gain of each client over honest work."""

COARSE_BATCHES = 33
COARSE_SCALES = 21  # of u = γ/(1+γ) in [0, 1): γ = 1 is in the middle
LARGEST_SCALE = 99.0
FINE = 7
ZOOMS = 22
SHRINK = 0.45
VALUES_AT_ONCE = 1 << 21


def search_best(
    gain: Gain, lowest: FloatArray, highest: FloatArray, honest: FloatArray, claims: Sequence[FloatArray]
) -> tuple[FloatArray, Strategies]:
    """The largest gain found for each client, at least 0 (honest work itself), and its strategy."""
    count = len(lowest)
    best = np.zeros(count)
    effort, batch, scale, claim = np.ones(count), honest.copy(), np.ones(count), honest.copy()
    for labels in (0.0, 1.0):
        for claimed in claims:
            gains, at_batch, at_scale = _search_plane(gain, labels, claimed, lowest, highest)
            better = gains > best
            best[better], effort[better] = gains[better], labels
            batch[better], scale[better], claim[better] = at_batch[better], at_scale[better], claimed[better]
    return best, Strategies(effort, batch, scale, claim)


def _search_plane(
    gain: Gain, labels: float, claimed: FloatArray, lowest: FloatArray, highest: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    bottom, height = np.log(lowest), np.log(highest) - np.log(lowest)
    right = LARGEST_SCALE / (1.0 + LARGEST_SCALE)
    x, u = np.zeros(len(lowest)), np.full(len(lowest), 0.5)
    best = np.full(len(lowest), -np.inf)

    def visit(offsets: FloatArray, centre_x: FloatArray, centre_u: FloatArray) -> None:
        rows = max(1, VALUES_AT_ONCE // len(lowest))
        for start in range(0, len(offsets), rows):
            block = offsets[start : start + rows]
            xs = np.clip(centre_x + block[:, :1], 0.0, 1.0)
            us = np.clip(centre_u + block[:, 1:], 0.0, right)
            batch = np.clip(np.exp(bottom + xs * height), lowest, highest)
            values = gain(labels, batch, us / (1.0 - us), claimed)
            row = np.argmax(values, axis=0)
            value = np.take_along_axis(values, row[None], axis=0)[0]
            better = value > best
            best[better] = value[better]
            x[better] = np.take_along_axis(xs, row[None], axis=0)[0][better]
            u[better] = np.take_along_axis(np.broadcast_to(us, values.shape), row[None], axis=0)[0][better]

    batches = np.linspace(0.0, 1.0, COARSE_BATCHES)
    scales = np.arange(COARSE_SCALES) / (COARSE_SCALES - 1)
    visit(_points(batches, scales), np.zeros_like(x), np.zeros_like(u))
    steps = np.linspace(-1.0, 1.0, FINE)
    width = 1.0
    for _ in range(ZOOMS):
        visit(
            _points(steps * width / (COARSE_BATCHES - 1), steps * width / (COARSE_SCALES - 1)),
            x.copy(),
            u.copy(),
        )
        width *= SHRINK
    return best, np.clip(np.exp(bottom + x * height), lowest, highest), u / (1.0 - u)


def _points(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
