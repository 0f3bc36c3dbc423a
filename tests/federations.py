"""Random federations over wide ranges: H from 1 to 10, N from 1 to 50, weights from 1e-4, costs over six decades."""

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
    """A federation in which every client can be made truthful; `room` is how far above the floor her data reach."""
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
