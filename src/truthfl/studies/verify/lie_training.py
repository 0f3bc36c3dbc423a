"""Training in which one client lies: what the lie does to the final loss, alone and in coalitions.

The functions here are what tasks call. Looks at `cells` for the scene, `learning` and the mechanism.
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
from truthfl.studies.cells import scene_of
from truthfl.studies.work import Result

EVENLY = (5**0.5 - 1) / 2  # steps of this size, modulo 1, fill the interval from 0 to 1 evenly, however many they are
NO_MODEL = 100.0  # the loss of a model that has no finite loss, or a greater one


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
    """Test losses (lies, seeds): each lie is (e, D, γ) of this client, everybody else being honest.

    With coalitions, of each seed a coalition of the others is drawn, every size as likely as every other, which is how
    the Shapley value averages: `alone` is its loss without her (seeds,), `joined` with her (lies, seeds), `nobody` that
    of the model as it starts.
    """
    scene = scene_of(data, model, sizes, participation)
    federated = with_training(scene.federated, Training(rounds, local_steps, step_size))
    count, played = len(sizes), np.asarray(lies, dtype=float)

    def losses(lie: NDArray[np.float64], members: NDArray[np.bool_]) -> NDArray[np.float64]:
        """One run per row: her lie there, and who is there at all."""
        effort, batch = np.ones(members.shape), np.tile(np.asarray(batch_size, dtype=float), (len(members), 1))
        scale = members.astype(float)
        effort[:, client], batch[:, client] = lie[:, 0], lie[:, 1]
        scale[:, client] *= lie[:, 2]
        draws = np.tile(np.asarray(seeds), len(members) // len(seeds))
        with np.errstate(over="ignore", invalid="ignore"):  # a lie may make training diverge, which is an answer
            done = train(federated, Strategies(effort, batch, scale), draws, watch={"test": scene.test}, threads=1)
        return np.fmin(done.watched["test"].loss[:, -1], NO_MODEL)

    runs = np.repeat(played, len(seeds), axis=0)
    result = {"loss": losses(runs, np.ones((len(runs), count), dtype=bool)).reshape(len(played), len(seeds))}
    if coalitions:
        members = np.stack([coalition(client, count, seed) for seed in seeds])
        without, joined = members.copy(), members.copy()
        without[:, client], joined[:, client] = False, True
        truth = np.tile([1.0, float(batch_size[client]), 1.0], (len(seeds), 1))
        start = [federated.model.init(int(seed)) for seed in seeds]
        result |= {
            "alone": losses(truth, without),
            "joined": losses(runs, np.tile(joined, (len(played), 1))).reshape(len(played), len(seeds)),
            "nobody": np.array([federated.model.loss(w, scene.test.images, scene.test.labels) for w in start]),
        }
    return result


def coalition(client: int, count: int, seed: int) -> NDArray[np.bool_]:
    """Who of the others is there: a random choice; their number goes evenly from 0 to N − 1 as seeds go on."""
    turn = key(seed, Purpose.TEST, client, np.arange(count))
    others = np.delete(np.arange(count), client)
    size = int(count * ((client + 1) * EVENLY + seed * EVENLY) % count)
    members = np.zeros(count, dtype=bool)
    members[others[np.argsort(turn[others])][:size]] = True
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
    """Test losses on the server's pilot data, (1 + clients, seeds): with everybody, then without each in turn."""
    scene = scene_of(data, model, sizes, participation)
    federated = with_training(scene.pilot, Training(rounds, local_steps, step_size))
    there = np.repeat(np.concatenate((np.ones((1, len(sizes))), 1.0 - np.eye(len(sizes)))), len(seeds), axis=0)
    played = Strategies(1.0, np.broadcast_to(np.asarray(batch_size, dtype=float), there.shape), there)
    draws = np.tile(np.asarray(seeds), 1 + len(sizes))
    done = train(federated, played, draws, watch={"test": scene.test}, threads=1)
    return {"loss": done.watched["test"].loss[:, -1].reshape(-1, len(seeds))}


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
    """The bounds' constants on the server's pilot data, at this share of 1/L as the step size."""
    pilot = scene_of(data, model, sizes, participation).pilot
    first = measure_constants(with_training(pilot, Training(rounds, local_steps, 1e-3)))
    step_size = share_of_limit / float(first.smoothness.value)
    found = measure_constants(with_training(pilot, Training(rounds, local_steps, step_size)))
    return {"step_size": np.array(step_size)} | {name: np.asarray(one.value) for name, one in vars(found).items()}
