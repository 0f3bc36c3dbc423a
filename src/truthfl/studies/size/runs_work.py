"""The work item of one federation on one draw: honest work, lies, and clients left out one at a time.

All runs of a draw share their seed, so that they differ by what one client does and by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from truthfl.adversary.lie_point import TRUTH, LiePoint
from truthfl.adversary.lie_runs import Case, train_lies
from truthfl.adversary.lied_solo import KnownSolo, SoloTerms, honest_shifts, lied_solo_losses
from truthfl.learning.federated import Federated
from truthfl.learning.loss_spread import sample_losses
from truthfl.learning.recipe import Recipe
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.size.cut import Cut, cut
from truthfl.studies.size.lies import lies
from truthfl.studies.work import Result

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

    loss                   test loss of the honest run; `loss_variance` is that between test samples
    without                (clients left out,) test losses without one client, the others' weights filling up hers
    liar                   (cases,) clients who lie in the joint training, one at a time
    lied, delivered        (lies, cases) test loss, share of rounds delivered
    solo_liar              (solo cases,) clients who lie about labels, alone; empty without solo models, as the others
    alone                  (lies, solo cases) loss of her solo model
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
    """The test loss if this client takes no part. The others draw the same batches as with her."""
    federated = here.federated
    weight = federated.weight.copy()
    weight[client] = NEARLY_NOTHING
    others = Federated(
        federated.model,
        federated.data,
        federated.partition,
        federated.training,
        weight=weight / weight.sum(),
        participation=federated.participation,
    )
    trained = train(others, Strategies.truthful(here.batches), seed, evaluate_on={"test": here.test}, threads=1)
    return float(trained.evaluations["test"].loss[0, -1])
