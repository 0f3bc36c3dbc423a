"""Trains lies in the cases of a rule test, as work items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from truthfl.adversary.known_losses import KnownLosses
from truthfl.adversary.lie_pay import Payer
from truthfl.adversary.lie_point import LiePoint
from truthfl.adversary.lie_runs import LieLosses
from truthfl.mechanism.observation import Evidence
from truthfl.studies.verify.rule_tests import RuleTest
from truthfl.studies.work import Progress, Result, Store, Workers, WorkItem, do_all

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
    """The settings of work items that say which federation is trained, and how."""
    here = test.draws[place.draw]
    return (
        here.plan.federation.settings()
        | {
            "split": place.split,
            "rounds": here.training.rounds,
            "local_steps": here.training.local_steps,
            "step_size": here.training.step_size,
            "batch_size": here.batch_size.tolist(),
        }
        | ({"solo": here.plan.solo.document()} if test.needs(Evidence.SOLO_LOSS) and here.plan.solo is not None else {})
    )


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
    return WorkItem("studies.verify.lie_training:lied_losses", place_settings(test, place) | settings)


def _empty(points: int, cases: int) -> LieLosses:
    by_point = {name: np.empty((points, cases)) for name in BY_POINT}
    return LieLosses(**by_point, **{name: np.empty(cases) for name in BY_CASE})


def _fill(losses: LieLosses, points: list[int], cases: list[int], result: Result) -> None:
    for name in BY_POINT:
        getattr(losses, name)[np.ix_(points, cases)] = result[name]
    for name in BY_CASE:
        getattr(losses, name)[cases] = result[name]
