"""What lies are paid under a mechanism and what they gain over honest work, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.adversary.lie_point import TRUTH, LiePoint
from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence, Observation
from truthfl.mechanism.setting import Clients, Training, batch_price

SMALLEST_STEP = 1e-9  # lower limit of the step by which the slope of Shapley pay is computed


@dataclass(frozen=True, eq=False)
class Payer:
    """A rule with the clients and the training for which it pays.

    audition_cost  (N,) cost of training alone, if the rule pays by solo models
    """

    rule: Mechanism
    clients: Clients
    training: Training
    audition_cost: FloatArray | float = 0.0


@dataclass(frozen=True, eq=False)
class Honest:
    """Results of honest work in each case, arrays (cases,).

    liar            the client who is studied
    payer           position of the payer
    loss, without   test loss with her and without her
    joined, alone   of a coalition with her and without her; NaN unless Shapley pay needs them
    nobody          of the initial model; NaN likewise
    solo, shift     loss of her solo model, and the others' shift of the expected one; NaN and 0 unless needed
    """

    liar: IntArray
    payer: IntArray
    loss: FloatArray
    without: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray
    solo: FloatArray
    shift: FloatArray

    def first(self, cases: int) -> Honest:
        """The first cases."""
        return Honest(**{name: values[:cases] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Lied:
    """Results of lies, arrays (points, cases); fields as in `lie_runs.LieLosses`."""

    loss: FloatArray
    delivered: FloatArray
    joined: FloatArray
    solo: FloatArray


@dataclass(frozen=True, eq=False)
class Gains:
    """Money in each case.

    gain  (points, cases) payoff of the lie minus that of honest work
    pay   (cases,) honest pay
    cost  (cases,) cost of honest work
    """

    gain: FloatArray
    pay: FloatArray
    cost: FloatArray

    @property
    def unit(self) -> float:
        """Mean honest pay, or its cost if that is larger: the money of which gains are shares."""
        return max(float(self.pay.mean()), float(self.cost.mean()))


def gains(payers: Sequence[Payer], points: Sequence[LiePoint], lied: Lied, honest: Honest) -> Gains:
    """The gains of the points in each case. If a rule pays by claims, a liar claims to have used all her data."""
    truth = Lied(honest.loss[None], np.ones((1, len(honest.loss))), honest.joined[None], honest.solo[None])
    paid, honestly_paid = pay(payers, lied, honest, claims_all=True), pay(payers, truth, honest)[0]
    cost, of_lies = np.empty(len(honest.loss)), np.empty(lied.loss.shape)
    for number, payer in enumerate(payers):
        of_payer = np.flatnonzero(honest.payer == number)
        client = honest.liar[of_payer]
        price, assigned = batch_price(payer.clients, payer.training)[client], payer.rule.batch_size[client]
        labeling, owned = payer.clients.labeling_cost[client], payer.clients.dataset_size[client]
        alone = np.broadcast_to(payer.audition_cost, (len(payer.clients),))[client]
        cost[of_payer] = TRUTH.cost(labeling, price, assigned, owned) + alone
        passed = _passed(payer.rule, client, lied.solo[:, of_payer], honest.shift[of_payer])
        of_lies[:, of_payer] = [
            point.cost(labeling, np.where(stays, price, 0.0), assigned, owned) + point.solo_cost_factor * alone
            for point, stays in zip(points, passed, strict=True)
        ]
    return Gains(paid - of_lies - (honestly_paid - cost), honestly_paid, cost)


def pay(payers: Sequence[Payer], lied: Lied, honest: Honest, *, claims_all: bool = False) -> FloatArray:
    """The pay of the client of each case, (points, cases).

    Shapley pay: a contribution in one coalition per case is very noisy, so pay is linearized around the mean
    contribution over all cases; the total of all contributions is the drop from the initial model's loss.
    """
    paid = np.empty(lied.loss.shape)
    gained = honest.alone - lied.joined
    mean = np.broadcast_to(gained.mean(axis=1, keepdims=True), gained.shape)
    total = np.broadcast_to((honest.nobody - lied.loss).mean(axis=1, keepdims=True), gained.shape)
    step = np.broadcast_to(np.maximum(gained.std(axis=1, keepdims=True), SMALLEST_STEP), gained.shape)
    for number, payer in enumerate(payers):
        of_payer = np.flatnonzero(honest.payer == number)
        if not len(of_payer):
            continue
        rule, liar = payer.rule, honest.liar[of_payer]
        loss, delivered = lied.loss[:, of_payer], lied.delivered[:, of_payer]
        claimed = (payer.clients.dataset_size if claims_all else rule.batch_size)[liar]
        solo = (lied.solo[:, of_payer], honest.shift[of_payer])

        def at(contribution: FloatArray, all_contributions: FloatArray | float) -> FloatArray:
            observed = (loss, claimed, contribution, all_contributions)  # noqa: B023
            return _paid(rule, liar, delivered, observed, solo)  # noqa: B023

        if Evidence.SHAPLEY in rule.needs:
            around, of_all, by = mean[:, of_payer], total[:, of_payer], step[:, of_payer]
            above = np.maximum(around, 0.0)
            slope = (at(above + by, of_all) - at(above, of_all)) / by
            paid[:, of_payer] = at(around, of_all) + slope * (gained[:, of_payer] - around)
        else:
            paid[:, of_payer] = at(honest.without[of_payer] - loss, np.nan)
    return paid


def _passed(rule: Mechanism, liar: IntArray, solo: FloatArray, shift: FloatArray) -> NDArray[np.bool_]:
    """Whether the client of each case takes part in the joint training, (points, cases)."""
    wide = (*solo.shape, len(rule.batch_size))
    observation = Observation(0.0, solo_loss=solo[..., None], level_shift=shift[:, None])
    return np.broadcast_to(rule.passes(observation), wide)[:, np.arange(len(liar)), liar]


def _paid(
    rule: Mechanism, liar: IntArray, delivered: FloatArray, observed: Sequence[ArrayLike], solo: Sequence[FloatArray]
) -> FloatArray:
    """The rule's pay to the client of each case; `observed` are the first four fields of `Observation`.

    solo  solo losses (points, cases) and shifts (cases,)
    """
    shape, wide = delivered.shape, (*delivered.shape, len(rule.batch_size))
    loss, claimed, contribution, total = (
        np.broadcast_to(np.broadcast_to(values, shape)[..., None], wide) for values in observed
    )
    all_rounds = np.ones_like(delivered)[..., None]
    observation = Observation(
        loss,
        claimed,
        contribution,
        total,
        delivered=delivered[..., None],
        asked=all_rounds,
        solo_loss=solo[0][..., None],
        level_shift=solo[1][:, None],
    )
    pay = np.asarray(rule.pay(observation), dtype=float)
    if pay.shape != wide:
        raise InputError(f"mechanism {rule.kind!r} pays an array of shape {pay.shape}; it must be {wide}.")
    own: FloatArray = pay[:, np.arange(len(liar)), liar]
    if not np.isfinite(own).all():
        who = liar[~np.isfinite(own).all(axis=0)][0]
        raise InputError(f"mechanism {rule.kind!r} pays client {who} no finite amount.")
    return own
