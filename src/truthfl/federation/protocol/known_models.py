"""Solo models that are known from an earlier job or too good, and test samples that were published.

A participant of an earlier job has its joint model, which is better than any model trained alone, and the solo model
that they sent. The operator has both. The operator compares how alike the residual scores of two models are on test
samples, after removing what all models of the task have in common: the mean of solo models of pilot clients. Beside a
joint model, the person's own solo model of that job is removed too, because their own labels are in it. Independent
models are as alike as those of pilot clients. A copy, scaled or mixed or with noise, is far more alike
(docs/mechanism.md, section 8). A person's own earlier solo model counts only if it is sent again unchanged or scaled,
and not under the same seed: the same labels make nearly the same model.

Such models are "hold" rows of the ledger. The job waits in a stage for the operator's decision on each. The tested
models are kept in a file, so a restarted server asks nobody again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from truthfl.coded_text import CodedText, coded, moment
from truthfl.contracts.contract import Evidence
from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError, TruthflError
from truthfl.federation.operator.commands import clock_time
from truthfl.federation.operator.live_status import DECIDING
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.final_model import features_name, published_files, solo_file
from truthfl.federation.protocol.job_task import task_terms
from truthfl.federation.protocol.messages import HELD, model_digest
from truthfl.federation.protocol.reports import Opened
from truthfl.files import write_file
from truthfl.job import DataJob
from truthfl.learning.data.datasets import npz_bytes, read_npy, read_npz
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.samples import LabeledImages
from truthfl.learning.models.model import Features, Params
from truthfl.learning.pilot.pilot_clients import draw_pilot_clients
from truthfl.learning.solo import recipe_of, train_all_alone
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import test_set_digest
from truthfl.ledger.commands import REFUSE
from truthfl.ledger.entry import Item
from truthfl.ledger.evidence import is_too_good, level_shifts
from truthfl.ledger.held_models import REFUSED, decision_on, known_model, waiting_names
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.terms import Agreement


def require_new_test_set(ledger: Ledger, folder: Path, job: DataJob) -> None:
    """Raise InputError if test samples of this job, which has not begun, were published with one of the ledger's.

    The ledger has digests of whole test sets. Single samples are compared if the folder still has the file.
    """
    tested = [(name, entry) for name in ledger.jobs() if (entry := ledger.find(name, "test", "test")) is not None]
    if not tested:
        return
    test = job.server_side().test
    test_set, own = test_set_digest(test.features, test.labels), set(_digests(test.features))
    for name, entry in tested:
        if entry.document["test_set"] == test_set:
            _refuse(name, len(test), len(test))
        published = _published(published_files(folder, name)[1], isinstance(test, LabeledImages))
        again = 0 if published is None else len(own & set(_digests(published)))
        if again:
            _refuse(name, again, len(test))


def _refuse(earlier: str, again: int, samples: int) -> None:
    raise InputError(
        f"{again:,} of the {samples:,} test samples were published with job {earlier}, so that participants may have "
        "trained on them; give this job test samples that are new."
    )


def _published(path: Path, pictures: bool) -> Features | None:
    """The features of a published test set; None if it is missing or has another kind of samples."""
    name = features_name(pictures)
    try:
        return read_npz(path, [name])[name]
    except TruthflError:
        return None


def _digests(features: Features) -> Iterable[bytes]:
    """A digest of each sample's features, whatever its label."""
    kind = f"{features.dtype.str}{features.shape[1:]}".encode()
    return (sha256(kind + np.ascontiguousarray(one).tobytes()).digest() for one in features)


PILOT_CLIENTS, SEED = 40, 910
MOST_SAMPLES = 2000  # of the test set
LIMIT_DEVIATIONS = 5.0  # above the likeness of independent models
MOST_LIKE = 0.9  # of independent models, also where the pilot is small
COPY = 1 - 1e-6  # of the scores for a person's own model that is sent again
LEAST_REST = 1e-3  # the least share of scores left after the removal for a comparison
MOST_NAMED = 3  # files named in a sentence
AT_ONCE = 256  # earlier solo models whose scores are in memory
Scores = Mapping[str, FloatArray]  # of solo models, by their owners' public keys
Found = tuple[str, "Likeness"]  # a sender's public key, and what the model is like


@dataclass(frozen=True)
class Likeness:
    """The earlier job with a model like this one, the likeness (1 is a copy), and whether it is a solo model."""

    job: str
    likeness: float
    solo: bool

    def document(self) -> dict[str, object]:
        return {"job": self.job, "likeness": round(self.likeness, 4), "solo": self.solo}


@dataclass(frozen=True, eq=False)
class EarlierJob:
    """The models of an earlier job of the same task.

    seed     of its training
    joint    None if it has none, or it is no longer in the operator's folder
    solo     of clients who passed, by public key, if in the folder
    digests  of the solo models that were tested, each with its sender's public key
    """

    name: str
    seed: int
    joint: Params | None
    solo: Mapping[str, Params]
    digests: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class KnownModels:
    """Compares solo models with the models of earlier jobs."""

    jobs: Sequence[EarlierJob]
    side: ServerSide
    agreement: Agreement

    def known(self, models: Mapping[str, Params]) -> dict[str, Likeness]:
        """By client: the solo models that are too much like an earlier one, and which one."""
        if not self.jobs:
            return {}
        keys = {offer.client.name: offer.client.public_key for offer in self.agreement.offers}
        scores = {keys[name]: self._scores(model) for name, model in models.items()}
        digests = {keys[name]: model_digest(model) for name, model in models.items()}
        found: dict[str, Likeness] = {}
        for job in self.jobs:
            for key, like in (*self._copies(job, digests, scores), *self._joint(job, scores), *self._solo(job, scores)):
                if key not in found or like.likeness > found[key].likeness:
                    found[key] = like
        return {name: found[keys[name]] for name in models if keys[name] in found}

    def _copies(self, job: EarlierJob, digests: Mapping[str, str], scores: Scores) -> Iterator[Found]:
        """Solo models that were tested in this job; a person's own model also counts if scaled."""
        for key, digest in digests.items():
            if job.digests.get(digest, key) != key:
                yield key, Likeness(job.name, 1.0, solo=True)
            elif job.seed != self.agreement.terms.seed:
                own = job.solo.get(key)
                if digest in job.digests or (own is not None and _correlation(scores[key], self._scores(own)) > COPY):
                    yield key, Likeness(job.name, 1.0, solo=True)

    def _joint(self, job: EarlierJob, scores: Scores) -> Iterator[Found]:
        if job.joint is None:
            return
        joint = self._scores(job.joint)
        among_pilots = [likeness(own, joint, [self._common - own / len(self._pilot)]) for own in self._pilot]
        limit = _limit(np.array(among_pilots))
        for key, one in scores.items():
            own = job.solo.get(key)
            common = [self._common] if own is None else [self._common, self._scores(own)]
            like = likeness(one, joint, common)
            if like > limit:
                yield key, Likeness(job.name, like, solo=False)

    def _solo(self, job: EarlierJob, scores: Scores) -> Iterator[Found]:
        """Solo models that other people sent, `AT_ONCE` at a time."""
        keys, owners = list(scores), list(job.solo)
        if not keys or not owners:
            return
        rest = _rest(np.stack(list(scores.values())), self._common)
        for first in range(0, len(owners), AT_ONCE):
            chunk = owners[first : first + AT_ONCE]
            like = rest @ _rest(np.stack([self._scores(job.solo[owner]) for owner in chunk]), self._common).T
            like[np.equal.outer(keys, chunk)] = -1.0
            most = like.max(axis=1)
            for row in np.flatnonzero(most > self._solo_limit).tolist():
                yield keys[row], Likeness(job.name, float(most[row]), solo=True)

    def _scores(self, model: Params) -> FloatArray:
        """Scores on test samples as one array, without the parts that do not distinguish samples or classes."""
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
    def _solo_limit(self) -> float:
        """The likeness that solo models of two people do not reach: from pairs in one half of the pilot clients.

        The other half gives the common part.
        """
        half = len(self._pilot) // 2
        rest = _rest(self._pilot[half:], self._pilot[:half].mean(axis=0))
        return _limit((rest @ rest.T)[np.triu_indices(len(rest), 1)])


def likeness(one: FloatArray, other: FloatArray, common: Sequence[FloatArray]) -> float:
    """The correlation of two models' scores once the `common` ones are taken out of both; 0 if nothing is left."""
    basis, _ = np.linalg.qr(np.stack(common, axis=1))
    rest = [scores - basis @ (basis.T @ scores) for scores in (one, other)]
    lengths = [float(np.linalg.norm(left)) for left in rest]
    if lengths[0] <= LEAST_REST * np.linalg.norm(one) or lengths[1] <= LEAST_REST * np.linalg.norm(other):
        return 0.0
    return float(rest[0] @ rest[1] / (lengths[0] * lengths[1]))


def _rest(scores: FloatArray, common: FloatArray) -> FloatArray:
    """Each row without `common`, scaled to length 1; 0 if nothing is left."""
    unit = common / max(float(np.linalg.norm(common)), 1e-12)
    rest = scores - np.outer(scores @ unit, unit)
    length = np.linalg.norm(rest, axis=1, keepdims=True)
    enough = length > LEAST_REST * np.linalg.norm(scores, axis=1, keepdims=True)
    return np.where(enough, rest / np.maximum(length, 1e-12), 0.0)


def _correlation(one: FloatArray, other: FloatArray) -> float:
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12))


def _limit(independent: FloatArray) -> float:
    """The likeness that independent models do not reach, estimated from some of them."""
    return min(float(independent.mean() + LIMIT_DEVIATIONS * independent.std(ddof=1)), MOST_LIKE)


def known_models(ledger: Ledger, folder: Path, job: str, side: ServerSide, agreement: Agreement) -> KnownModels:
    """The models of the ledger's other jobs of the same task."""
    parameters = len(side.pilot.model.init(agreement.terms.seed))
    views = [job_view(name, ledger.entries(name)) for name in ledger.jobs() if name != job]
    terms = agreement.terms
    task = terms.model, terms.image_shape, terms.classes, terms.task
    found = [_earlier_job(folder, view, parameters) for view in views if _task_of(view) == task]
    return KnownModels(found, side, agreement)


def uncomparable_warnings(ledger: Ledger, folder: Path, job: DataJob) -> list[str]:
    """A warning before a job with an audition begins if joint models of the same task cannot be compared."""
    tested = [name for name in ledger.jobs() if ledger.find(name, "test", "test") is not None]
    if Evidence.SOLO_LOSS not in job.contract.load().needs or not tested:
        return []
    side = job.server_side()
    task = (
        job.trained_model.document(),
        side.test.features.shape[1:],
        side.test.classes,
        task_terms(job.task, side.task),
    )
    views = [view for name in tested if _task_of(view := job_view(name, ledger.entries(name))) == task]
    missing = [view.name for view in views if _joint_model(folder, view) is None]
    if not missing:
        return []
    paths = ", ".join(str(published_files(folder, name)[0]) for name in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
    return [
        f"Beware: {paths}{more} cannot be read, or {'is' if len(missing) == 1 else 'are'} not as the ledger says: "
        "a participant who sends that joint model of an earlier job as their own solo model is not detected. Put it "
        "back from a backup."
    ]


def _task_of(view: JobView) -> tuple[object, ...] | None:
    """The model, the samples, the classes and the task of a job; None if it has no contract."""
    if view.agreement is None:
        return None
    terms = view.agreement.terms
    return terms.model, terms.image_shape, terms.classes, terms.task


def _earlier_job(folder: Path, view: JobView, parameters: int) -> EarlierJob:
    """The job's models that are in the folder.

    Models that did not pass are not compared: somebody could send imitations of others' models without pay.
    """
    assert view.agreement is not None
    keys = [offer.client.public_key for offer in view.agreement.offers]
    results = [view.auditions.get(offer.client.name) for offer in view.agreement.offers]
    digests: dict[str, str] = {}
    for key, result in zip(keys, results, strict=True):
        if result is not None and result.document["model"] is not None:
            digests.setdefault(result.document["model"], key)
    joint = _joint_model(folder, view)
    solo = _array(solo_file(folder / "models", view.name), (len(keys), parameters))
    own = {
        key: model
        for key, model, result in zip(keys, () if solo is None else solo, results, strict=solo is not None)
        if result is not None and result.document["passed"] and model_digest(model) == result.document["model"]
    }
    return EarlierJob(view.name, view.agreement.terms.seed, joint, own, digests)


def _joint_model(folder: Path, view: JobView) -> Params | None:
    """A job's joint model; None if it has none, or its file is missing or has another one."""
    if view.test is None:
        return None
    joint = _array(published_files(folder, view.name)[0])
    return joint if joint is not None and model_digest(joint) == view.test.document["model"] else None


def _array(path: Path, shape: tuple[int, ...] | None = None) -> NDArray[np.float32] | None:
    """The parameters in this file, of this shape if one is given; None if they are missing or of another model."""
    try:
        found = read_npy(path)
    except TruthflError:
        return None
    return found if found.dtype == np.float32 and shape in (None, found.shape) else None


FOLDER = "held"


@dataclass(frozen=True, eq=False)
class Tested:
    """The solo models of a job and their losses, by client; for others, why there is none."""

    opened: Mapping[str, Opened]
    losses: Mapping[str, float]
    refused: Mapping[str, str]
    again: Mapping[str, str]


def hold_models(roster: Roster, agreement: Agreement, tested: Tested, known: KnownModels, folder: Path) -> None:
    """Write to the ledger which models are known, or too good to be paid unseen."""
    offers = {offer.client.name: offer for offer in agreement.offers}
    like = known.known({name: one.model for name, one in tested.opened.items()})
    losses = {name: None if name in like else tested.losses.get(name) for name in offers}
    shifts = level_shifts(agreement.offers, losses)
    held = [name for name in offers if name in like or is_too_good(offers[name], losses[name], shifts[name])]
    if not held:
        return
    _keep_tested(folder, roster.job_name, tested)
    items = []
    for name in held:
        document = {
            "client": name,
            "offer": offers[name].hash,
            "model": model_digest(tested.opened[name].model),
            "solo_loss": tested.losses[name],
            "level_shift": shifts[name],
            "known": like[name].document() if name in like else None,
        }
        items.append(Item(roster.job_name, "hold", name, document))
    roster.ledger.append_all(items)


def wait_for_decisions(roster: Roster, seconds: float) -> None:
    """Wait until the operator has decided on each model that is too good, or the time is up."""
    waiting = _waiting(roster)
    if not waiting or not seconds:
        return
    clock, seen = roster.stage(DECIDING, seconds), len(roster.control.commands)
    told: set[str] = set()
    while waiting and not clock.over:
        new = {name for name in waiting if name in roster.node_of} - told
        told |= new
        until = datetime.now(UTC) + timedelta(seconds=clock.seconds_left)
        roster.tell([roster.node_of[name] for name in new], held_news(until), over=False, about=HELD)
        clock.wait()
        roster.refresh()
        if len(roster.control.commands) != seen:
            waiting, seen = _waiting(roster), len(roster.control.commands)


def unpaid_reasons(view: JobView) -> dict[str, str]:
    """Why held models are not paid, by client; a model that the operator has not refused is."""
    reasons: dict[str, str] = {}
    for name, entry in view.holds.items():
        known, decided = entry.document["known"], decision_on(view, name)
        if known is not None:
            reasons[name] = f"The model is nearly {known_model(known)}; it is known already."
        elif decided is not None and decided[1].kind == REFUSE:
            reasons[name] = f"{REFUSED}{decided[1].reason}."
    return reasons


def held_news(until: datetime) -> CodedText:
    """The news for a client on whose model the operator decides."""
    words = (
        "Your model is far better than honest ones usually are. The operator looks at it and may refuse it until "
        "{time}. Otherwise your pay is settled as offered, and paid out once the operator has accepted the model."
    )
    return coded("news.held", words, time=moment(clock_time(until), until.timestamp()))


def _waiting(roster: Roster) -> list[str]:
    return waiting_names(job_view(roster.job_name, roster.ledger.entries(roster.job_name)))


def _keep_tested(folder: Path, job: str, tested: Tested) -> None:
    salts = {name: one.salt for name, one in tested.opened.items()}
    words = {"salts": salts, "losses": dict(tested.losses)}
    words |= {"refused": dict(map(_texts, tested.refused.items())), "again": dict(map(_texts, tested.again.items()))}
    models = np.stack([tested.opened[name].model for name in salts])
    text = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
    write_file(_path(folder, job), npz_bytes({"words": text, "models": models}), private=True)


def read_tested(folder: Path, job: str) -> Tested | None:
    """The test results of an earlier start of the server; None if there are none."""
    path = _path(folder, job)
    if not path.exists():
        return None
    arrays = read_npz(path, ["words", "models"])
    try:
        words = json.load(io.BytesIO(arrays["words"].tobytes()))
        opened = {
            name: Opened(salt, model)
            for (name, salt), model in zip(words["salts"].items(), arrays["models"], strict=True)
        }
        return Tested(opened, words["losses"], words["refused"], words["again"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} cannot be read; without it job {job} cannot go on.") from None


def _texts(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[0], str(pair[1])


def _path(folder: Path, job: str) -> Path:
    return folder / FOLDER / f"{job}.npz"
