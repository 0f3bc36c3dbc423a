"""The paper's six errors (docs/errata.md), each computed as printed and corrected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truthfl.contracts.deviation import best_deviation
from truthfl.contracts.lceme.assignment import labeling_floor, optimal_batch_sizes
from truthfl.contracts.lceme.contract import lceme
from truthfl.contracts.loss_model import linear_regression_label_shift, paper_bound, sound_bound
from truthfl.contracts.payoff import client_payoff
from truthfl.contracts.setting import Clients, Constants, Strategies, Training
from truthfl.learning.models.quadratic import QuadraticFederation, QuadraticOutcome, describe, train_exactly


@dataclass(frozen=True)
class Erratum:
    """One error: the quantity, its printed and its correct value, and the effect of the printed one."""

    number: int
    where: str
    quantity: str
    printed: float
    correct: float
    consequence: str


def errata() -> tuple[Erratum, ...]:
    """All six errors, computed by this call."""
    return (_floor(), _optimum(), _theorem(), _base(), _label_shift(), _reports())


def example(local_steps: int = 1, labeling_cost: float = 50.0) -> tuple[Clients, Training, Constants]:
    """Ten equal clients: p = .1, σ² = 4, β = 2, L = 1, μ = .1, η = .05, T = 100, c_p = .01."""
    clients = Clients(
        weight=np.full(10, 0.1), gradient_variance=4, sample_cost=0.01, labeling_cost=labeling_cost, dataset_size=1000
    )
    constants = Constants(
        smoothness=1.0,
        strong_convexity=0.1,
        label_shift=2.0,
        gradient_bound=1.0,
        initial_distance=1.0,
        optimal_loss=0.25,
    )
    return clients, Training(100, local_steps, 0.05), constants


def biased_descent(step_size: float) -> tuple[QuadraticOutcome, float, float]:
    """The counterexample to Theorem 1: (outcome of training, the paper's bound, the sound bound).

    One client, F(w) = w²/2, the true label always 0. They draw labels from {0, 1} instead, so β = 1/2 and the bias of
    their gradient is always 1/2. Their batches are so large that there is no sampling noise.
    """
    federation = QuadraticFederation(
        curvature=np.ones((1, 1)),
        optimum=np.zeros((1, 1)),
        label_bias=np.full((1, 1), -0.5),
        noise=np.array([0.25]),
        weight=np.ones(1),
        availability=np.ones(1),
        start=np.zeros(1),
    )
    training = Training(int(20 / step_size), 1, step_size)
    idle = Strategies([0.0], [1e9], [1.0])
    outcome = train_exactly(federation, training, idle)
    clients, constants = describe(federation, outcome.gradient_bound)
    constants = replace(constants, label_shift=0.5)
    paper, sound = (bound(clients, training, constants).gap(idle) for bound in (paper_bound, sound_bound))
    return outcome, float(paper), float(sound)


def _floor() -> Erratum:
    clients, training, constants = example()
    model = paper_bound(clients, training, constants)
    printed = labeling_floor(clients, model, training, as_printed=True)
    lie = best_deviation(lceme(clients, model, training, printed, as_printed=True), clients, model, training)
    return Erratum(
        1,
        "LCEME's definition, Theorem 4",
        "smallest batch at which labeling pays",
        float(printed[0]),
        float(labeling_floor(clients, model, training)[0]),
        f"at the printed floor a client gains {lie.gain[0]:.1f} by not labeling",
    )


def _optimum() -> Erratum:
    clients, training, constants = example(local_steps=3, labeling_cost=1e-6)
    model = paper_bound(clients, training, constants)
    printed = float(optimal_batch_sizes(clients, model, training, as_printed=True)[0])
    correct = float(np.sqrt(model.sampling[0] / (training.rounds * clients.sample_cost[0])))

    def server_cost(batch: float) -> float:
        return float(model.sampling[0] / batch + training.rounds * clients.sample_cost[0] * batch)

    return Erratum(
        2,
        "Theorem 4, H = 3",
        "best batch size, not rounded",
        printed,
        correct,
        f"loss and pay together cost the server {server_cost(printed):.3f} a client, not {server_cost(correct):.3f}",
    )


def _theorem() -> Erratum:
    outcome, printed, sound = biased_descent(0.01)
    return Erratum(
        3,
        "Theorem 1, a client that does not label, η = 0.01",
        "bound on the loss gap",
        printed,
        sound,
        f"the loss gap really is {outcome.gap:.4f}",
    )


def _base() -> Erratum:
    clients, training, constants = example()
    model = paper_bound(clients, training, constants)
    batches = optimal_batch_sizes(clients, model, training)
    paid = [
        float(client_payoff(lceme(clients, model, training, batches, as_printed=flag), clients, model, training)[0])
        for flag in (True, False)
    ]
    return Erratum(
        4,
        "Ω, F(w*) left out",
        "honest client's expected payoff",
        paid[0],
        paid[1],
        f"honest work is a loss of Φ F(w*) = {-paid[0]:.1f}",
    )


def _label_shift() -> Erratum:
    printed = linear_regression_label_shift(1.0, -1.0, 1.0, as_printed=True)
    correct = linear_regression_label_shift(1.0, -1.0, 1.0)
    return Erratum(
        5,
        "β of linear regression, y² ≤ 1, ‖x‖² ≤ 1",
        "β",
        printed,
        correct,
        "with y = −1, y' = 1, ‖x‖ = 1 the gradients differ by 2, squared 4",
    )


def _reports() -> Erratum:
    clients, training, constants = example()
    model = paper_bound(clients, training, constants)
    zero, one, two = (float(model.gap(Strategies(1.0, np.full(10, 50.0), scale))) for scale in (0.0, 1.0, 2.0))
    return Erratum(
        6,
        "evaluation: which γ has the same bound as γ = 0",
        "γ",
        1.0,
        2.0,
        f"bounds {zero:.4f}, {one:.4f} and {two:.4f} at γ = 0, 1 and 2",
    )
