"""Trains with one lying client, without each client, and measures the constants of bounds; called by work items.

Imports `studies.cells`, `studies.work`, `learning` and `mechanism`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.constants import measure_constants
from truthfl.learning.draws import Purpose, key
from truthfl.learning.federations import with_training
from truthfl.learning.training import train
from truthfl.mechanism.setting import Training
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.cells import federation_of
from truthfl.studies.work import Result

GOLDEN_RATIO = (5**0.5 - 1) / 2  # its multiples modulo 1 are evenly distributed in [0, 1), however many they are
MAX_LOSS = 100.0  # larger and non-finite losses are replaced by this


def lied_losses(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    local_steps: int,
    step_size: float,
    batch_size: Sequence[float],
    client: int,
    lies: Sequence[Sequence[float]],
    seeds: Sequence[int],
    coalitions: bool = False,
) -> Result:
    """Test losses (lies, seeds); each lie is (e, D, γ) of this client, all others being honest.

    With `coalitions`, a coalition of the others is drawn for each seed, all sizes equally likely, as in the Shapley
    value: `alone` (seeds,) are its losses without her, `joined` (lies, seeds) with her, `nobody` (seeds,) those of the
    initial model.
    """
    federation = federation_of(data, model, sizes, participation)
    federated = with_training(federation.federated, Training(rounds, local_steps, step_size))
    count, strategies = len(sizes), np.asarray(lies, dtype=float)

    def losses(lie: NDArray[np.float64], members: NDArray[np.bool_]) -> NDArray[np.float64]:
        """One run per row of `lie` and `members`; clients who are not members report nothing."""
        effort, batch = np.ones(members.shape), np.tile(np.asarray(batch_size, dtype=float), (len(members), 1))
        scale = members.astype(float)
        effort[:, client], batch[:, client] = lie[:, 0], lie[:, 1]
        scale[:, client] *= lie[:, 2]
        draws = np.tile(np.asarray(seeds), len(members) // len(seeds))
        with np.errstate(over="ignore", invalid="ignore"):  # with lies, training may diverge
            trained = train(
                federated, Strategies(effort, batch, scale), draws, evaluate_on={"test": federation.test}, threads=1
            )
        return np.fmin(trained.evaluations["test"].loss[:, -1], MAX_LOSS)

    runs = np.repeat(strategies, len(seeds), axis=0)
    result = {"loss": losses(runs, np.ones((len(runs), count), dtype=bool)).reshape(len(strategies), len(seeds))}
    if coalitions:
        members = np.stack([coalition(client, count, seed) for seed in seeds])
        without, joined = members.copy(), members.copy()
        without[:, client], joined[:, client] = False, True
        truth = np.tile([1.0, float(batch_size[client]), 1.0], (len(seeds), 1))
        start = [federated.model.init(int(seed)) for seed in seeds]
        result |= {
            "alone": losses(truth, without),
            "joined": losses(runs, np.tile(joined, (len(strategies), 1))).reshape(len(strategies), len(seeds)),
            "nobody": np.array(
                [federated.model.loss(w, federation.test.images, federation.test.labels) for w in start]
            ),
        }
    return result


def coalition(client: int, count: int, seed: int) -> NDArray[np.bool_]:
    """A random coalition of the other clients, as a mask; over the seeds its size is even in 0 … N − 1."""
    order = key(seed, Purpose.TEST, client, np.arange(count))
    others = np.delete(np.arange(count), client)
    size = int(count * ((client + 1) * GOLDEN_RATIO + seed * GOLDEN_RATIO) % count)
    members = np.zeros(count, dtype=bool)
    members[others[np.argsort(order[others])][:size]] = True
    return members


def losses_without(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    local_steps: int,
    step_size: float,
    batch_size: Sequence[float],
    seeds: Sequence[int],
) -> Result:
    """Test losses on the server's pilot data, (1 + clients, seeds): with all clients, then without each in turn."""
    federation = federation_of(data, model, sizes, participation)
    federated = with_training(federation.pilot, Training(rounds, local_steps, step_size))
    present = np.repeat(np.concatenate((np.ones((1, len(sizes))), 1.0 - np.eye(len(sizes)))), len(seeds), axis=0)
    strategies = Strategies(1.0, np.broadcast_to(np.asarray(batch_size, dtype=float), present.shape), present)
    draws = np.tile(np.asarray(seeds), 1 + len(sizes))
    trained = train(federated, strategies, draws, evaluate_on={"test": federation.test}, threads=1)
    return {"loss": trained.evaluations["test"].loss[:, -1].reshape(-1, len(seeds))}


def bound_constants(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    local_steps: int,
    share_of_limit: float,
) -> Result:
    """The constants of the bounds on the server's pilot data, at the step size `share_of_limit`/L."""
    pilot = federation_of(data, model, sizes, participation).pilot
    first = measure_constants(with_training(pilot, Training(rounds, local_steps, 1e-3)))
    step_size = share_of_limit / float(first.smoothness.value)
    measured = measure_constants(with_training(pilot, Training(rounds, local_steps, step_size)))
    return {"step_size": np.array(step_size)} | {
        name: np.asarray(measurement.value) for name, measurement in vars(measured).items()
    }
