"""Trains federations in which one client lies, or two share labels; the other clients are honest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.adversary.lie_point import ABSENCE, TRUTH, LiePoint
from truthfl.adversary.lied_solo import KnownSolo, SoloTerms, honest_shifts, lied_solo_losses
from truthfl.adversary.split import Split
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import FREE_RIDER, TRUTHFUL
from truthfl.learning.draws import Purpose, key
from truthfl.learning.federated import Federated
from truthfl.learning.local_training import takes_part
from truthfl.learning.profile import Profile
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray, IntArray

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
    delivered  share of the rounds in which the liar was asked and her report was not empty
    solo       loss of the liar's solo model; NaN if no rule pays by it
    shift      (cases,) the others' shift of the expected solo loss; 0 likewise

    For Shapley pay, with one random coalition of other clients per case, else NaN:

    joined     (points, cases) test loss of the coalition with her
    alone      (cases,) test loss of the coalition without her; NaN unless honest work is among the points
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

    With `solo_terms`, solo models are trained, too, but for those that are known.
    """
    count = len(split.federated.partition)
    everybody = [np.ones(count, dtype=bool)] * len(cases)
    loss, delivered = _losses(split, batch_size, points, cases, everybody, threads)
    empty, solo, shift = np.full(len(cases), np.nan), np.full_like(loss, np.nan), np.zeros(len(cases))
    if solo_terms is not None:
        pairs = [(case.client, case.seed) for case in cases]
        known = {} if known_solo is None else known_solo
        solo = lied_solo_losses(split, solo_terms, points, pairs, known=known, threads=threads)
        shift = honest_shifts(split, solo_terms, [client for client, _ in pairs], known=known, threads=threads)
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
    joined, alone  of a random coalition with her and without her; NaN unless coalitions were trained
    nobody         (pairs,) of the initial model; NaN likewise
    solo           of solo models: with shared labels, of the labeler's samples; NaN unless a rule pays by them
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
    """Runs of honest pairs, and of pairs of whom the second uses the samples and labels of the first; one seed each."""
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
) -> tuple[FloatArray, FloatArray]:
    """Losses and delivered shares, (points, cases); clients who are not members of a case's coalition are absent."""
    loss, delivered = np.empty((len(points), len(cases))), np.empty((len(points), len(cases)))
    usual = [p for p, point in enumerate(points) if point.labels <= 1]
    groups = [(split.federated, usual, list(range(len(cases))))] if usual else []
    for p, point in enumerate(points):
        if point.labels > 1:  # a federation of her own, in which she holds more samples
            for c, case in enumerate(cases):
                held = round(point.labels * int(split.federated.partition.sizes[case.client]))
                groups.append((split.with_more_samples(case.client, held), [p], [c]))
    for federated, of_points, of_cases in groups:
        runs = [(p, c) for p in of_points for c in of_cases]
        sizes = split.federated.partition.sizes
        profiles = [_lying_profile(federated, batch_size, sizes, points[p], cases[c], members[c]) for p, c in runs]
        seeds = [cases[c].seed for _, c in runs]
        losses, empty = _trained(split, federated, profiles, seeds, threads)
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


def _trained(
    split: Split, federated: Federated, profiles: list[Profile], seeds: list[int], threads: int | None
) -> tuple[FloatArray, tuple[dict[int, int], ...]]:
    """The final test loss of each run, and the number of empty reports by client."""
    with np.errstate(over="ignore", invalid="ignore"):  # with lies, training may diverge
        trained = train(federated, profiles, seeds, evaluate_on={"test": split.test}, threads=threads)
    losses = np.fmin(trained.evaluations["test"].loss[:, -1], MAX_LOSS)
    return losses, tuple(dict(counts) for counts in trained.refused_reports)


def _delivered_share(federated: Federated, point: LiePoint, case: Case, empty: dict[int, int]) -> float:
    if point == ABSENCE:
        return 0.0
    if not empty.get(case.client):
        return 1.0
    rounds, q = federated.training.rounds, float(federated.participation[case.client])
    asked = rounds if q == 1.0 else sum(takes_part(case.seed, case.client, t, q) for t in range(rounds))
    return 1.0 - empty[case.client] / max(asked, 1)
