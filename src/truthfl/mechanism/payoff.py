"""What is left over: of pay after costs for a client, of the model's worth after pay for the server.

Looks at `formulas`, `setting`, `loss_model`, `strategies`, `observation`, `contribution`. docs/mechanism.md, section 1.
"""

from __future__ import annotations

import numpy as np

from truthfl.errors import InputError
from truthfl.mechanism import formulas
from truthfl.mechanism.checks import FloatArray, number
from truthfl.mechanism.contribution import model_coalition_loss, observe
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.observation import PaymentRule
from truthfl.mechanism.setting import Clients, Training, batch_price
from truthfl.mechanism.strategies import Strategies


def require_same_clients(rule: PaymentRule, clients: Clients, model: LossModel) -> None:
    """Rule, clients and loss model are about the same federation."""
    if not len(np.atleast_1d(rule.batch_size)) == len(clients) == len(model):
        raise InputError(
            f"{rule.name} is for {len(np.atleast_1d(rule.batch_size))} clients, the loss model for {len(model)}, and "
            f"there are {len(clients)}; all three must be the same."
        )


def work_cost(clients: Clients, training: Training, strategies: Strategies) -> FloatArray:
    """c_l e_i + T q_i c_p D_i, what client i's real work costs her."""
    price = batch_price(clients, training)
    cost: FloatArray = formulas.work_cost(
        clients.labeling_cost, strategies.labeling_effort, price, strategies.batch_size
    )
    return cost


def pay_on_model(
    rule: PaymentRule,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """What the rule pays each client: at the loss that the model expects, or at the one that was seen."""
    played = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    if played.batch_size.shape != (len(model),):
        raise InputError(
            f"strategies have shape {played.batch_size.shape}; they must be one profile of {len(model)} clients."
        )
    loss = float(model.expected_loss(played)) if test_loss is None else number("test_loss", test_loss)
    seen = observe(
        rule,
        test_loss=loss,
        claimed_batch_size=played.claimed_batch_size,
        coalition_loss=model_coalition_loss(model, played),
    )
    return rule.pay(seen)


def client_payoff(
    rule: PaymentRule,
    clients: Clients,
    model: LossModel,
    training: Training,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """u_i = r_i − c_l e_i − T q_i c_p D_i for every client.

    Everybody is honest unless `strategies` says otherwise. Expected on the loss model, unless `test_loss` is given.
    """
    require_same_clients(rule, clients, model)
    played = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    return pay_on_model(rule, model, played, test_loss=test_loss) - work_cost(clients, training, played)


def server_payoff(
    rule: PaymentRule,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    loss_value: float = 1.0,
    test_loss: float | None = None,
) -> float:
    """u_0 = −κ f(w_T, ξ) − Σ r_i, expected on the loss model, unless `test_loss` is given."""
    kappa = number("loss_value", loss_value, positive=True)
    played = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    loss = float(model.expected_loss(played)) if test_loss is None else number("test_loss", test_loss)
    return -kappa * loss - float(np.sum(pay_on_model(rule, model, played, test_loss=loss)))
