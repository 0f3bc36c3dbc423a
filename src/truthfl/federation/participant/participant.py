"""`Participant`: a signatory who labels samples and trains a model; independent of Flower."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.coded_text import coded, sentence_of, untranslated
from truthfl.errors import InputError
from truthfl.federation.masking.participant import MaskingClient
from truthfl.federation.masking.shares import mask_stream
from truthfl.federation.participant.round_guard import (
    AUDITION,
    RECEIVED,
    Answering,
    AskedRound,
    answering,
    key_of_audition,
    key_of_batches,
    key_of_round,
    one_at_a_time,
    received_models,
)
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.participant.task_data import RecentEntries
from truthfl.federation.protocol.job_task import model_of, task_of
from truthfl.federation.protocol.messages import model_digest
from truthfl.files import write_file
from truthfl.home import participant_folder
from truthfl.home.record import AUDITIONS, note_arrival, note_commitment, note_opening, read_record
from truthfl.learning.data.datasets import npz_bytes, read_npz
from truthfl.learning.data.samples import LabelSets, labels_alone, labels_in_round
from truthfl.learning.models.model import Features, Labels, Model, Params
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.behaviours import behaviour
from truthfl.learning.privacy import DrawKey, PrivateModel
from truthfl.learning.solo import audition_model, recipe_of
from truthfl.learning.tasks.task_choice import BUILT_IN, PICTURES, TaskChoice
from truthfl.learning.training.compute import one_blas_thread
from truthfl.learning.training.local_training import report_of_round
from truthfl.ledger.canonical import SECRET_BYTES, audition_commitment, new_secret
from truthfl.ledger.terms import JobTerms, Offer, offer_from


@dataclass(frozen=True, eq=False)
class KeptAudition:
    """The salt, in hexadecimal, and the model."""

    salt: str
    model: Params


def keep_audition(home: Path, offer_hash: str, model: Params) -> KeptAudition:
    """Write the model with a new salt unless there is one for this offer; return what is then in the folder."""
    salt = np.frombuffer(bytes.fromhex(new_secret()), dtype=np.uint8)
    content = npz_bytes({"salt": salt, "model": np.asarray(model, dtype=np.float32)})
    write_file(_path(home, offer_hash), content, private=True, keep_existing=True)
    kept = read_audition(home, offer_hash)
    assert kept is not None
    return kept


def read_audition(home: Path, offer_hash: str) -> KeptAudition | None:
    """The salt and model kept for this offer; None if there are none."""
    path = _path(home, offer_hash)
    if not path.exists():
        return None
    arrays = read_npz(path, ["salt", "model"])
    salt, model = arrays["salt"], arrays["model"]
    if salt.dtype != np.uint8 or salt.shape != (SECRET_BYTES,) or model.dtype != np.float32 or model.ndim != 1:
        raise InputError(f"{path} does not hold a salt and a model; remove it to train again.")
    return KeptAudition(salt.tobytes().hex(), model)


def _path(home: Path, offer_hash: str) -> Path:
    """The file of this offer; the hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / AUDITIONS / f"{offer_hash}.npz"


MEND_LABELS = coded("news.mend_labels", "Mend your labels and join again; the offer is not answered yet.")

LabelSource = Callable[[Offer], Labels | LabelSets | None]


class UnlabeledError(InputError):
    """Labels are missing, and the participant knows it."""


@dataclass(eq=False, kw_only=True)
class Participant(Signatory):
    """One client with samples, on their own machine or simulated.

    samples_for      returns the features of the samples for an offer, by its task; raises InputError if they do not fit
    labels           returns the labels for an offer, one per sample, or sets if it allows several; None until all are
                     there; raises InputError if there are others than the offer's classes
    image_shape      of the pictures; None if they are fitted to the offer, or if the samples are not pictures
    task             the stated task of the samples
    count_labels     returns how many of the labels for an offer are there, while some are not; None if it is not known
    existing_labels  the labels that came with the pictures, if any; they are checked when an offer names the classes
    behaviour        for simulations: the name of a behaviour, or a `Behaviour`
    own_secret       secret of the draws in private training and of masked reports' batches; None, in simulations, lets
                     the draws follow from the job's seed
    accepted_offers  by hash: a cache of offers and their models
    keeps_features   whether the samples' features stay in memory; otherwise `samples_for` is called for each use
    mask_stream      computes a mask; simulations share them
    features_for     by hash: a cache of them
    masks            by hash: the masks under the offer
    starts           by hash: a cache of the models from which training starts
    """

    samples_for: Callable[[Offer], Features]
    labels: LabelSource
    image_shape: tuple[int, ...] | None = None
    task: TaskChoice = PICTURES
    count_labels: Callable[[Offer], int] | None = None
    existing_labels: Labels | LabelSets | None = None
    behaviour: str | Behaviour = "truthful"
    own_secret: DrawKey | None = None
    keeps_features: bool = True
    mask_stream: Callable[[bytes, int], bytes] = mask_stream
    accepted_offers: dict[str, tuple[Offer, Model]] = field(default_factory=RecentEntries)
    features_for: dict[str, Features] = field(default_factory=RecentEntries)
    masks: dict[str, MaskingClient] = field(default_factory=RecentEntries)
    starts: dict[str, Params] = field(default_factory=RecentEntries)

    def describe(self) -> dict[str, Any]:
        if self.task.is_pictures:
            shape = None if self.image_shape is None else list(self.image_shape)
            return super().describe() | {"image_shape": shape}
        own = {"source": self.task.source()} if self.task.is_own else {}
        return super().describe() | {"task": self.task.name} | own

    def answer_offer(self, document: dict[str, Any]) -> dict[str, Any] | None:
        offer = offer_from(document)
        fault = self._sample_fault(offer)
        if fault is not None:
            participant_folder.put_news(self.folder, fault, over=True)
            return None
        if offer.job.has_solo_models:
            recipe = recipe_of(offer.job.recipe)
            if recipe.shifts and isinstance(model_of(offer.job, self.task), PrivateModel):
                raise InputError(
                    "the offer's private training has shifted copies, for which its epsilon does not hold."
                )
        fault = self._existing_label_fault(offer)
        if fault is not None:
            participant_folder.put_news(self.folder, fault, over=True)
            return None
        return super().answer_offer(document)

    def _sample_fault(self, offer: Offer) -> str | None:
        """A sentence if the samples or the task do not fit the offer; None otherwise."""
        offered = PICTURES.name if offer.job.task is None else str(offer.job.task["name"])
        if offered in BUILT_IN and offered != self.task.name:
            how = coded("news.without_task", "without --task")
            if offered != PICTURES.name:
                how = coded("news.with_task", "with --task {task}", task=offered)
            words = "the offer is on {offered}; you brought {brought}: join again {how}. Nothing is trained."
            return coded("news.other_task", words, offered=offered, brought=self.task.name, how=how)
        try:
            task_of(offer.job, self.task)
        except InputError as error:
            return untranslated(sentence_of(error))
        if self.image_shape is not None:
            if offer.job.image_shape != self.image_shape:
                raise InputError(f"the offer asks for samples of shape {offer.job.image_shape}.")
            return None
        mend = coded("news.mend_file", "Mend your file and join again; the offer is not answered yet.")
        try:
            features = self._features(offer)
        except InputError as error:
            return coded("news.and_mend", "{fault} {mend}", fault=untranslated(sentence_of(error)), mend=mend)
        if len(features) < offer.client.samples:
            words = "the offer asks for {asked} samples; your file has {found}. {mend}"
            return coded("news.too_few", words, asked=offer.client.samples, found=len(features), mend=mend)
        if features.shape[1:] != offer.job.image_shape:
            found, asked = (str(list(shape)) for shape in (features.shape[1:], offer.job.image_shape))
            words = "your samples are numbers of shape {found}; the offer asks for {asked}. {mend}"
            return coded("news.other_shape", words, found=found, asked=asked, mend=mend)
        return None

    def _features(self, offer: Offer) -> Features:
        """The features of the samples that the offer asks for."""
        if not self.keeps_features:
            return self.samples_for(offer)[: offer.client.samples]
        if offer.hash not in self.features_for:
            self.features_for[offer.hash] = self.samples_for(offer)
        return self.features_for[offer.hash][: offer.client.samples]

    def _existing_label_fault(self, offer: Offer) -> str | None:
        """A sentence if labels that came with the pictures are not among the job's classes; None otherwise."""
        labels, classes = self.existing_labels, len(offer.job.classes)
        if labels is None:
            return None
        if isinstance(labels, LabelSets):
            if not offer.job.several_labels and (labels.sizes > 1).any():
                words = "your pictures have several labels each, and the offer asks for one. {mend}"
                return coded("news.several_labels", words, mend=MEND_LABELS)
            asked = labels.take(np.arange(min(len(labels), offer.client.samples))).classes
        else:
            asked = labels[: offer.client.samples]
        outside = asked[(asked < 0) | (asked >= classes)]
        if not len(outside):
            return None
        words = (
            "{count} of your {total} labels are outside of the job's classes, which are 0 to {last}: the first is "
            "{first}. {mend}"
        )
        if len(outside) == 1:
            words = (
                "{count} of your {total} labels is outside of the job's classes, which are 0 to {last}: the first is "
                "{first}. {mend}"
            )
        values = {"total": len(asked), "last": classes - 1, "first": int(outside[0])}
        return coded("news.outside_labels", words, count=len(outside), mend=MEND_LABELS, **values)

    def has_labels(self, offer_hash: str) -> bool:
        """Whether all labels that the offer requires are there."""
        offer, _ = self._accepted_offer_and_model(offer_hash)
        try:
            labels = self.labels(offer)
        except InputError as error:  # the participant hears it at once; the server hears that labels are missing
            participant_folder.put_news(self.folder, untranslated(sentence_of(error)), over=False)
            return False
        return labels is not None and len(labels) >= offer.client.samples

    def labels_so_far(self, offer_hash: str) -> int | None:
        offer, _ = self._accepted_offer_and_model(offer_hash)
        return None if self.count_labels is None else min(self.count_labels(offer), offer.client.samples)

    def commit_audition(self, offer_hash: str) -> str:
        """Train alone, keep the model, and return the commitment to it; the same one when asked again.

        Each job gets one solo model. Several with noise, under several offers, would reveal more than was promised.
        """
        with one_at_a_time(self.folder, AUDITION):
            self._require_only_audition(self.accepted_offer(offer_hash))
            return self._commitment(offer_hash)

    def _require_only_audition(self, offer: Offer) -> None:
        for other in participant_folder.offers(self.folder, {offer.hash}):
            if other.job.name == offer.job.name and read_record(self.folder, other.hash) is not None:
                words = (
                    "The operator asked for a second model that is trained on your labels alone, under another offer "
                    "of job {job}; your computer refused, since each job gets one."
                )
                fault = coded("news.second_audition", words, job=offer.job.name)
                participant_folder.put_news(self.folder, fault, over=False)
                raise InputError(fault)

    def _commitment(self, offer_hash: str) -> str:
        kept = read_audition(self.folder, offer_hash)
        if kept is None:
            offer, model = self._accepted_offer_and_model(offer_hash)
            labels, secret = self._labels_for(offer), self.own_secret
            with one_blas_thread():
                trained = audition_model(
                    behaviour(self.behaviour),
                    model,
                    self._features(offer),
                    labels_alone(labels, offer.job.seed, offer.client.index),
                    recipe_of(offer.job.recipe),
                    client=offer.client.index,
                    seed=offer.job.seed,
                    private_key=None if secret is None else key_of_audition(secret, offer_hash),
                )
            kept = keep_audition(self.folder, offer_hash, trained)
        commitment = audition_commitment(offer_hash, kept.salt, kept.model)
        note_commitment(self.folder, offer_hash, commitment)
        return commitment

    def open_audition(self, offer_hash: str, word: object) -> KeptAudition:
        """The salt and the committed model, for an operator who signed that the commitment arrived."""
        kept = read_audition(self.folder, offer_hash)
        if kept is None:
            raise InputError("no model was committed to for this offer.")
        note_opening(self.folder, self.accepted_offer(offer_hash), model_digest(kept.model), word)
        return kept

    def keep_arrival(self, offer_hash: str, word: object) -> None:
        """Keep the operator's signed word that the model of the audition arrived."""
        note_arrival(self.folder, self.accepted_offer(offer_hash), word)

    def answering(self, offer_hash: str, asked: AskedRound, common: Params) -> AbstractContextManager[Answering]:
        """Refuse a training message for this round, with this model, unless it comes next; see `round_guard`."""
        offer, model = self._accepted_offer_and_model(offer_hash)
        if offer_hash not in self.starts:
            self.starts[offer_hash] = model.init(offer.job.seed)
        start = self.starts[offer_hash]
        return answering(self.folder, offer, asked, common, lambda: start)

    def job_terms(self, offer_hash: str) -> JobTerms:
        """The job's terms in an accepted offer."""
        return self._accepted_offer_and_model(offer_hash)[0].job

    def masking(self, offer_hash: str) -> MaskingClient:
        """The masks under an accepted offer; raise InputError if it has no agreement key."""
        if offer_hash not in self.masks:
            offer = self.accepted_offer(offer_hash)
            if not offer.job.masked:
                raise InputError("this offer's reports are not masked.")
            key = participant_folder.agreement_key(self.folder, offer)
            self.masks[offer_hash] = MaskingClient(offer, key, self.folder, self.mask_stream)
        return self.masks[offer_hash]

    def report(self, offer_hash: str, common: Params, round_: int) -> Params:
        """Return the report of one round, as the behaviour makes it; rounds count from 0."""
        offer, model = self._accepted_offer_and_model(offer_hash)
        labels = self._labels_for(offer)
        own_behaviour = behaviour(self.behaviour)
        received = [common]
        if own_behaviour.remembers:
            received = received_models(self.folder / RECEIVED / offer_hash, own_behaviour, common, round_)
        with one_blas_thread():
            return report_of_round(
                own_behaviour,
                model,
                received,
                self._features(offer),
                labels_in_round(labels, offer.job.seed, offer.client.index, round_),
                client=offer.client.index,
                round_=round_,
                rounds=offer.job.rounds,
                assigned_batch_size=offer.client.batch_size,
                local_steps=offer.job.local_steps,
                step_size=offer.job.step_size,
                seed=offer.job.seed,
                private_key=self._key_of_round(model, offer, common, round_),
            )

    def _key_of_round(self, model: Model, offer: Offer, common: Params, round_: int) -> DrawKey | None:
        if self.own_secret is None:
            return None
        if isinstance(model, PrivateModel):
            return key_of_round(self.own_secret, self.folder, offer.hash, round_, common)
        return key_of_batches(self.own_secret, offer.hash, round_) if offer.job.masked else None

    def _labels_for(self, offer: Offer) -> Labels | LabelSets:
        """The labels of the samples that the offer asks for."""
        labels = self.labels(offer)
        if labels is None or len(labels) < offer.client.samples:
            raise UnlabeledError("not all samples are labeled yet.")
        classes = labels.classes if isinstance(labels, LabelSets) else labels
        if classes.max(initial=0) >= len(offer.job.classes):
            raise InputError(f"a label is {classes.max()}; the job has {len(offer.job.classes)} classes.")
        return (
            labels.take(np.arange(offer.client.samples))
            if isinstance(labels, LabelSets)
            else labels[: offer.client.samples]
        )

    def _accepted_offer_and_model(self, offer_hash: str) -> tuple[Offer, Model]:
        """Return an accepted offer and its model."""
        if offer_hash not in self.accepted_offers:
            offer = self.accepted_offer(offer_hash)
            self.accepted_offers[offer_hash] = (offer, model_of(offer.job, self.task))
        return self.accepted_offers[offer_hash]
