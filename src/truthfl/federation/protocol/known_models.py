"""Solo models that an earlier joint model of the same task knows already.

Who took part in an earlier job has its joint model, which is better than what anybody can train alone. The operator has
it too, and compares: how alike are the residual scores of two models on test samples, once what all models of the task
have in common is taken out? That is the mean of solo models of pilot clients; and, of somebody who took part in the
earlier job, their solo model of that job too, for their own labels are in its joint model. Independent models are as
alike as those of pilot clients; a copy, scaled or mixed or with noise, is far more so. docs/mechanism.md, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from truthfl.errors import TruthflError
from truthfl.federation.protocol.audit import published_files, solo_file
from truthfl.federation.protocol.model_digest import model_digest
from truthfl.learning.array_files import read_npy
from truthfl.learning.audition_pilot import draw_pilot_clients
from truthfl.learning.federations import ServerSide
from truthfl.learning.model import Params
from truthfl.learning.recipe import recipe_of
from truthfl.learning.solo_training import train_all_alone
from truthfl.ledger.book import Ledger
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.terms import Agreement
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.peer_level import GATE_DEVIATIONS

PILOT_CLIENTS, SEED = 40, 910
MOST_SAMPLES = 2000  # of the test set
MOST_LIKE = 0.9  # of independent models, also where the pilot is small
LEAST_REST = 1e-3  # of scores, beside what is taken out, to be compared at all


@dataclass(frozen=True)
class Likeness:
    """The earlier job whose joint model a solo model is like, and how much: 1 is a copy."""

    job: str
    likeness: float

    def document(self) -> dict[str, object]:
        return {"job": self.job, "likeness": round(self.likeness, 4)}


@dataclass(frozen=True, eq=False)
class EarlierJob:
    """A joint model of the same task, and the solo models that went before it, by their owners' public keys."""

    name: str
    model: Params
    solo: Mapping[str, Params]


@dataclass(frozen=True, eq=False)
class KnownModels:
    """Compares solo models with the joint models of earlier jobs."""

    jobs: Sequence[EarlierJob]
    side: ServerSide
    agreement: Agreement

    def known(self, model: Params, public_key: str) -> Likeness | None:
        """The joint model that this solo model is too much like; None if there is none."""
        found = None
        for job, joint, limit in self._limits:
            own = job.solo.get(public_key)
            common = [self._common] if own is None else [self._common, self._scores(own)]
            like = likeness(self._scores(model), joint, common)
            if like > limit and (found is None or like > found.likeness):
                found = Likeness(job.name, like)
        return found

    def _scores(self, model: Params) -> FloatArray:
        """Scores on test samples without what does not distinguish samples or classes, as one array."""
        samples = self.side.test.features[:MOST_SAMPLES]
        with np.errstate(all="ignore"):
            scores = self.side.pilot.model.scores(model, samples).astype(np.float64)
        scores = np.where(np.isfinite(scores).all(), scores, 0.0)
        scores -= scores.mean(axis=1, keepdims=True)
        scores -= scores.mean(axis=0)
        return np.asarray(scores.ravel() / max(float(np.abs(scores).max()), 1e-12))

    @cached_property
    def _pilot(self) -> FloatArray:
        """The scores of pilot clients' solo models, (clients, scores)."""
        data, terms = self.side.pilot.data, self.agreement.terms
        labels = round(float(np.mean([offer.client.samples for offer in self.agreement.offers])))
        rows = draw_pilot_clients(self.side, min(labels, len(data)), SEED).rows[:PILOT_CLIENTS]
        samples = [(data.features[own], data.labels[own]) for own in rows]
        trained = train_all_alone(
            self.side.pilot.model, samples, recipe_of(terms.recipe), terms.seed, classes=data.classes
        )
        return np.stack([self._scores(one) for one in trained])

    @cached_property
    def _common(self) -> FloatArray:
        return np.asarray(self._pilot.mean(axis=0))

    @cached_property
    def _limits(self) -> list[tuple[EarlierJob, FloatArray, float]]:
        """For each earlier job the scores of its joint model, and the likeness that independent models do not reach.

        That is measured on the pilot clients' models.
        """
        limits = []
        for job in self.jobs:
            joint = self._scores(job.model)
            found = [likeness(own, joint, [self._common - own / len(self._pilot)]) for own in self._pilot]
            limit = float(np.mean(found) + GATE_DEVIATIONS * np.std(found, ddof=1))
            limits.append((job, joint, min(limit, MOST_LIKE)))
        return limits


def likeness(one: FloatArray, other: FloatArray, common: Sequence[FloatArray]) -> float:
    """The correlation of two models' scores once the `common` ones are taken out of both; 0 if nothing is left."""
    basis, _ = np.linalg.qr(np.stack(common, axis=1))
    rest = [scores - basis @ (basis.T @ scores) for scores in (one, other)]
    lengths = [float(np.linalg.norm(left)) for left in rest]
    if lengths[0] <= LEAST_REST * np.linalg.norm(one) or lengths[1] <= LEAST_REST * np.linalg.norm(other):
        return 0.0
    return float(rest[0] @ rest[1] / (lengths[0] * lengths[1]))


def known_models(ledger: Ledger, folder: Path, job: str, side: ServerSide, agreement: Agreement) -> KnownModels:
    """The joint models of the ledger's other jobs of the same task, as far as the operator's folder has them."""
    views = [job_view(name, ledger.entries(name)) for name in ledger.jobs() if name != job]
    found = [_earlier_job(folder, view) for view in views if _is_same_task(view, agreement.terms)]
    return KnownModels([one for one in found if one is not None], side, agreement)


def _is_same_task(view: JobView, terms: JobTerms) -> bool:
    if view.test is None or view.agreement is None:
        return False
    other = view.agreement.terms
    return (other.model, other.image_shape, other.classes, other.task) == (
        terms.model,
        terms.image_shape,
        terms.classes,
        terms.task,
    )


def _earlier_job(folder: Path, view: JobView) -> EarlierJob | None:
    """The job's models; None if its joint model is not in the folder any more."""
    assert view.test is not None
    assert view.agreement is not None
    try:
        model = read_npy(published_files(folder, view.name)[0])
    except TruthflError:
        return None
    if model.dtype != np.float32 or model_digest(model) != view.test.document["model"]:
        return None
    keys = [offer.client.public_key for offer in view.agreement.offers]
    try:
        solo = read_npy(solo_file(folder / "models", view.name))
    except TruthflError:
        return EarlierJob(view.name, model, {})
    fits = solo.dtype == np.float32 and solo.shape == (len(keys), len(model))
    own = {key: one for key, one in zip(keys, solo, strict=True) if np.isfinite(one).all()} if fits else {}
    return EarlierJob(view.name, model, own)
