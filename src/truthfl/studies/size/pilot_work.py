"""Functions of work items on the pilot: step size, points of the loss model, solo curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from truthfl.learning.audition_pilot import PilotClients, tune_recipe
from truthfl.learning.behaviours import TRUTHFUL, behaviour
from truthfl.learning.federated import Federated
from truthfl.learning.federations import Data, ModelChoice, ServerSide
from truthfl.learning.partition import Partition, iid_partition
from truthfl.learning.profile import Profile
from truthfl.learning.step_size import find_step_size
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training
from truthfl.mechanism.solo_curve import WINDOW
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.size.cut import Cut, cut, pool_and_test
from truthfl.studies.work import Result

BATCH_SHARES = (0.25, 1.0, 2.0)  # of the assigned batch, to fit what batches do
LABEL_SHARES = (0.3, 0.55, 1.0)  # of all labels, to fit what labels do
STEP_RANGE = (0.05, 5.0)
SOLO_SEED = 11


def tuned_step(*, seeds: int, **setting: Any) -> Result:
    """The step size with the least loss, on one draw."""
    here = cut(**setting, step_size=STEP_RANGE[0])
    low, high = STEP_RANGE
    search = find_step_size(here.federated, here.test, here.batches[0], low=low, high=high, seeds=seeds)
    return {"step_size": np.array(search.parabola_minimum)}


def loss_model_points(*, draw: int, **setting: Any) -> Result:
    """Joint losses on one draw: with other batches, with fewer labels, and with one client who labels at random.

    by_batch, by_labels  test losses
    batch, labels        batches of each client, and labels of all, of these runs
    random               test loss with the first client's labels drawn at random
    """
    here = cut(**setting, draw=draw)
    batches = [np.maximum(np.rint(share * here.batches), 1.0) for share in BATCH_SHARES]
    fewer = [_with_share(here, share) for share in LABEL_SHARES]
    kind_of = (np.arange(len(here.batches)) == 0).astype(np.int64)
    lazy = Profile.of_kinds((TRUTHFUL, behaviour("lazy labeler")), kind_of, here.batches.astype(np.int64))
    return {
        "batch": np.array([own[0] for own in batches]),
        "by_batch": np.array([_loss(here, here.federated, Strategies.truthful(own), draw) for own in batches]),
        "labels": np.array([len(federated.partition.rows) for federated in fewer]),
        "by_labels": np.array([_loss(here, each, Strategies.truthful(here.batches), draw) for each in fewer]),
        "random": np.array(_loss(here, here.federated, lazy, draw)),
    }


def solo_curve(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    labels: int,
    label_cost: float,
    sample_cost: float,
    clients: int,
) -> Result:
    """Solo losses of pilot clients at numbers of labels around `labels`, (clients, numbers), and the recipe."""
    pool, test, network = pool_and_test(Data(**data), ModelChoice(**model))
    numbers = np.unique([round(labels / WINDOW), labels, round(labels * WINDOW)])
    drawn = iid_partition(len(pool), (int(numbers[-1]),) * clients, seed=SOLO_SEED)
    pilot_side = Federated(network, pool, drawn, Training(1))
    side = ServerSide(pilot_side, test, lambda sizes, seed: iid_partition(len(pool), sizes, seed=seed))
    pilot = PilotClients(side, tuple(drawn.rows_of(client) for client in range(clients)))
    recipe = tune_recipe(pilot, labels, label_cost, sample_cost)
    losses = pilot.losses([(int(number), recipe) for number in numbers])
    return {
        "numbers": numbers.astype(float),
        "loss": np.stack(losses, axis=1),
        "recipe": np.array([float(value) for value in recipe.document().values()]),
    }


def _with_share(here: Cut, share: float) -> Federated:
    """The federation in which each client has the first part of her samples."""
    partition = here.federated.partition
    kept = max(round(share * int(partition.sizes[0])), 1)
    rows = np.concatenate([partition.rows_of(client)[:kept] for client in range(len(partition))])
    fewer = Partition(rows, kept * np.arange(len(partition) + 1))
    return Federated(here.federated.model, here.federated.data, fewer, here.federated.training)


def _loss(here: Cut, federated: Federated, strategies: Strategies | Profile, seed: int) -> float:
    trained = train(federated, strategies, seed, evaluate_on={"test": here.test}, threads=1)
    loss: FloatArray = trained.evaluations["test"].loss
    return float(loss[0, -1])
