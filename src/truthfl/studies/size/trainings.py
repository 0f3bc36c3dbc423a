"""Work items of the study of sizes: on the pilot, and federations on one draw.

All runs of a draw share their seed, so they differ only by one client's behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from truthfl.adversary.measure import Case, KnownSolo, SoloTerms, honest_shifts, lied_solo_losses, train_lies
from truthfl.adversary.strategy import TRUTH, LiePoint
from truthfl.contracts.audition.level import WINDOW
from truthfl.contracts.audition.pilot import tune_recipe
from truthfl.contracts.setting import FloatArray, Strategies, Training
from truthfl.learning.data.federations import Data, ModelChoice, ServerSide
from truthfl.learning.data.partition import Federated, Partition, iid_partition
from truthfl.learning.people.behaviours import TRUTHFUL, behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.pilot_clients import PilotClients
from truthfl.learning.pilot.runs import sample_losses
from truthfl.learning.pilot.step_size import find_step_size
from truthfl.learning.solo import Recipe
from truthfl.learning.training.train import train
from truthfl.studies.size.design import Cut, cut, lies, pool_and_test
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
    """The federation in which each client has the first part of their samples."""
    partition = here.federated.partition
    kept = max(round(share * int(partition.sizes[0])), 1)
    rows = np.concatenate([partition.rows_of(client)[:kept] for client in range(len(partition))])
    fewer = Partition(rows, kept * np.arange(len(partition) + 1))
    return here.federated.of_others(fewer)


def _loss(here: Cut, federated: Federated, strategies: Strategies | Profile, seed: int) -> float:
    trained = train(federated, strategies, seed, evaluate_on={"test": here.test}, threads=1)
    loss: FloatArray = trained.evaluations["test"].loss
    return float(loss[0, -1])


NEARLY_NOTHING = 1e-12  # weight of a client who is left out; weights must be above 0


def size_runs(
    *,
    draw: int,
    liars: int,
    solo_liars: int,
    absences: int,
    solo: dict[str, Any] | None,
    first_seed: int,
    **setting: Any,
) -> Result:
    """One federation on one draw.

    loss                   test loss of the honest run; `loss_variance` is its variance between test samples
    without                (clients left out,) test losses without one client, the others' weights replacing theirs
    liar                   (cases,) clients who lie in the joint training, one at a time
    lied, delivered        (lies, cases) test loss, share of rounds delivered
    solo_liar              (solo cases,) clients who lie about labels, alone; all below are empty without solo models
    alone                  (lies, solo cases) loss of their solo model
    shift                  (solo cases,) the others' shift of the expected solo loss
    peers, peers_shift     solo losses of honest clients, and their shifts

    solo  recipe, level and spread of solo models; None if there are none
    """
    here = cut(**setting, draw=draw)
    federated, count = here.federated, len(here.batches)
    seed = first_seed + draw
    order = np.random.default_rng([seed, count]).permutation(count)
    cases = [Case(int(client), seed) for client in order[:liars]]
    points = lies(int(federated.partition.sizes[0]))
    lied = train_lies(here.split, here.batches, points, cases)
    trained = train(federated, Strategies.truthful(here.batches), seed, evaluate_on={"test": here.test}, threads=1)
    alone = [] if solo is None else [int(client) for client in order[:solo_liars]]
    return {
        "loss": trained.evaluations["test"].loss[0, -1],
        "loss_variance": np.var(sample_losses(federated, trained.params[0], here.test)),
        "without": np.array([_loss_without(here, int(client), seed) for client in order[:absences]]),
        "liar": np.array([case.client for case in cases]),
        "lied": lied.loss,
        "delivered": lied.delivered,
        **_solo_results(here, points, alone, seed, solo),
    }


def _solo_results(
    here: Cut, points: Sequence[LiePoint], clients: Sequence[int], seed: int, solo: Mapping[str, Any] | None
) -> dict[str, FloatArray]:
    """The results of solo models of these clients, and of honest ones."""
    if solo is None:
        nothing = np.empty(0)
        return {
            "solo_liar": nothing.astype(np.int64),
            "alone": np.empty((len(points), 0)),
            **dict.fromkeys(("shift", "peers", "peers_shift"), nothing),
        }
    count = len(here.batches)
    terms = SoloTerms(Recipe(**solo["recipe"]), np.full(count, solo["level"]), np.full(count, solo["spread"]))
    known: KnownSolo = {}
    alone = lied_solo_losses(here.split, terms, points, [(client, seed) for client in clients], known=known)
    shift = honest_shifts(here.split, terms, clients, known=known)
    honest = [work for work in known if work.point == TRUTH]
    return {
        "solo_liar": np.array(clients),
        "alone": alone,
        "shift": shift,
        "peers": np.array([known[work] for work in honest]),
        "peers_shift": honest_shifts(here.split, terms, [work.client for work in honest], known=known),
    }


def _loss_without(here: Cut, client: int, seed: int) -> float:
    """The test loss if this client takes no part. The others draw the same batches as with this client."""
    federated = here.federated
    weight = federated.weight.copy()
    weight[client] = NEARLY_NOTHING
    others = replace(federated, weight=weight / weight.sum())
    trained = train(others, Strategies.truthful(here.batches), seed, evaluate_on={"test": here.test}, threads=1)
    return float(trained.evaluations["test"].loss[0, -1])
