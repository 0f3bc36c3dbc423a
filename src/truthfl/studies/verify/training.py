"""Trains lies, and federations without each client, in the cases of a rule test, as work items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from truthfl.adversary.measure import Case, LieLosses, Payer, SoloTerms, Split, make_split, train_lies, train_pairs
from truthfl.adversary.search import KnownLosses
from truthfl.adversary.strategy import LiePoint
from truthfl.contracts.contract import Evidence
from truthfl.contracts.setting import FloatArray, Strategies, Training
from truthfl.learning.data.federations import clients_federation
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.constants import measure_constants
from truthfl.learning.training.aggregation import ReportRule
from truthfl.learning.training.train import train
from truthfl.studies.cells import FederationSpec, federation_of
from truthfl.studies.verify.rule_tests import RuleTest
from truthfl.studies.work import Progress, Result, Store, Workers, WorkItem, do_all


def lied_losses(
    *,
    points: Sequence[Mapping[str, Any]],
    cases: Sequence[Sequence[int]],
    coalitions: bool = False,
    solo: dict[str, Any] | None = None,
    **place: Any,
) -> Result:
    """The fields of `LieLosses` for these points and cases (client, seed); for `place` see `_split_and_batches`.

    solo  the document of `SoloTerms`, if a rule uses solo models
    """
    split, batches = _split_and_batches(**place)
    losses = train_lies(
        split,
        batches,
        [LiePoint.of_document(point) for point in points],
        [Case(client, seed) for client, seed in cases],
        coalitions=coalitions,
        solo_terms=None if solo is None else SoloTerms.of_document(solo),
    )
    return vars(losses)


def pair_losses(
    *,
    pairs: Sequence[Sequence[int]],
    seeds: Sequence[int],
    coalitions: bool = False,
    solo: dict[str, Any] | None = None,
    **place: Any,
) -> Result:
    """The fields of `PairLosses`; for `place` see `_split_and_batches`, for `solo` `lied_losses`."""
    split, batches = _split_and_batches(**place)
    chosen = [(labeler, partner) for labeler, partner in pairs]
    terms = None if solo is None else SoloTerms.of_document(solo)
    return vars(train_pairs(split, batches, chosen, list(seeds), coalitions=coalitions, solo_terms=terms))


def _split_and_batches(
    *,
    federation: Mapping[str, Any],
    split: int,
    rounds: int,
    local_steps: int,
    step_size: float,
    momentum: float,
    batch_size: Sequence[float],
) -> tuple[Split, FloatArray]:
    """The split with this seed and training, and the assigned batches."""
    here = _cached_split(FederationSpec.of_document(federation), split)
    training = Training(rounds, local_steps, step_size, momentum)
    return replace(here, federated=replace(here.federated, training=training)), np.asarray(batch_size, dtype=float)


@lru_cache(maxsize=8)
def _cached_split(spec: FederationSpec, split: int) -> Split:
    """The split with this seed, under the pilot and test data of the seed of the data."""
    one_round = Training(1)
    federated, test = clients_federation(
        spec.data, spec.model, spec.sizes, one_round, spec.chances, spec.task, split_seed=split
    )
    federated = replace(federated, rule=ReportRule(spec.aggregation))
    if spec.labels is not None:
        federated = ask_for_labels(federated, spec.labels, split)
    return make_split(federated, test, one_round, split)


def losses_without(
    *,
    federation: Mapping[str, Any],
    rounds: int,
    local_steps: int,
    step_size: float,
    batch_size: Sequence[float],
    without: Sequence[int],
    seeds: Sequence[int],
) -> Result:
    """Test losses on the server's pilot data: with all clients, then without each of `without` in turn.

    The array is (1 + clients left out, seeds).
    """
    made = federation_of(federation)
    federated = replace(made.pilot, training=Training(rounds, local_steps, step_size))
    count = len(federated.partition)
    left_out = np.eye(count)[list(without)]
    present = np.repeat(np.concatenate((np.ones((1, count)), 1.0 - left_out)), len(seeds), axis=0)
    strategies = Strategies(1.0, np.broadcast_to(np.asarray(batch_size, dtype=float), present.shape), present)
    draws = np.tile(np.asarray(seeds), 1 + len(without))
    trained = train(federated, strategies, draws, evaluate_on={"test": made.test}, threads=1)
    return {"loss": trained.evaluations["test"].loss[:, -1].reshape(-1, len(seeds))}


def bound_constants(
    *,
    federation: Mapping[str, Any],
    rounds: int,
    local_steps: int,
    share_of_limit: float,
) -> Result:
    """The constants of the bounds on the server's pilot data, at the step size `share_of_limit`/L."""
    pilot = federation_of(federation).pilot
    first = measure_constants(replace(pilot, training=Training(rounds, local_steps, 1e-3)))
    step_size = share_of_limit / float(first.smoothness.value)
    measured = measure_constants(replace(pilot, training=Training(rounds, local_steps, step_size)))
    return {"step_size": np.array(step_size)} | {
        name: np.asarray(measurement.value) for name, measurement in vars(measured).items()
    }


RUNS_PER_ITEM = 40
BY_POINT, BY_CASE = ("loss", "delivered", "joined", "solo"), ("alone", "nobody", "shift")


@dataclass(frozen=True)
class Place:
    """A split: the number of the draw of the data, and the seed of the clients' samples."""

    draw: int
    split: int


@dataclass(frozen=True)
class StudyCase:
    """A client who may lie on one split, and the seed of the run."""

    place: Place
    client: int
    seed: int


def known_losses(
    test: RuleTest,
    cases: Sequence[StudyCase],
    store: Store,
    *,
    workers: int | Workers | None = None,
    progress: Progress | None = None,
) -> KnownLosses:
    """The losses of lies in these cases, computed by the workers and stored."""
    return KnownLosses(
        np.array([case.client for case in cases], dtype=np.int64),
        np.array([case.place.draw for case in cases], dtype=np.int64),
        partial(_train, test, cases, store, workers, progress),
        test.runs_per_case,
    )


def payers_of(test: RuleTest, rule: int) -> list[Payer]:
    """The payers of one rule of a test, one per draw."""
    return [
        Payer(draw.rules[rule], draw.clients, draw.training, draw.plan.audition_cost(draw.rules[rule]))
        for draw in test.draws
    ]


def place_settings(test: RuleTest, place: Place) -> dict[str, object]:
    """The settings of work items that state the federation and its training."""
    here = test.draws[place.draw]
    return {
        "federation": here.plan.federation.document(),
        "split": place.split,
        "rounds": here.training.rounds,
        "local_steps": here.training.local_steps,
        "step_size": here.training.step_size,
        "momentum": here.training.momentum,
        "batch_size": here.batch_size.tolist(),
    } | ({"solo": here.plan.solo.document()} if test.needs(Evidence.SOLO_LOSS) and here.plan.solo is not None else {})


def _train(
    test: RuleTest,
    cases: Sequence[StudyCase],
    store: Store,
    workers: int | Workers | None,
    progress: Progress | None,
    groups: Sequence[tuple[Sequence[LiePoint], range]],
) -> list[LieLosses]:
    """The losses of each group of points in its range of cases; all groups are computed at once."""
    items: list[WorkItem] = []
    parts: list[tuple[int, list[int], list[int]]] = []  # group, points and cases of each item
    for number, (points, numbers) in enumerate(groups):
        places: dict[Place, list[int]] = {}
        for case in numbers:
            places.setdefault(cases[case].place, []).append(case)
        for place, here in places.items():
            size = max(1, RUNS_PER_ITEM // (len(here) * test.runs_per_case))
            for first in range(0, len(points), size):
                chosen = list(range(first, min(first + size, len(points))))
                items.append(_item(test, place, [points[k] for k in chosen], [cases[case] for case in here]))
                parts.append((number, chosen, [case - numbers.start for case in here]))
    filled = [_empty(len(points), len(numbers)) for points, numbers in groups]
    for (number, chosen, here), result in zip(
        parts, do_all(items, store, workers=workers, progress=progress), strict=True
    ):
        _fill(filled[number], chosen, here, result)
    return filled


def _item(test: RuleTest, place: Place, points: Sequence[LiePoint], cases: Sequence[StudyCase]) -> WorkItem:
    settings = {
        "points": [point.document() for point in points],
        "cases": [[case.client, case.seed] for case in cases],
        "coalitions": test.runs_per_case == 2,
    }
    return WorkItem("studies.verify.training:lied_losses", place_settings(test, place) | settings)


def _empty(points: int, cases: int) -> LieLosses:
    by_point = {name: np.empty((points, cases)) for name in BY_POINT}
    return LieLosses(**by_point, **{name: np.empty(cases) for name in BY_CASE})


def _fill(losses: LieLosses, points: list[int], cases: list[int], result: Result) -> None:
    for name in BY_POINT:
        getattr(losses, name)[np.ix_(points, cases)] = result[name]
    for name in BY_CASE:
        getattr(losses, name)[cases] = result[name]
