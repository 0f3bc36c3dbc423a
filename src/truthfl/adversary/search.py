"""Successive halving over the family of lies, with neighbours of the survivors added at every rung.

The points of a rung are all measured on the same cases (data, client and draws). So they differ only by the effect of
the lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from truthfl.adversary.measure import Honest, Lied, LieLosses
from truthfl.adversary.strategy import ABSENCE, KINDS, TRUTH, LiePoint, LieSpace
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.errors import InputError

Measure = Callable[[Sequence[LiePoint], int], FloatArray]
"""(points, cases) → gains (rules, points, cases) on the first cases; a rule's gains are comparable among its points."""

SHARE_OF_RUNG = (0.4, 0.3, 0.2, 0.1)  # of the runs
SHARE_OF_CHILDREN = 0.7  # of a rung's runs; the others measure survivors on more cases
FEWEST_CASES, MOST_FIRST_CASES = 4, 12
FEWEST_POINTS = 6
FEWEST_RUNS = math.ceil(FEWEST_POINTS * FEWEST_CASES / SHARE_OF_RUNG[0])


@dataclass(frozen=True)
class Rung:
    """One rung: its points are measured on the first `cases` cases.

    kept      points that survive from the rung before
    children  new points: random ones on the first rung, neighbours of survivors on the others
    """

    cases: int
    kept: int
    children: int


def rungs_of(runs: int, rules: int) -> tuple[Rung, ...]:
    """Rungs that together need about `runs` runs; the number of cases doubles from rung to rung."""
    first = int(np.clip(runs // 250, FEWEST_CASES, MOST_FIRST_CASES))
    rungs = [Rung(first, 0, int(SHARE_OF_RUNG[0] * runs / first))]
    if runs < FEWEST_RUNS:
        raise InputError(f"{runs} runs are too few for a search; it needs at least {FEWEST_RUNS}.")
    for number, share in enumerate(SHARE_OF_RUNG[1:], start=1):
        cases, spent = first * 2**number, share * runs
        last = number == len(SHARE_OF_RUNG) - 1
        children = 0 if last else int(SHARE_OF_CHILDREN * spent / cases)
        kept = max(rules, int((spent - children * cases) / (cases // 2)))
        rungs.append(Rung(cases, kept, children))
    return tuple(rungs)


def client_and_split(case: int, clients: int, splits: int) -> tuple[int, int]:
    """The client and the split of a case of a search; the first clients · splits cases are all pairs."""
    return case % clients, (case + case // math.lcm(clients, splits)) % splits


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The points tried.

    points  all points
    gains   (rules, points, cases) on the cases where a point was measured, else NaN
    """

    points: tuple[LiePoint, ...]
    gains: FloatArray

    def mean(self, rule: int) -> FloatArray:
        """The mean gain of each point under a rule; −∞ for points that did not reach the last rung."""
        return _mean_of_measured(self.gains[rule])

    def best(self, rule: int) -> LiePoint:
        """The point of the last rung that gains most under a rule."""
        return self.points[int(np.argmax(self.mean(rule)))]

    def mean_so_far(self, rule: int, point: LiePoint) -> float:
        """The mean gain of a point over the cases on which it was measured."""
        return float(np.nanmean(self.gains[rule, self.points.index(point)]))

    def best_of_kinds(self, rule: int) -> list[LiePoint]:
        """The best point of each kind under a rule, of those that were measured on most cases."""
        return [self.points[k] for k in _best_of_kinds(self.points, self.gains[rule])]


def search(measure: Measure, space: LieSpace, rungs: Sequence[Rung], rules: int, seed: int) -> SearchResult:
    """Search the lie that gains most under each of the rules; the same seed finds the same lie."""
    random = np.random.default_rng(seed)
    points: list[LiePoint] = []
    gains = np.empty((rules, 0, 0))
    survivors: list[int] = []
    done = 0
    for rung in rungs:
        if points:
            survivors = _survivors(points, gains, rung.kept)
            children = _children(space, random, points, survivors, rung.children)
        else:
            children = space.draw(random, rung.children)
        measured = [*survivors, *range(len(points), len(points) + len(children))]
        points = [*points, *children]
        grown = np.full((rules, len(points), rung.cases), np.nan)
        grown[:, : gains.shape[1], :done] = gains
        grown[:, measured] = measure([points[k] for k in measured], rung.cases)
        gains, done = grown, rung.cases
    return SearchResult(tuple(points), gains)


def _survivors(points: Sequence[LiePoint], gains: FloatArray, kept: int) -> list[int]:
    """The best points of all rules in turn and, if there is room, the best of each kind under each rule."""
    measured = np.asarray(~np.isnan(gains).any(axis=(0, 2)))
    orders = []
    for of_rule in gains:
        order = np.argsort(-_mean_of_measured(of_rule), kind="stable")
        orders.append([int(k) for k in order if measured[k]])
    ranked = [k for several in zip_longest(*orders) for k in several if k is not None]
    kinds = [k for of_rule in gains for k in _best_of_kinds(points, np.where(measured[:, None], of_rule, np.nan))]
    first = list(dict.fromkeys(ranked))[: max(len(gains), kept - kept // 3)]
    return sorted(list(dict.fromkeys([*first, *kinds, *ranked]))[:kept])


def _mean_of_measured(gains: FloatArray) -> FloatArray:
    """The mean over the cases of each point that was measured on all of them; −∞ for the other points."""
    return np.where(np.isnan(gains).any(axis=1), -np.inf, gains.mean(axis=1))


def _best_of_kinds(points: Sequence[LiePoint], gains: FloatArray) -> list[int]:
    """The position of the best point of each kind, among those of the kind that were measured on most cases."""
    kinds, cases = np.array([KINDS.index(point.kind) for point in points]), (~np.isnan(gains)).sum(axis=1)
    best = []
    for kind in range(len(KINDS)):
        of_kind = np.flatnonzero((kinds == kind) & (cases > 0))
        if len(of_kind):
            longest = of_kind[cases[of_kind] == cases[of_kind].max()]
            best.append(int(longest[np.argmax(np.nanmean(gains[longest], axis=1))]))
    return best


def _children(
    space: LieSpace, random: np.random.Generator, points: Sequence[LiePoint], parents: Sequence[int], count: int
) -> list[LiePoint]:
    """`count` new points, neighbours of the parents in turn."""
    known, children = {*points, LiePoint()}, dict[LiePoint, None]()
    tries = 0
    while len(children) < count and tries < 50 * count:
        child = space.neighbour(random, points[parents[tries % len(parents)]])
        tries += 1
        if child not in known:
            children.setdefault(child)
    return list(children)


Train = Callable[[Sequence[tuple[Sequence[LiePoint], range]]], list[LieLosses]]
"""Groups of points, each with a range of cases → the losses of each group in its cases."""


@dataclass(eq=False)
class KnownLosses:
    """Losses of lies in cases.

    liar, payer    (cases,) as in `Honest`
    train          trains unknown points
    runs_per_case  training runs for each point in each case
    runs           the number of training runs so far
    """

    liar: IntArray
    payer: IntArray
    train: Train
    runs_per_case: int = 1
    runs: int = 0
    _honest: Honest | None = None
    _known: dict[LiePoint, FloatArray] = field(default_factory=dict)  # (fields of `Lied`, cases so far)

    def honest(self) -> Honest:
        """Honest work in all cases."""
        if self._honest is None:
            results = self._trained([((TRUTH, ABSENCE), range(len(self.liar)))])[0]
            if self.runs_per_case == 2:
                self.runs += len(self.liar)  # of the coalitions without the liar
            (loss, without), (joined, _) = results.loss, results.joined
            self._honest = Honest(
                self.liar,
                self.payer,
                loss,
                without,
                joined,
                results.alone,
                results.nobody,
                results.solo[0],
                results.shift,
            )
            self._known[ABSENCE] = _columns(results, 1)
        return self._honest

    def lied(self, points: Sequence[LiePoint], cases: int) -> Lied:
        """The losses of these points in the first cases."""
        self.honest()
        waiting: dict[int, list[LiePoint]] = {}  # by the number of cases that are known
        for point in points:
            have = self._known[point].shape[1] if point in self._known else 0
            if have < cases:
                waiting.setdefault(have, []).append(point)
        groups = [(group, range(have, cases)) for have, group in waiting.items()]
        for (group, new), results in zip(groups, self._trained(groups), strict=True):
            for k, point in enumerate(group):
                earlier = [self._known[point]] if new.start else []
                self._known[point] = np.concatenate([*earlier, _columns(results, k)], axis=1)
        return Lied(*np.stack([self._known[point][:, :cases] for point in points], axis=1))

    def _trained(self, groups: Sequence[tuple[Sequence[LiePoint], range]]) -> list[LieLosses]:
        self.runs += self.runs_per_case * sum(len(points) * len(cases) for points, cases in groups)
        return self.train(groups)


def _columns(results: LieLosses, point: int) -> FloatArray:
    """The fields of `Lied` of one point, (fields, cases)."""
    return np.stack([results.loss[point], results.delivered[point], results.joined[point], results.solo[point]])
