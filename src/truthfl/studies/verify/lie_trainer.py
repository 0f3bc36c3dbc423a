"""Trains lies in a list of cases, as work items, and remembers what was trained.

Imports `rule_tests`, `adversary`, `studies.work` and `mechanism`; the work items call `lie_training`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from truthfl.adversary.lie_pay import Honest, Lied, Payer
from truthfl.adversary.lie_point import ABSENCE, TRUTH, LiePoint
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.observation import Evidence
from truthfl.studies.verify.rule_tests import RuleTest
from truthfl.studies.work import Progress, Result, Store, WorkerPool, WorkItem, do_all

RUNS_PER_ITEM = 40
FIELDS = ("loss", "delivered", "joined")


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


@dataclass(eq=False)
class LieTrainer:
    """Losses of lies in the cases of one rule test.

    runs  the number of training runs so far
    """

    test: RuleTest
    cases: Sequence[StudyCase]
    store: Store
    pool: int | WorkerPool | None
    progress: Progress | None = None
    runs: int = 0
    known: dict[LiePoint, FloatArray] = field(default_factory=dict)  # (3, cases so far): `FIELDS`
    honest_results: Honest | None = None

    @property
    def runs_per_case(self) -> int:
        """Shapley pay needs a second run, in a coalition."""
        return 2 if self.test.needs(Evidence.SHAPLEY) else 1

    def honest(self) -> Honest:
        """Honest work in all cases."""
        if self.honest_results is None:
            results = self._train([(TRUTH, ABSENCE)], [range(len(self.cases))])[0]
            joined = results["joined"]
            self.honest_results = Honest(
                liar=np.array([case.client for case in self.cases], dtype=np.int64),
                payer=np.array([case.place.draw for case in self.cases], dtype=np.int64),
                loss=results["loss"][0],
                without=results["loss"][1],
                joined=joined[0],
                alone=results["alone"],
                nobody=results["nobody"],
            )
            self.known[ABSENCE] = np.stack([results[name][1] for name in FIELDS])
        return self.honest_results

    def lied(self, points: Sequence[LiePoint], cases: int) -> Lied:
        """The results of these points in the first cases; only what is not known yet is trained."""
        self.honest()
        waiting: dict[int, list[LiePoint]] = {}
        for point in points:
            have = self.known[point].shape[1] if point in self.known else 0
            if have < cases:
                waiting.setdefault(have, []).append(point)
        ranges = [range(have, cases) for have in waiting]
        for (have, group), results in zip(waiting.items(), self._train(list(waiting.values()), ranges), strict=True):
            for k, point in enumerate(group):
                new = np.stack([results[name][k] for name in FIELDS])
                self.known[point] = new if have == 0 else np.concatenate((self.known[point], new), axis=1)
        return Lied(*(np.stack([self.known[point][k, :cases] for point in points]) for k in range(len(FIELDS))))

    def _train(self, groups: Sequence[Sequence[LiePoint]], ranges: Sequence[range]) -> list[dict[str, FloatArray]]:
        """For each group of points and range of cases: the arrays of `LieLosses`."""
        items: list[WorkItem] = []
        parts: list[tuple[int, list[int], list[int]]] = []
        for number, (points, cases) in enumerate(zip(groups, ranges, strict=True)):
            places: dict[Place, list[int]] = {}
            for case in cases:
                places.setdefault(self.cases[case].place, []).append(case)
            for place, here in places.items():
                size = max(1, RUNS_PER_ITEM // (len(here) * self.runs_per_case))
                for first in range(0, len(points), size):
                    chosen = list(range(first, min(first + size, len(points))))
                    items.append(self._item(place, [points[k] for k in chosen], here))
                    parts.append((number, chosen, here))
            self.runs += len(points) * len(cases) * self.runs_per_case
        results = do_all(items, self.store, workers=self.pool, progress=self.progress)
        filled = [_empty(len(points), len(cases)) for points, cases in zip(groups, ranges, strict=True)]
        for (number, chosen, here), result in zip(parts, results, strict=True):
            _fill(filled[number], chosen, [case - ranges[number].start for case in here], result)
        return filled

    def _item(self, place: Place, points: Sequence[LiePoint], cases: Sequence[int]) -> WorkItem:
        settings = {
            "points": [point.document() for point in points],
            "cases": [[self.cases[case].client, self.cases[case].seed] for case in cases],
            "coalitions": self.runs_per_case == 2,
        }
        return WorkItem("studies.verify.lie_training:lied_losses", training_settings(self.test, place) | settings)


def payers_of(test: RuleTest, rule: int) -> list[Payer]:
    """The payers of one rule of a test, one per draw."""
    return [Payer(draw.rules[rule], draw.clients, draw.training) for draw in test.draws]


def training_settings(test: RuleTest, place: Place) -> dict[str, object]:
    """The settings of work items that say which federation is trained, and how."""
    here = test.draws[place.draw]
    return here.plan.federation.settings() | {
        "split": place.split,
        "rounds": here.training.rounds,
        "local_steps": here.training.local_steps,
        "step_size": here.training.step_size,
        "batch_size": here.batch_size.tolist(),
    }


def _empty(points: int, cases: int) -> dict[str, FloatArray]:
    wide = {name: np.empty((points, cases)) for name in FIELDS}
    return wide | {name: np.empty(cases) for name in ("alone", "nobody")}


def _fill(arrays: dict[str, FloatArray], points: list[int], cases: list[int], result: Result) -> None:
    for name in FIELDS:
        arrays[name][np.ix_(points, cases)] = result[name]
    for name in ("alone", "nobody"):
        arrays[name][cases] = result[name]
