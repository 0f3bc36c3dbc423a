"""Trains federations in which clients lie, on splits of the data, and computes what the lies are paid and gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.adversary.strategy import ABSENCE, MOST_LABELS, TRUTH, LiePoint, ReportKind
from truthfl.contracts.contract import CONTRIBUTIONS, Contract, Contribution, Evidence, Observation
from truthfl.contracts.formulas import COMMON, SOLO_MEAN
from truthfl.contracts.setting import Clients, FloatArray, IntArray, Training, batch_price
from truthfl.contracts.solo import SoloResult, peer_shifts
from truthfl.errors import InputError
from truthfl.learning.calibration import cross_calibrated
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Features, Labels, Params
from truthfl.learning.people.behaviour import Behaviour, SoloRecipe
from truthfl.learning.people.behaviours import FREE_RIDER, TRUTHFUL
from truthfl.learning.people.profile import Profile
from truthfl.learning.solo import (
    Recipe,
    audition_samples,
    changed_recipe,
    losses_of_groups,
    solo_mean,
    train_all_alone,
)
from truthfl.learning.training.draws import Purpose, key
from truthfl.learning.training.local_training import takes_part
from truthfl.learning.training.train import train


@dataclass(frozen=True, eq=False)
class Split:
    """The clients' federation and the test set.

    further  for each client rows of `federated.data` that they do not hold and could label as well, of the same classes
             as their own as far as possible, in random order
    solo_models  those that were trained for the start of joint runs
    """

    federated: Federated
    test: LabeledSamples
    further: tuple[IntArray, ...]
    solo_models: dict[SoloWork, Params] = field(default_factory=dict)

    def with_more_samples(self, client: int, count: int) -> Federated:
        """The federation in which this client holds `count` samples in all; weights remain."""
        own = self.federated.partition.rows_of(client)
        rows = [self.federated.partition.rows_of(other) for other in range(len(self.federated.partition))]
        rows[client] = np.concatenate((own, self.further[client]))[:count]
        return self._with_rows(rows)

    def with_shared_labels(self, labeler: int, partner: int) -> Federated:
        """The federation in which `partner` holds the samples of `labeler` in place of their own; weights remain."""
        rows = [self.federated.partition.rows_of(other) for other in range(len(self.federated.partition))]
        rows[partner] = rows[labeler]
        return self._with_rows(rows)

    def _with_rows(self, rows: list[IntArray]) -> Federated:
        starts = np.concatenate(([0], np.cumsum([len(own) for own in rows])))
        return replace(self.federated, partition=Partition(np.concatenate(rows), starts))


def make_split(federated: Federated, test: LabeledSamples, training: Training, seed: int) -> Split:
    """The split of this federation, trained with these parameters; `seed` chooses further samples."""
    partition = federated.partition
    further = _further_rows(federated, seed)
    used = np.concatenate((partition.rows, *further))
    position = np.full(len(federated.data), -1, dtype=np.int64)
    position[used] = np.arange(len(used))
    reduced = Partition(position[partition.rows], partition.starts)
    small = replace(federated, data=federated.data.take(used), partition=reduced, training=training)
    return Split(small, test, tuple(position[rows] for rows in further))


def most_labels(sizes: ArrayLike, available: int) -> float:
    """The labels that every client can make, as a share of the samples that they hold; at most 1.5.

    sizes      numbers of samples of the clients, all drawn from `available` samples
    """
    return float(np.clip(available / np.max(np.asarray(sizes, dtype=float)), 1.0, MOST_LABELS))


def _further_rows(federated: Federated, seed: int) -> list[IntArray]:
    """For each client rows that they do not hold, half as many as they hold, or all that there are.

    They have the proportions of the client's classes, as far as there are enough. Other clients may hold them, as any
    two clients may hold the same sample.
    """
    labels, partition = federated.data.labels, federated.partition
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(labels))
    of_class = [shuffled[labels[shuffled] == c] for c in range(len(federated.data.classes))]
    further = []
    for client in range(len(partition)):
        own = partition.rows_of(client)
        wanted = np.rint((MOST_LABELS - 1.0) * np.bincount(labels[own], minlength=len(of_class))).astype(int)
        taken = [rows[~np.isin(rows, own)][:count] for rows, count in zip(of_class, wanted, strict=True)]
        held = np.concatenate((own, *taken))
        others = shuffled[~np.isin(shuffled, held)]
        missing = max(math.ceil((MOST_LABELS - 1.0) * len(own)) - sum(map(len, taken)), 0)
        more = np.concatenate((*taken, others[:missing])).astype(np.int64)
        further.append(random.permutation(more))
    return further


GOLDEN_RATIO = (5**0.5 - 1) / 2  # its multiples modulo 1 are evenly distributed in [0, 1), however many they are
MAX_LOSS = 100.0  # larger and non-finite losses are replaced by this


@dataclass(frozen=True)
class Case:
    """The client who lies, and the seed of the run."""

    client: int
    seed: int


@dataclass(frozen=True, eq=False)
class LieLosses:
    """Results of runs, arrays (points, cases).

    loss       test loss with all clients
    delivered  share of the rounds in which the liar was asked and their report was not empty
    solo       loss of the liar's solo model; NaN if no contract uses it
    shift      (cases,) the others' shift of the expected solo loss; 0 likewise

    For Shapley pay, with one random coalition of other clients per case, else NaN:

    joined     (points, cases) test loss of the coalition with the liar
    alone      (cases,) test loss of the coalition without the liar; NaN unless honest work is among the points
    nobody     (cases,) test loss of the initial model; NaN likewise
    """

    loss: FloatArray
    delivered: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray
    solo: FloatArray
    shift: FloatArray


def train_lies(
    split: Split,
    batch_size: FloatArray,
    points: Sequence[LiePoint],
    cases: Sequence[Case],
    *,
    coalitions: bool = False,
    solo_terms: SoloTerms | None = None,
    known_solo: KnownSolo | None = None,
    threads: int | None = 1,
) -> LieLosses:
    """One run for each point and case; `batch_size` are the assigned batches. With `coalitions`, two.

    With `solo_terms`, unknown solo models are trained, too.
    """
    count = len(split.federated.partition)
    everybody = [np.ones(count, dtype=bool)] * len(cases)
    empty, solo, shift = np.full(len(cases), np.nan), np.full((len(points), len(cases)), np.nan), np.zeros(len(cases))
    if solo_terms is not None:
        pairs = [(case.client, case.seed) for case in cases]
        known = {} if known_solo is None else known_solo
        solo = lied_solo_losses(split, solo_terms, points, pairs, known=known, threads=threads)
        shift = honest_shifts(split, solo_terms, [client for client, _ in pairs], known=known, threads=threads)
    if solo_terms is not None and not solo_terms.joint:
        shares = [_untrained_share(point, split.federated.training.rounds) for point in points]
        delivered = np.repeat(np.array(shares)[:, None], len(cases), axis=1)
        loss = np.zeros_like(solo)
        if solo_terms.absence is not None and ABSENCE in points:
            loss[list(points).index(ABSENCE)] = solo_terms.absence[[case.client for case in cases]]
        return LieLosses(loss, delivered, np.full_like(solo, np.nan), empty, empty, solo, shift)
    loss, delivered = _losses(split, batch_size, points, cases, everybody, threads, solo_terms)
    if not coalitions:
        return LieLosses(loss, delivered, np.full_like(loss, np.nan), empty, empty, solo, shift)
    members = [coalition(case.client, count, case.seed) for case in cases]
    joined, _ = _losses(split, batch_size, points, cases, members, threads)
    if TRUTH not in points:
        return LieLosses(loss, delivered, joined, empty, empty, solo, shift)
    alone, _ = _losses(split, batch_size, [ABSENCE], cases, members, threads)
    model, test = split.federated.model, split.test
    nobody = [model.loss(model.init(case.seed), test.features, test.labels) for case in cases]
    return LieLosses(loss, delivered, joined, alone[0], np.array(nobody), solo, shift)


@dataclass(frozen=True, eq=False)
class PairLosses:
    """Test losses of pairs, arrays (2, pairs, 2): honest and shared labels; the first and the second of each pair.

    loss           with both, the same for first and second
    without        without this one
    joined, alone  of a random coalition with and without this one; NaN unless coalitions were trained
    nobody         (pairs,) of the initial model; NaN likewise
    solo           of solo models: with shared labels, of the labeler's samples; NaN unless a contract uses them
    shift          (pairs, 2) the others' shift of the expected solo loss; 0 likewise
    """

    loss: FloatArray
    without: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray
    solo: FloatArray
    shift: FloatArray


def train_pairs(
    split: Split,
    batch_size: FloatArray,
    pairs: Sequence[tuple[int, int]],
    seeds: Sequence[int],
    *,
    coalitions: bool = False,
    solo_terms: SoloTerms | None = None,
    threads: int = 1,
) -> PairLosses:
    """Runs of honest pairs, and of pairs whose second client uses the first one's samples and labels; one seed each."""
    shape, model = (2, len(pairs), 2), split.federated.model
    loss, without, joined, alone, solo = (np.full(shape, np.nan) for _ in range(5))
    shift = np.zeros((len(pairs), 2))
    result = PairLosses(loss, without, joined, alone, np.full(len(pairs), np.nan), solo, shift)
    count = len(split.federated.partition)
    for number, (pair, seed) in enumerate(zip(pairs, seeds, strict=True)):
        if solo_terms is not None:
            own = lied_solo_losses(split, solo_terms, [TRUTH], [(client, seed) for client in pair], threads=threads)[0]
            solo[0, number], solo[1, number] = own, own[0]
            shift[number] = honest_shifts(split, solo_terms, list(pair), threads=threads)
        if solo_terms is not None and not solo_terms.joint:
            loss[:, number] = without[:, number] = 0.0
            continue
        for shared, federated in enumerate((split.federated, split.with_shared_labels(*pair))):
            batches = np.minimum(batch_size, federated.partition.sizes)
            absent: list[list[int]] = [[], [pair[0]], [pair[1]]]
            if coalitions:
                outside = [np.flatnonzero(~coalition(client, count, seed)).tolist() for client in pair]
                absent += [[c for c in gone if c != client] for gone, client in zip(outside, pair, strict=True)]
                absent += outside
            profiles = [_profile(federated, batches, dict.fromkeys(gone, FREE_RIDER)) for gone in absent]
            losses = _trained(split, federated, profiles, [seed] * len(profiles), threads)[0]
            loss[shared, number], without[shared, number] = losses[0], losses[1:3]
            if coalitions:
                joined[shared, number], alone[shared, number] = losses[3:5], losses[5:7]
        if coalitions:
            result.nobody[number] = model.loss(model.init(seed), split.test.features, split.test.labels)
    return result


def coalition(client: int, count: int, seed: int) -> NDArray[np.bool_]:
    """A random coalition of the other clients, as a mask; over the seeds its size is even in 0 … N − 1."""
    order = key(seed, Purpose.TEST, client, np.arange(count))
    others = np.delete(np.arange(count), client)
    size = int(count * ((client + 1) * GOLDEN_RATIO + seed * GOLDEN_RATIO) % count)
    members = np.zeros(count, dtype=bool)
    members[others[np.argsort(order[others])][:size]] = True
    return members


def _losses(
    split: Split,
    batch_size: FloatArray,
    points: Sequence[LiePoint],
    cases: Sequence[Case],
    members: Sequence[NDArray[np.bool_]],
    threads: int | None,
    solo_terms: SoloTerms | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Losses and delivered shares, (points, cases); clients who are not members of a case's coalition are absent."""
    loss, delivered = np.empty((len(points), len(cases))), np.empty((len(points), len(cases)))
    usual = [p for p, point in enumerate(points) if point.labels <= 1]
    groups = [(split.federated, usual, list(range(len(cases))))] if usual else []
    for p, point in enumerate(points):
        if point.labels > 1:  # a separate federation, in which the liar holds more samples
            for c, case in enumerate(cases):
                held = round(point.labels * int(split.federated.partition.sizes[case.client]))
                groups.append((split.with_more_samples(case.client, held), [p], [c]))
    for federated, of_points, of_cases in groups:
        runs = [(p, c) for p in of_points for c in of_cases]
        sizes = split.federated.partition.sizes
        profiles = [_lying_profile(federated, batch_size, sizes, points[p], cases[c], members[c]) for p, c in runs]
        seeds = [cases[c].seed for _, c in runs]
        starts = None
        if solo_terms is not None and solo_terms.start == SOLO_MEAN:
            starts = np.stack([_start(split, solo_terms, points[p], cases[c]) for p, c in runs])
        calibrated = solo_terms is not None and solo_terms.calibrated
        losses, empty = _trained(split, federated, profiles, seeds, threads, starts, calibrated=calibrated)
        for (p, c), value, empties in zip(runs, losses, empty, strict=True):
            loss[p, c] = value
            delivered[p, c] = _delivered_share(federated, points[p], cases[c], empties)
    return loss, delivered


def _lying_profile(
    federated: Federated,
    batch_size: FloatArray,
    sizes: IntArray,
    point: LiePoint,
    case: Case,
    members: NDArray[np.bool_],
) -> Profile:
    """The profile of all clients; `sizes` are the numbers of samples that clients were asked to label."""
    client = case.client
    absent: dict[int, Behaviour] = dict.fromkeys(np.flatnonzero(~members).tolist(), FREE_RIDER)
    if point == TRUTH:
        return _profile(federated, batch_size, absent | {client: TRUTHFUL})
    if point == ABSENCE:
        return _profile(federated, batch_size, absent | {client: FREE_RIDER})
    lie = point.behaviour(float(batch_size[client]), float(sizes[client]))
    return _profile(federated, batch_size, absent | {client: lie})


def _profile(federated: Federated, batch_size: FloatArray, others: dict[int, Behaviour]) -> Profile:
    """All clients truthful but `others`."""
    kinds = list(dict.fromkeys([TRUTHFUL, *others.values()]))
    kind_of: IntArray = np.zeros(len(federated.partition), dtype=np.int64)
    for client, behaviour in others.items():
        kind_of[client] = kinds.index(behaviour)
    return Profile.of_kinds(kinds, kind_of, np.asarray(batch_size).astype(np.int64))


def _start(split: Split, terms: SoloTerms, point: LiePoint, case: Case) -> Params:
    """The mean of the solo models of a run in which one client lies."""
    federated = split.federated
    works = [_work(TRUTH, client, SEED) for client in range(len(federated.partition))]
    works[case.client] = _work(point, case.client, case.seed)
    models = np.stack([_solo_model(split, terms, work) for work in works])
    return solo_mean(models, (federated.weight / federated.weight.sum()).tolist())


def _solo_model(split: Split, terms: SoloTerms, work: SoloWork) -> Params:
    """The solo model of this work; remembered with the split."""
    known = split.solo_models
    if work not in known:
        recipe = changed_recipe(terms.recipe, work.point.recipe)
        classes = split.federated.data.classes
        own = [_samples(split, work)]
        known[work] = train_all_alone(split.federated.model, own, recipe, SEED, classes=classes, threads=1)[0]
    return known[work]


def _untrained_share(point: LiePoint, rounds: int) -> float:
    """The share of rounds with a report: a fabricated one has nothing to build on in the first."""
    if point == ABSENCE or point.report is ReportKind.NOTHING:
        return 0.0
    built = point.report in (ReportKind.ECHO, ReportKind.GARBAGE)
    return (rounds - 1.0) / rounds if built and rounds else 1.0


def _trained(
    split: Split,
    federated: Federated,
    profiles: list[Profile],
    seeds: list[int],
    threads: int | None,
    starts: NDArray[np.float32] | None = None,
    *,
    calibrated: bool = False,
) -> tuple[FloatArray, tuple[dict[int, int], ...]]:
    """The final test loss of each run, and the number of empty reports by client."""
    with np.errstate(over="ignore", invalid="ignore"):  # with lies, training may diverge
        trained = train(federated, profiles, seeds, start=starts, evaluate_on={"test": split.test}, threads=threads)
    losses = np.fmin(trained.evaluations["test"].loss[:, -1], MAX_LOSS)
    if calibrated:
        losses = np.fmin(cross_calibrated(federated.model, trained.params, split.test)[0], MAX_LOSS)
    return losses, tuple(dict(counts) for counts in trained.refused_reports)


def _delivered_share(federated: Federated, point: LiePoint, case: Case, empty: dict[int, int]) -> float:
    if point == ABSENCE:
        return 0.0
    if not empty.get(case.client):
        return 1.0
    rounds, q = federated.training.rounds, float(federated.participation[case.client])
    asked = rounds if q == 1.0 else sum(takes_part(case.seed, case.client, t, q) for t in range(rounds))
    return 1.0 - empty[case.client] / max(asked, 1)


MOST_PEERS = 60  # other clients whose solo losses set the level
SEED = 0  # of the solo models' start and draws, and of the test; what varies are the samples


@dataclass(frozen=True, eq=False)
class SoloTerms:
    """A contract's terms for solo models: the recipe, and for each client expected loss and spread, (N,).

    start       where the joint training starts
    joint       whether pay depends on the joint loss; if not, nothing is trained jointly
    absence     (N,) by how much the joint loss then rises without each client, by the plan; None: not known
    calibrated  whether the joint loss is that of calibrated models
    """

    recipe: Recipe
    level: FloatArray
    spread: FloatArray
    start: str = COMMON
    joint: bool = True
    calibrated: bool = False
    absence: FloatArray | None = None

    def document(self) -> dict[str, Any]:
        """The terms as JSON values."""
        return vars(self) | {
            "recipe": self.recipe.document(),
            "level": self.level.tolist(),
            "spread": self.spread.tolist(),
            "absence": None if self.absence is None else self.absence.tolist(),
        }

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> SoloTerms:
        """The terms with this document."""
        named = ("level", "spread", "absence")
        arrays = {name: None if document[name] is None else np.array(document[name]) for name in named}
        return cls(**{**document, **arrays, "recipe": Recipe(**document["recipe"])})

    def of_clients(self, clients: IntArray) -> SoloTerms:
        """The terms of these clients."""
        absence = None if self.absence is None else self.absence[clients]
        return replace(self, level=self.level[clients], spread=self.spread[clients], absence=absence)

    @classmethod
    def of_contract(
        cls, contract: Contract, recipe: Recipe, start: str = COMMON, absence: FloatArray | None = None
    ) -> SoloTerms:
        """This contract's terms."""
        stage = contract.stage
        by_loss, calibrated = contract.pays_by_joint_loss, contract.is_calibrated
        return cls(recipe, stage.level, stage.spread, start, by_loss, calibrated, absence)


@dataclass(frozen=True)
class SoloWork:
    """What a solo model depends on: the client, the seed of their labels, labels, rest and recipe."""

    client: int
    seed: int
    point: LiePoint


KnownSolo = dict[SoloWork, float]
"""Losses of solo models trained before; newly trained ones are added."""


def lied_solo_losses(
    split: Split,
    terms: SoloTerms,
    points: Sequence[LiePoint],
    cases: Sequence[tuple[int, int]],
    *,
    known: KnownSolo | None = None,
    threads: int | None = 1,
) -> FloatArray:
    """Solo losses, (points, cases), of clients who lie; a case is a client and a seed. Equal work is done once.

    known  of the same split and terms
    """
    works = [[_work(point, client, seed) for client, seed in cases] for point in points]
    losses = _tested(split, terms, [work for row in works for work in row], known, threads)
    return np.array([[losses[work] for work in row] for row in works])


def honest_shifts(
    split: Split,
    terms: SoloTerms,
    clients: Sequence[int],
    *,
    known: KnownSolo | None = None,
    threads: int | None = 1,
) -> FloatArray:
    """The shift of the expected solo loss of each of these clients, if all others are honest; `known` as above."""
    count = len(split.federated.partition)
    peers = np.linspace(0, count - 1, min(count, MOST_PEERS)).astype(int)
    chosen = np.unique(np.concatenate((peers, np.asarray(clients, dtype=np.int64))))
    works = [_work(TRUTH, int(client), SEED) for client in chosen]
    losses = _tested(split, terms, works, known, threads)
    excess = np.full(count, np.nan)
    excess[chosen] = (np.array([losses[work] for work in works]) - terms.level[chosen]) / terms.spread[chosen]
    return np.asarray(peer_shifts(excess)[np.asarray(clients, dtype=np.int64)])


def _work(point: LiePoint, client: int, seed: int) -> SoloWork:
    """The solo work of a lie; the labels of honest work do not depend on the seed."""
    labels = LiePoint(labels=point.labels, rest=point.rest, recipe=point.recipe)
    return SoloWork(client, SEED if point.labels >= 1 else seed, labels)


def _samples(split: Split, work: SoloWork) -> tuple[Features, Labels]:
    """The samples on which the liar trains alone."""
    point, federated = work.point, split.federated
    if point.labels > 1:
        held = round(point.labels * int(federated.partition.sizes[work.client]))
        federated = split.with_more_samples(work.client, held)
    features = federated.data.features[federated.partition.rows_of(work.client)]
    if point.labels >= 1:
        return features, federated.true_labels()[federated.samples_of(work.client)]
    behaviour = point.behaviour(1.0, 1.0)
    labels = _labels(federated, behaviour, work.client, work.seed)
    return audition_samples(behaviour, features, labels, work.client, work.seed)


def _labels(federated: Federated, behaviour: Behaviour, client: int, seed: int) -> Labels:
    kind_of = (np.arange(len(federated.partition)) == client).astype(np.int64)
    profile = Profile.of_kinds((TRUTHFUL, behaviour), kind_of, np.ones_like(kind_of))
    return profile.labels(federated, seed)[federated.samples_of(client)]


def _tested(
    split: Split, terms: SoloTerms, works: Sequence[SoloWork], known: KnownSolo | None, threads: int | None
) -> KnownSolo:
    """The known losses, with those of these works."""
    losses = {} if known is None else known
    new = [work for work in dict.fromkeys(works) if work not in losses]
    members = [[work for work in new if work.point.recipe is recipe] for recipe in SoloRecipe]
    groups = [
        (changed_recipe(terms.recipe, recipe), [partial(_samples, split, work) for work in own])
        for recipe, own in zip(SoloRecipe, members, strict=True)
    ]
    found = losses_of_groups(split.federated.model, groups, split.test, SEED, threads=threads)
    for own, values in zip(members, found, strict=True):
        losses.update(zip(own, values.tolist(), strict=True))
    return losses


SMALLEST_STEP = 1e-9  # lower limit of the step by which the slope of Shapley pay is computed


@dataclass(frozen=True, eq=False)
class Payer:
    """A contract with the clients and the training for which it pays.

    audition_cost  (N,) cost of training alone, if the contract uses solo models
    """

    contract: Contract
    clients: Clients
    training: Training
    audition_cost: FloatArray | float = 0.0


@dataclass(frozen=True, eq=False)
class Honest:
    """Results of honest work in each case, arrays (cases,).

    liar            the client under study
    payer           position of the payer
    loss, without   test loss with and without the liar
    joined, alone   of a coalition with and without the liar; NaN unless Shapley pay needs them
    nobody          of the initial model; NaN likewise
    solo, shift     loss of the liar's solo model, and the others' shift of the expected one; NaN and 0 unless needed
    """

    liar: IntArray
    payer: IntArray
    loss: FloatArray
    without: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray
    solo: FloatArray
    shift: FloatArray

    def first(self, cases: int) -> Honest:
        """The first cases."""
        return Honest(**{name: values[:cases] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Lied:
    """Results of lies, arrays (points, cases); fields as in `LieLosses`."""

    loss: FloatArray
    delivered: FloatArray
    joined: FloatArray
    solo: FloatArray


@dataclass(frozen=True, eq=False)
class Gains:
    """Money in each case.

    gain  (points, cases) payoff of the lie minus that of honest work
    pay   (cases,) honest pay
    cost  (cases,) cost of honest work
    """

    gain: FloatArray
    pay: FloatArray
    cost: FloatArray

    @property
    def unit(self) -> float:
        """Mean honest pay, or its cost if that is larger: the money of which gains are shares."""
        return max(float(self.pay.mean()), float(self.cost.mean()))


def gains(payers: Sequence[Payer], points: Sequence[LiePoint], lied: Lied, honest: Honest) -> Gains:
    """The gains of the points in each case. If a contract pays by claims, a liar claims to have used all their data."""
    truth = Lied(honest.loss[None], np.ones((1, len(honest.loss))), honest.joined[None], honest.solo[None])
    paid, honestly_paid = pay(payers, lied, honest, claims_all=True), pay(payers, truth, honest)[0]
    cost, of_lies = np.empty(len(honest.loss)), np.empty(lied.loss.shape)
    for number, payer in enumerate(payers):
        of_payer = np.flatnonzero(honest.payer == number)
        client = honest.liar[of_payer]
        price, assigned = batch_price(payer.clients, payer.training)[client], payer.contract.batch_size[client]
        labeling, owned = payer.clients.labeling_cost[client], payer.clients.dataset_size[client]
        alone = np.broadcast_to(payer.audition_cost, (len(payer.clients),))[client]
        cost[of_payer] = TRUTH.cost(labeling, price, assigned, owned) + alone
        passed = _passed(payer.contract, client, lied.solo[:, of_payer], honest.shift[of_payer])
        of_lies[:, of_payer] = [
            point.cost(labeling, np.where(stays, price, 0.0), assigned, owned) + point.solo_cost_factor * alone
            for point, stays in zip(points, passed, strict=True)
        ]
    return Gains(paid - of_lies - (honestly_paid - cost), honestly_paid, cost)


def pay(payers: Sequence[Payer], lied: Lied, honest: Honest, *, claims_all: bool = False) -> FloatArray:
    """The pay of the client of each case, (points, cases).

    Shapley pay: a contribution in one coalition per case is very noisy. So pay is linearized around the mean
    contribution over all cases. The total of all contributions is the drop from the initial model's loss.
    """
    paid = np.empty(lied.loss.shape)
    gained = honest.alone - lied.joined
    mean = np.broadcast_to(gained.mean(axis=1, keepdims=True), gained.shape)
    total = np.broadcast_to((honest.nobody - lied.loss).mean(axis=1, keepdims=True), gained.shape)
    step = np.broadcast_to(np.maximum(gained.std(axis=1, keepdims=True), SMALLEST_STEP), gained.shape)
    for number, payer in enumerate(payers):
        of_payer = np.flatnonzero(honest.payer == number)
        if not len(of_payer):
            continue
        contract, liar = payer.contract, honest.liar[of_payer]
        loss, delivered = lied.loss[:, of_payer], lied.delivered[:, of_payer]
        claimed = (payer.clients.dataset_size if claims_all else contract.batch_size)[liar]
        solo = SoloResult(lied.solo[:, of_payer][..., None], honest.shift[of_payer][:, None])

        def at(own: FloatArray, of_all: FloatArray | float) -> FloatArray:
            return _paid(contract, liar, delivered, (loss, claimed, own, of_all), solo)  # noqa: B023

        if Evidence.SHAPLEY in contract.needs:
            around, whole, by = mean[:, of_payer], total[:, of_payer], step[:, of_payer]
            above = np.maximum(around, 0.0)
            slope = (at(above + by, whole) - at(above, whole)) / by
            paid[:, of_payer] = at(around, whole) + slope * (gained[:, of_payer] - around)
        else:
            paid[:, of_payer] = at(honest.without[of_payer] - loss, np.nan)
    return paid


def _passed(contract: Contract, liar: IntArray, solo: FloatArray, shift: FloatArray) -> NDArray[np.bool_]:
    """Whether the client of each case takes part in the joint training, (points, cases)."""
    wide = (*solo.shape, len(contract.batch_size))
    observation = Observation(0.0, solo=SoloResult(solo[..., None], shift[:, None]))
    return np.broadcast_to(contract.passes(observation), wide)[:, np.arange(len(liar)), liar]


def _paid(
    contract: Contract, liar: IntArray, delivered: FloatArray, observed: Sequence[ArrayLike], solo: SoloResult
) -> FloatArray:
    """The contract's pay to the client of each case.

    observed  test loss, claimed batch size, own and total contribution
    """
    shape, wide = delivered.shape, (*delivered.shape, len(contract.batch_size))
    loss, claimed, own_part, of_all = (
        np.broadcast_to(np.broadcast_to(values, shape)[..., None], wide) for values in observed
    )
    observation = Observation(
        loss,
        delivered=delivered[..., None],
        asked=np.ones_like(delivered)[..., None],
        solo=solo if Evidence.SOLO_LOSS in contract.needs else None,
        claimed_batch_size=claimed,
        contribution=Contribution(own_part, of_all) if contract.needs & CONTRIBUTIONS else None,
    )
    pay = np.asarray(contract.pay(observation), dtype=float)
    if pay.shape != wide:
        raise InputError(f"the contract {contract.kind!r} pays an array of shape {pay.shape}; it must be {wide}.")
    own: FloatArray = pay[:, np.arange(len(liar)), liar]
    if not np.isfinite(own).all():
        who = liar[~np.isfinite(own).all(axis=0)][0]
        raise InputError(f"the contract {contract.kind!r} pays client {who} no finite amount.")
    return own
