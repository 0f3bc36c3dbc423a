"""Searches the lies that gain most under the rules of a test, and measures them on splits the search did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.adversary.measure import Gains, Honest, Lied, gains, pay
from truthfl.adversary.search import SearchResult, client_and_split, rungs_of, search
from truthfl.adversary.strategy import RECIPES, LiePoint, LieSpace
from truthfl.contracts.contract import Evidence
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.learning.people.behaviour import SoloRecipe
from truthfl.studies.verify.regret import BATCH_CURVE, LABEL_CURVE
from truthfl.studies.verify.rule_tests import RuleTest, asked_clients
from truthfl.studies.verify.training import Place, StudyCase, known_losses, payers_of, place_settings
from truthfl.studies.work import Progress, Store, Workers, WorkItem, do_all


@dataclass(frozen=True, eq=False)
class PairGains:
    """Money of one pair per split, arrays (splits,): what they gain together, and their honest pay."""

    gain: FloatArray
    pay: FloatArray


def pair_gains(
    test: RuleTest,
    places: Sequence[Place],
    first_seed: int,
    store: Store,
    *,
    workers: int | Workers | None,
    progress: Progress | None,
) -> list[PairGains]:
    """The gains of one pair on each split, for each rule; empty with fewer than two clients.

    The partner saves the cost of labeling, and computes and reports as asked, on the other's samples.
    """
    counts = [len(test.draws[place.draw].clients) for place in places]
    if min(counts) < 2:
        return []
    pairs = [(k % count, (k + 1 + k // count % (count - 1)) % count) for k, count in enumerate(counts)]
    settings = {"coalitions": True} if test.needs(Evidence.SHAPLEY) else {}
    items = [
        WorkItem(
            "studies.verify.training:pair_losses",
            place_settings(test, place) | settings | {"pairs": [list(pair)], "seeds": [first_seed + number]},
        )
        for number, (place, pair) in enumerate(zip(places, pairs, strict=True))
    ]
    results = do_all(items, store, workers=workers, progress=progress)
    fields = ("loss", "without", "joined", "alone")
    arrays = [np.concatenate([result[name] for result in results], axis=1) for name in fields]
    nobody = np.repeat(np.concatenate([result["nobody"] for result in results]), 2)
    solo = np.concatenate([result["solo"] for result in results], axis=1)
    shift = np.concatenate([result["shift"] for result in results]).ravel()
    liar, payer = np.array(pairs, dtype=np.int64).ravel(), np.repeat([place.draw for place in places], 2)
    labeling = [test.draws[place.draw].clients.labeling_cost for place in places]
    saved = np.array([costs[partner] for costs, (_, partner) in zip(labeling, pairs, strict=True)])

    def pay_of_pairs(rule: int, shared: int) -> FloatArray:
        """The pay of both together, (pairs,); with honest labels or shared ones."""
        loss, without, joined, alone = (values[shared].ravel() for values in arrays)
        alike = solo[shared].ravel()
        observed = Honest(liar, payer, loss, without, joined, alone, nobody, alike, shift)
        lied = Lied(loss[None], np.ones((1, len(loss))), joined[None], alike[None])
        paid = pay(payers_of(test, rule), lied, observed)
        return np.asarray(paid[0].reshape(-1, 2).sum(axis=1))

    return [
        PairGains(pay_of_pairs(rule, 1) - pay_of_pairs(rule, 0) + saved, pay_of_pairs(rule, 0))
        for rule in range(len(test.names))
    ]


def runs_per_pair(test: RuleTest) -> int:
    """Training runs for each pair: honest and shared labels, with both and without each; coalitions for Shapley pay."""
    return 14 if test.needs(Evidence.SHAPLEY) else 6


SEARCH_SHARE = 0.55  # of the runs; the others measure the lies that were found
MEASUREMENT_SEEDS = 1_000_000  # first seed of the measuring runs, above the search's seeds


@dataclass(frozen=True)
class VerificationDesign:
    """Where lies are searched and where they are measured.

    searched, measured  splits
    runs                approximate number of training runs
    seed                of the search and the first seed of the runs
    most_labels         that clients can make in all these splits, as a share of those asked for
    pairs               whether coalitions of two are measured
    recipes             that clients could follow when they train alone
    """

    searched: tuple[Place, ...]
    measured: tuple[Place, ...]
    runs: int
    seed: int = 0
    most_labels: float = 1.0
    pairs: bool = True
    recipes: tuple[SoloRecipe, ...] = RECIPES


@dataclass(frozen=True, eq=False)
class LieMeasurement:
    """The lies of a rule test, searched and measured.

    found     the search, with `searched`, the name of the client of each of its cases
    points    the measured lies
    gains     of the measured lies, under each rule
    honest    honest work in the measured cases
    cases     on which they were measured
    pairs     gains of pairs under each rule; empty if they were not measured
    runs      the number of training runs
    """

    test: RuleTest
    design: VerificationDesign
    found: SearchResult
    searched: tuple[str, ...]
    points: tuple[LiePoint, ...]
    gains: tuple[Gains, ...]
    honest: Honest
    cases: tuple[StudyCase, ...]
    pairs: tuple[PairGains, ...]
    runs: int

    @property
    def people(self) -> tuple[str, ...]:
        """The name of the client of each measured case."""
        return _names(self.test, self.cases)

    @property
    def cluster(self) -> IntArray:
        """The cluster of each case: cases of one cluster depend on each other."""
        return clusters([case.place for case in self.cases])


def _names(test: RuleTest, cases: Sequence[StudyCase]) -> tuple[str, ...]:
    return tuple(test.name_on(case.place.draw, case.client) for case in cases)


def clusters(places: Sequence[Place]) -> IntArray:
    """The draw of each place, or its split if all are on one draw."""
    draws = np.array([place.draw for place in places])
    return np.array([place.split for place in places]) if (draws == draws[0]).all() else draws


def measure_lies(
    test: RuleTest,
    design: VerificationDesign,
    store: Store,
    *,
    workers: int | Workers | None = None,
    progress: Progress | None = None,
) -> LieMeasurement:
    """Search the lies that gain most under each rule, and measure them on the other splits."""
    sizes, solo = test.draws[0].clients.dataset_size, test.needs(Evidence.SOLO_LOSS)
    space = LieSpace.of_job(test.draws[0].batch_size, sizes, design.most_labels, solo=solo, recipes=design.recipes)
    found, searched, runs = _search(test, design, space, store, workers, progress)
    points = _finalists(test, design, space, found)
    cases = _measured_cases(test, design, len(points))
    measured = known_losses(test, cases, store, workers=workers, progress=progress)
    lied, honest = measured.lied(points, len(cases)), measured.honest()
    pairs: list[PairGains] = []
    if design.pairs:
        first = design.seed + MEASUREMENT_SEEDS
        pairs = pair_gains(test, design.measured, first, store, workers=workers, progress=progress)
    return LieMeasurement(
        test,
        design,
        found,
        searched,
        points,
        tuple(gains(payers_of(test, rule), points, lied, honest) for rule in range(len(test.names))),
        honest,
        tuple(cases),
        tuple(pairs),
        runs + measured.runs + (runs_per_pair(test) * len(design.measured) if pairs else 0),
    )


def _search(
    test: RuleTest,
    design: VerificationDesign,
    space: LieSpace,
    store: Store,
    workers: int | Workers | None,
    progress: Progress | None,
) -> tuple[SearchResult, tuple[str, ...], int]:
    """The search's result, the names of the clients of its cases, and the number of training runs."""
    asked, rules, places = asked_clients(test.draws[0].clients.weight), len(test.names), design.searched
    rungs = rungs_of(int(SEARCH_SHARE * design.runs) // test.runs_per_case, rules)
    chosen = [client_and_split(k, len(asked), len(places)) for k in range(rungs[-1].cases)]
    cases = [
        StudyCase(places[split], test.client_on(places[split].draw, int(asked[client])), design.seed + k)
        for k, (client, split) in enumerate(chosen)
    ]
    known = known_losses(test, cases, store, workers=workers, progress=progress)

    def measure(points: Sequence[LiePoint], cases: int) -> FloatArray:
        lied, honest = known.lied(points, cases), known.honest().first(cases)
        of_rules = [gains(payers_of(test, rule), points, lied, honest) for rule in range(rules)]
        return np.stack([of_rule.gain / of_rule.unit for of_rule in of_rules])

    return search(measure, space, rungs, rules, design.seed), _names(test, cases), known.runs


def _finalists(
    test: RuleTest, design: VerificationDesign, space: LieSpace, found: SearchResult
) -> tuple[LiePoint, ...]:
    """The lies to measure: the best of each rule, curves of labels and batches, and best of kinds if runs suffice."""
    rules = range(len(test.names))
    best = [found.best(rule) for rule in rules]
    needed = dict.fromkeys(
        [*best, *(point for point in LABEL_CURVE if point.labels <= space.most_labels), *BATCH_CURVE]
    )
    wanted = dict.fromkeys([*needed, *(point for rule in rules for point in found.best_of_kinds(rule))])
    affordable = int((1.0 - SEARCH_SHARE) * design.runs) // (test.runs_per_case * len(design.measured)) - 2
    return tuple(wanted)[: max(len(needed), affordable)]


def _measured_cases(test: RuleTest, design: VerificationDesign, points: int) -> list[StudyCase]:
    """As many clients on each split as the runs allow, at least one; the clients take turns."""
    asked, places = asked_clients(test.draws[0].clients.weight), design.measured
    runs = (1.0 - SEARCH_SHARE) * design.runs
    each = int(np.clip(runs // (test.runs_per_case * (points + 2) * len(places)), 1, len(asked)))
    first = design.seed + MEASUREMENT_SEEDS
    return [
        StudyCase(
            place, test.client_on(place.draw, int(asked[(number * each + k) % len(asked)])), first + number * each + k
        )
        for number, place in enumerate(places)
        for k in range(each)
    ]
