"""Random federations over wide ranges, and a slow version of the mechanism, client by client as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truthfl import Clients, Constants, LossModel, Training, labeling_floor, paper_bound, sound_bound


@dataclass(frozen=True)
class Federation:
    clients: Clients
    training: Training
    constants: Constants
    model: LossModel
    loss_value: float
    lowest: np.ndarray  # smallest whole truthful batch sizes

    @property
    def setting(self):
        return self.clients, self.model, self.training


def decades(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def client_decades(count, low, high):
    return arrays(float, count, elements=st.floats(low, high)).map(lambda exponents: 10.0**exponents)


@st.composite
def federations(draw, max_clients=50, room=1000, participation=True, bounds=(paper_bound, sound_bound)):
    """A federation in which every client can be made truthful; `room` is how far their data exceed the floor."""
    count = draw(st.integers(1, max_clients))
    weight = draw(client_decades(count, -4, 0))
    partial = participation and draw(st.booleans())
    known = {
        "weight": weight / weight.sum(),
        "gradient_variance": draw(client_decades(count, -3, 3)),
        "sample_cost": draw(client_decades(count, -3, 3)),
        "labeling_cost": draw(client_decades(count, -3, 3)),
        "heterogeneity": draw(arrays(float, count, elements=st.floats(0, 10))),
        "participation": draw(arrays(float, count, elements=st.floats(0.05, 1.0))) if partial else 1.0,
    }
    smoothness = draw(decades(-2, 2))
    constants = Constants(
        smoothness=smoothness,
        strong_convexity=smoothness * draw(decades(-4, 0)),
        label_shift=draw(decades(-3, 3)),
        gradient_bound=draw(st.just(0.0) | decades(-3, 3)),
        initial_distance=draw(decades(-2, 2)),
        optimal_loss=draw(st.floats(0.0, 5.0)),
    )
    step_size = draw(st.floats(1e-3, 1.0)) / (4.0 * smoothness)
    training = Training(draw(st.integers(1, 1000)), draw(st.integers(1, 10)), step_size)
    bound = draw(st.sampled_from(bounds))
    unlimited = Clients(dataset_size=2**40, **known)
    model = bound(unlimited, training, constants)
    floor = labeling_floor(unlimited, model, training)
    lowest = np.maximum(np.ceil(floor * (1 - 1e-12)), 1.0)
    extra = draw(arrays(np.int64, count, elements=st.integers(0, room)))
    clients = Clients(dataset_size=lowest.astype(np.int64) + extra, **known)
    return Federation(clients, training, constants, model, draw(decades(-3, 6)), lowest)


def assignments(federation):
    """Any whole batch sizes between floor and data."""
    count = len(federation.clients)
    span = federation.clients.dataset_size - federation.lowest
    return arrays(float, count, elements=st.floats(0, 1)).map(
        lambda share: federation.lowest + np.floor(share * (span + 0.999))
    )


def theorem_1(clients, training, constants, strategies):
    """The right-hand side of Theorem 1, with its double sum over rounds and local steps."""
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    T, H, G2, beta = training.rounds, training.local_steps, constants.gradient_bound, constants.label_shift
    bound = L * (1 - mu * eta) ** (T * H) * constants.initial_distance
    for t in range(1, T + 1):
        for h in range(1, H + 1):
            per_step = 0.0
            for i in range(len(clients)):
                p, variance, d = clients.weight[i], clients.gradient_variance[i], clients.heterogeneity[i]
                e, D, gamma = (
                    strategies.labeling_effort[i],
                    strategies.batch_size[i],
                    strategies.report_scale[i],
                )
                per_step += p**2 * variance / D + 6 * L * p * d + p * (1 - e) * beta
                per_step += 2 * p * ((gamma - 1) ** 2 + (H - 1) ** 2) * (G2 + variance / D + (1 - e) * beta)
            bound += 2 * L * eta**2 * (1 - mu * eta) ** (T * H - (t - 1) * H - h) * per_step
    return bound


def sound_recursion(clients, training, constants, strategies):
    """The sound bound as the recursion of its proof: step by step, a jump at the end of each round."""
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    H, G2, beta = training.local_steps, constants.gradient_bound, constants.label_shift
    x = mu * eta
    noise = bias = drift = jump = absence = hetero = 0.0
    for i in range(len(clients)):
        p, variance, q = clients.weight[i], clients.gradient_variance[i], clients.participation[i]
        e, D, gamma = strategies.labeling_effort[i], strategies.batch_size[i], strategies.report_scale[i]
        S = 2 * ((1 - e) * beta + variance / D + G2)
        noise += p**2 * variance / D
        bias += p * (1 - e) * beta
        drift += p * S
        jump += p * (gamma - 1) ** 2 * S
        absence += p**2 * (1 - q) / q * (2 + 2 * (gamma - 1) ** 2) * S
        hetero += p * clients.heterogeneity[i]
    step = (1 + x / 2) * (6 * L * eta**2 * hetero + 2 * eta**2 * (H - 1) ** 2 * drift)
    step += eta**2 * noise + (eta**2 + 2 * eta / mu) * bias
    end = (eta**2 * H**2 + 4 * eta * H / mu) * jump + eta**2 * H**2 * absence
    rho = 1 - x / 4
    distance = constants.initial_distance
    for _ in range(training.rounds):
        for _ in range(H):
            distance = rho * distance + (1 + H * x / 4) * step
        distance += end
    return L / 2 * distance


def gap(model, strategies):
    total = model.constant
    for i in range(len(model)):
        e, D, gamma = strategies.labeling_effort[i], strategies.batch_size[i], strategies.report_scale[i]
        total += model.sampling[i] / D + model.labeling[i] * (1 - e)
        total += (gamma - 1) ** 2 * (
            model.reporting[i] + model.reporting_sampling[i] / D + model.reporting_labeling[i] * (1 - e)
        )
    return total


def lceme_payoff(clients, model, training, assigned, strategies, i):
    """Client i's expected payoff under LCEME, from the definitions."""
    T = training.rounds * clients.participation[i]
    price = T * clients.sample_cost[i]
    honest = model.constant + sum(model.sampling[j] / assigned[j] for j in range(len(model)))
    slope = price * assigned[i] ** 2 / model.sampling[i]
    base = slope * (honest + model.optimal_loss) + price * assigned[i]
    reward = base - slope * (gap(model, strategies) + model.optimal_loss) + clients.labeling_cost[i]
    return reward - clients.labeling_cost[i] * strategies.labeling_effort[i] - price * strategies.batch_size[i]
