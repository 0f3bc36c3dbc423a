"""Solo models of clients who lie, and of honest ones, on a split: their tested losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from truthfl.adversary.lie_point import TRUTH, LiePoint
from truthfl.adversary.split import Split
from truthfl.learning.audition_work import audition_samples
from truthfl.learning.behaviour import Behaviour, SoloRecipe
from truthfl.learning.behaviours import TRUTHFUL
from truthfl.learning.federated import Federated
from truthfl.learning.model import Features, Labels
from truthfl.learning.profile import Profile
from truthfl.learning.recipe import Recipe, changed_recipe
from truthfl.learning.solo_groups import losses_of_groups
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.peer_level import peer_shifts

MOST_PEERS = 60  # other clients whose solo losses set the level
SEED = 0  # of the solo models' start and draws, and of the test; what varies are the samples


@dataclass(frozen=True, eq=False)
class SoloTerms:
    """What a contract says of solo models: the recipe, and for each client expected loss and spread, (N,).

    Both are NaN for a client of a reduced federation who stands for several.
    """

    recipe: Recipe
    level: FloatArray
    spread: FloatArray

    def document(self) -> dict[str, Any]:
        """The terms as JSON values."""
        return {"recipe": self.recipe.document(), "level": self.level.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> SoloTerms:
        """The terms with this document."""
        return cls(Recipe(**document["recipe"]), np.array(document["level"]), np.array(document["spread"]))

    def of_clients(self, clients: IntArray, count: int) -> SoloTerms:
        """The terms of these clients, followed by NaN up to `count` clients in all."""
        padded = np.full((2, count), np.nan)
        padded[:, : len(clients)] = self.level[clients], self.spread[clients]
        return SoloTerms(self.recipe, *padded)

    @classmethod
    def of_contract(cls, contract: Mechanism, recipe: Recipe) -> SoloTerms:
        """The terms of an audition contract."""
        assert isinstance(contract, Audition)
        return cls(recipe, contract.solo_level, contract.solo_spread)


@dataclass(frozen=True)
class SoloWork:
    """What a solo model depends on: the client, the seed of her labels, labels, rest and recipe."""

    client: int
    seed: int
    point: LiePoint


KnownSolo = dict[SoloWork, float]
"""Losses of solo models that were trained before; those that are trained are added."""


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
    count, able = len(split.federated.partition), np.flatnonzero(np.isfinite(terms.level))
    peers = able[np.linspace(0, len(able) - 1, min(len(able), MOST_PEERS)).astype(int)]
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
    """The samples on which she trains alone."""
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
