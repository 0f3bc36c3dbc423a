"""Payoffs: a client's pay less her cost; the value of the model to the server less all pay.

docs/mechanism.md, section 1.
"""

from __future__ import annotations

import numpy as np

from truthfl.errors import InputError
from truthfl.mechanism import formulas
from truthfl.mechanism.checks import FloatArray, number
from truthfl.mechanism.contribution import model_coalition_loss, observe
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.setting import Clients, Training, batch_price
from truthfl.mechanism.strategies import Strategies


def require_same_clients(rule: Mechanism, clients: Clients, model: LossModel) -> None:
    """Raise `InputError` unless rule, clients and loss model have the same number of clients."""
    if not len(np.atleast_1d(rule.batch_size)) == len(clients) == len(model):
        raise InputError(
            f"{rule.name} is for {len(np.atleast_1d(rule.batch_size))} clients, the loss model for {len(model)}, and "
            f"there are {len(clients)}; all three must be the same."
        )


def work_cost(clients: Clients, training: Training, strategies: Strategies) -> FloatArray:
    """c_l e_i + T q_i c_p D_i, the cost of each client's real work."""
    price = batch_price(clients, training)
    cost: FloatArray = formulas.work_cost(
        clients.labeling_cost, strategies.labeling_effort, price, strategies.batch_size
    )
    return cost


def pay_on_model(
    rule: Mechanism,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """The rule's pay to each client at the expected loss of the model, or at `test_loss`."""
    profile = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    if profile.batch_size.shape != (len(model),):
        raise InputError(
            f"strategies have shape {profile.batch_size.shape}; they must be one profile of {len(model)} clients."
        )
    loss = float(model.expected_loss(profile)) if test_loss is None else number("test_loss", test_loss)
    observation = observe(
        rule,
        test_loss=loss,
        claimed_batch_size=profile.claimed_batch_size,
        coalition_loss=model_coalition_loss(model, profile),
    )
    return rule.pay(observation)


def client_payoff(
    rule: Mechanism,
    clients: Clients,
    model: LossModel,
    training: Training,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """u_i = r_i − c_l e_i − T q_i c_p D_i for every client.

    All clients are honest unless `strategies` is given. At the expected loss unless `test_loss` is given.
    """
    require_same_clients(rule, clients, model)
    profile = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    return pay_on_model(rule, model, profile, test_loss=test_loss) - work_cost(clients, training, profile)


def server_payoff(
    rule: Mechanism,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    loss_value: float = 1.0,
    test_loss: float | None = None,
) -> float:
    """u_0 = −κ f(w_T, ξ) − Σ r_i, at the expected loss unless `test_loss` is given."""
    kappa = number("loss_value", loss_value, positive=True)
    profile = Strategies.truthful(rule.batch_size) if strategies is None else strategies
    loss = float(model.expected_loss(profile)) if test_loss is None else number("test_loss", test_loss)
    return -kappa * loss - float(np.sum(pay_on_model(rule, model, profile, test_loss=loss)))
