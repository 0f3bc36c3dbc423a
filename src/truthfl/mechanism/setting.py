"""The setting of one job: `Clients`, `Training` and `Constants`, checked when they are created.

The symbols are those of docs/mechanism.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism import formulas
from truthfl.mechanism.checks import (
    FloatArray,
    IntArray,
    client_array,
    client_count,
    client_whole_numbers,
    names,
    number,
    whole_number,
)

WEIGHT_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, init=False, eq=False)
class Clients:
    """All N clients, one array per field. A single number applies to every client (except `weight`).

    Arrays are not copied and must not be changed while this object is in use. A contract has its own copies.

    weight             p_i  share of client i in the aggregate, above 0, summing to 1
    gradient_variance  σ_i² variance of one sample's gradient
    sample_cost        c_p  her cost of one sample in one round's gradient
    labeling_cost      c_l  her cost of labeling her data set once
    dataset_size       n_i  number of her samples
    heterogeneity      d_i  F_i(w*) − F_i(w_i*), how far her own optimum is from the common one
    participation      q_i  probability that she participates in a round
    name               her name in messages; "client 0", "client 1", … if not given
    """

    weight: FloatArray
    gradient_variance: FloatArray
    sample_cost: FloatArray
    labeling_cost: FloatArray
    dataset_size: IntArray
    heterogeneity: FloatArray
    participation: FloatArray
    name: tuple[str, ...] | None

    def __init__(
        self,
        *,
        weight: ArrayLike,
        gradient_variance: ArrayLike,
        sample_cost: ArrayLike,
        labeling_cost: ArrayLike,
        dataset_size: ArrayLike,
        heterogeneity: ArrayLike = 0.0,
        participation: ArrayLike = 1.0,
        name: Sequence[str] | None = None,
    ) -> None:
        count = client_count("weight", weight)
        object.__setattr__(self, "name", names(name, count))
        positive = {
            "weight": weight,
            "gradient_variance": gradient_variance,
            "sample_cost": sample_cost,
            "labeling_cost": labeling_cost,
        }
        checked: dict[str, FloatArray | IntArray] = {
            field: client_array(field, value, count, self.label, positive=True) for field, value in positive.items()
        }
        checked["dataset_size"] = client_whole_numbers("dataset_size", dataset_size, count, self.label, at_least=1)
        checked["heterogeneity"] = client_array("heterogeneity", heterogeneity, count, self.label, at_least=0.0)
        checked["participation"] = client_array(
            "participation", participation, count, self.label, positive=True, at_most=1.0
        )
        total = float(checked["weight"].sum())
        if abs(total - 1.0) > WEIGHT_SUM_TOLERANCE:
            raise InputError(f"weight sums to {total:g} over {count} clients; it must sum to 1.")
        for field, array in checked.items():
            object.__setattr__(self, field, array)

    def __len__(self) -> int:
        return len(self.weight)

    def label(self, position: int) -> str:
        """The name of the client at this position in messages."""
        return f"client {position}" if self.name is None else f"client {position} ({self.name[position]})"

    def without(self, positions: Iterable[int]) -> Clients:
        """The same federation with some clients left out and the weights of the rest scaled to sum to 1.

        The loss model depends on the weights and must be computed again for the remaining clients.
        """
        stay = np.ones(len(self), dtype=bool)
        for position in positions:
            if isinstance(position, bool | np.bool_) or not 0 <= position < len(self):
                raise InputError(f"client {position} cannot be left out; clients are numbered 0 to {len(self) - 1}.")
            stay[position] = False
        if not stay.any():
            raise InputError("leaving out every client leaves nobody; at least one client must stay.")
        weight = self.weight[stay]
        return Clients(
            weight=weight / weight.sum(),
            gradient_variance=self.gradient_variance[stay],
            sample_cost=self.sample_cost[stay],
            labeling_cost=self.labeling_cost[stay],
            dataset_size=self.dataset_size[stay],
            heterogeneity=self.heterogeneity[stay],
            participation=self.participation[stay],
            name=None if self.name is None else [self.name[i] for i in np.flatnonzero(stay)],
        )


@dataclass(frozen=True)
class Training:
    """Training parameters: T `rounds`, H `local_steps` in each, step size η."""

    rounds: int
    local_steps: int = 1
    step_size: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole_number("rounds", self.rounds, at_least=1))
        object.__setattr__(self, "local_steps", whole_number("local_steps", self.local_steps, at_least=1))
        object.__setattr__(self, "step_size", number("step_size", self.step_size, positive=True))

    @property
    def total_steps(self) -> int:
        """T·H."""
        return self.rounds * self.local_steps


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the loss functions.

    smoothness        L   every F_i is L-smooth
    strong_convexity  μ   every F_i is μ-strongly convex, μ ≤ L
    label_shift       β   bound on E‖∇f(w, ξ) − ∇f(w, ξ')‖², where ξ' is ξ with a random label
    gradient_bound    G²  bound on E‖∇F_i(w_t)‖² (the square itself)
    initial_distance  R²  E‖w_0 − w*‖² (the square itself)
    optimal_loss      F̂*  an estimate of F(w*) from above
    """

    smoothness: float
    strong_convexity: float
    label_shift: float
    gradient_bound: float
    initial_distance: float
    optimal_loss: float = 0.0

    def __post_init__(self) -> None:
        for field in ("smoothness", "strong_convexity", "label_shift"):
            object.__setattr__(self, field, number(field, getattr(self, field), positive=True))
        for field in ("gradient_bound", "initial_distance"):
            object.__setattr__(self, field, number(field, getattr(self, field), at_least=0.0))
        object.__setattr__(self, "optimal_loss", number("optimal_loss", self.optimal_loss))
        if self.strong_convexity > self.smoothness:
            raise InputError(
                f"strong_convexity is {self.strong_convexity:g}, above smoothness {self.smoothness:g}; "
                "no function is more convex than it is smooth."
            )


def batch_price(clients: Clients, training: Training) -> FloatArray:
    """T q_i c_p: client i's expected cost of one more sample in every batch of the job (section 2c).

    c_p is the cost of one sample in one *round*, whatever H is, as in the paper.
    """
    price: FloatArray = formulas.batch_price(training.rounds, clients.participation, clients.sample_cost)
    return price
