"""Batch sizes of all clients: docs/mechanism.md, sections 3 and 4."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.budget import best_whole_batch, spend_at_most
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import (
    Clients,
    FloatArray,
    IntArray,
    Training,
    batch_price,
    client_array,
    inner,
    list_clients,
    number,
    require_rounds,
    rounded_down,
    rounded_up,
)
from truthfl.errors import InfeasibleError, InputError

ROUNDING = 1e-12  # relative tolerance for rounding errors, when numbers are rounded up or compared with a budget


def labeling_floor(clients: Clients, model: LossModel, training: Training, *, as_printed: bool = False) -> FloatArray:
    """The smallest D'_i at which labeling is best for client i: √( c_l v_i / (T q_i c_p b_i) ) (section 3).

    `as_printed` gives the paper's value, which has an extra factor p_i under the root and is too low
    (docs/errata.md, number 1).
    """
    require_rounds(training)
    require_usable(clients, model)
    floor = _floor(clients, model, batch_price(clients, training))
    if as_printed:
        require_full_participation(clients)
        floor *= np.sqrt(clients.weight)
    return floor


def optimal_batch_sizes(
    clients: Clients,
    model: LossModel,
    training: Training,
    *,
    loss_value: float = 1.0,
    budget: float | None = None,
    margin: ArrayLike = 0.0,
    as_printed: bool = False,
) -> IntArray | FloatArray:
    """The server's best batch sizes D' (section 4): whole numbers that minimise κ·gap + total pay.

    Honest pay is c_l + T q_i c_p D'_i. So without a budget D'_i is the better whole neighbour of √(κ v_i/(T q_i c_p)),
    not below the labeling floor and not above the data. `loss_value` is κ, money per unit of loss. `budget` bounds the
    total honest pay, including the `margin` that the contract adds. Raises `InfeasibleError`, which names the clients,
    where no such assignment exists.

    `as_printed` gives the paper's Theorem 4, not rounded, not capped (docs/errata.md, number 2); its first root is
    the printed one when `model` is `paper_bound`.
    """
    require_rounds(training)
    kappa = number("loss_value", loss_value, positive=True)
    if as_printed:
        if budget is not None:
            raise InputError("budget is given with as_printed=True; the paper's formula has no budget.")
        return _as_printed(clients, model, training, kappa)
    price = batch_price(clients, training)
    require_usable(clients, model)
    lowest = _whole_floor(clients, model, price)

    batches = np.clip(best_whole_batch(model.sampling, price, kappa), lowest, clients.dataset_size)
    if budget is None:
        return batches
    money = number("budget", budget, positive=True)
    labeling = float(clients.labeling_cost.sum())
    labeling += float(client_array("margin", margin, len(clients), clients.label).sum())
    least = labeling + inner(price, lowest)
    if least > money * (1.0 + ROUNDING):
        raise InfeasibleError(
            f"budget is {money:g}; labeling and the smallest truthful batches alone cost {least:.12g}, "
            f"{least - money:g} more: raise the budget to {rounded_up(least):.10g} or leave clients out."
        )
    within_rounding = money * (1.0 + ROUNDING / 2.0)  # a cost equal to the budget is affordable
    for_batches = max(within_rounding - labeling, inner(price, lowest))
    return spend_at_most(for_batches, model.sampling * kappa, price, lowest, batches)


def require_usable(clients: Clients, model: LossModel) -> None:
    """Raise `InputError` unless loss model and clients match in size and each client's work affects the loss."""
    if len(clients) != len(model):
        raise InputError(f"the loss model is for {len(model)} clients; there are {len(clients)}.")
    for field, coefficients in (("sampling", model.sampling), ("labeling", model.labeling)):
        if not coefficients.min() > 0:
            first = int(np.argmin(coefficients))
            raise InputError(
                f"{field} of {clients.label(first)} in the loss model is 0; it must be positive, "
                "for pay by the loss cannot reward work that the loss does not show."
            )


def require_full_participation(clients: Clients) -> None:
    """Raise `InputError` if a client is sometimes absent; the paper's own formulas do not cover this."""
    if clients.participation.min() < 1.0:
        first = int(np.argmin(clients.participation))
        raise InputError(
            f"participation of {clients.label(first)} is {clients.participation[first]:g}; "
            "the paper's formulas (as_printed=True) need it to be 1."
        )


def _floor(clients: Clients, model: LossModel, price: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(clients.labeling_cost * model.sampling / price / model.labeling))


def _whole_floor(clients: Clients, model: LossModel, price: FloatArray) -> IntArray:
    floor = _floor(clients, model, price) * (1.0 - ROUNDING)
    whole: IntArray = np.clip(np.ceil(floor), 1.0, 2.0**62).astype(np.int64)
    beyond = whole > clients.dataset_size
    if beyond.any():
        positions = np.flatnonzero(beyond)
        size = clients.dataset_size[positions].astype(float)
        possible = price[positions] * size**2 * model.labeling[positions] / model.sampling[positions]
        highest_cost = {i: rounded_down(cost) for i, cost in zip(positions.tolist(), possible.tolist(), strict=True)}
        raise InfeasibleError(
            "no batch within the data makes labeling worth while for "
            + list_clients(
                positions.tolist(),
                lambda i: (
                    f"{clients.label(i)}: needs {float(whole[i]):.10g} samples, "
                    f"dataset_size is {clients.dataset_size[i]}, "
                    f"feasible with a labeling_cost of at most {highest_cost[i]:.6g} "
                    f"(now {clients.labeling_cost[i]:.6g})"
                ),
            )
            + "; leave them out (clients.without) or change the costs.",
            tuple(positions.tolist()),
        )
    return whole


def _as_printed(clients: Clients, model: LossModel, training: Training, kappa: float) -> FloatArray:
    floor = labeling_floor(clients, model, training, as_printed=True)
    drift = 2.0 * (training.local_steps - 1) ** 2
    p, variance = clients.weight, clients.gradient_variance
    misprint = (p * variance + drift) / (variance * (p + drift))
    root = np.sqrt(kappa * model.sampling * misprint / batch_price(clients, training))
    return np.maximum(root, floor)
