"""A participant's node: its settings, the data that they name, and the opinion of the model trained on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from truthfl.contracts import formulas
from truthfl.errors import InputError
from truthfl.federation.participant.participant import LabelSource, Participant, read_audition
from truthfl.federation.participant.round_guard import kept_secret
from truthfl.federation.participant.task_data import TaskData
from truthfl.federation.protocol.job_task import model_of
from truthfl.home import participant_folder
from truthfl.learning.data.datasets import names_in_npz, read_npz
from truthfl.learning.data.samples import LabeledImages, LabelSets, classes_of_rows
from truthfl.learning.models.model import Features, Images, Labels
from truthfl.learning.people.labels import asked_order
from truthfl.learning.people.second_opinion import Opinion, OpinionSource, class_probabilities
from truthfl.learning.solo import recipe_of
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice
from truthfl.ledger.signing import read_key
from truthfl.ledger.terms import PADDED, Offer
from truthfl.samples.folder import in_kept_order
from truthfl.samples.handmade_labels import count_labels, handmade_labels, quick_opinion
from truthfl.samples.label_store import LABELS_FILE
from truthfl.samples.pixels import DecodedPictures, load_cached, load_pictures
from truthfl.samples.sample import Source
from truthfl.samples.sources import open_samples

MAX_CLASSES = 100_000
ACCEPT_ALL, ACCEPT_IF_IT_PAYS, ASK = "all", "if it pays", "ask"


@dataclass(frozen=True)
class Settings:
    """The settings of one participant's node.

    data                        the samples; pictures are in an .npz file with `images` and optionally `labels`, an idx
                                file, or a folder of picture files
    home                        the folder of offers, answers, receipts
    key                         the file of the private key
    accept                      "all": accept any offer; "if it pays": those whose expected pay covers the stated costs;
                                "ask": the participant answers on their page or in the terminal
    labeling_cost, sample_cost  the stated costs; 0 states none
    task                        what the samples are for, as `TaskChoice.of_argument` reads it
    operator                    the only public key whose offers are answered; "" for any
    """

    name: str
    data: str
    home: str
    key: str
    accept: str = ASK
    labeling_cost: float = 0.0
    sample_cost: float = 0.0
    task: str = PICTURES.use
    operator: str = ""

    def node_config(self) -> dict[str, str | int | float | bool]:
        return {name.replace("_", "-"): value for name, value in vars(self).items()}


def settings_from(node_config: Mapping[str, object]) -> Settings:
    """Return the settings in a node's config; ignore those that Flower adds."""
    values = {
        name: node_config[name.replace("_", "-")]
        for name in Settings.__dataclass_fields__
        if name.replace("_", "-") in node_config
    }
    try:
        return Settings(**values)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(
            "the node's settings are not complete; it needs name, home and key, which truthfl join gives it."
        ) from None


@lru_cache(maxsize=8)
def participant_of(settings: Settings) -> Participant:
    """Return the participant with these settings and the data they name."""
    of_task = _task_data(settings)
    samples_for: Callable[[Offer], Features]
    count: Callable[[Offer], int]
    shape: tuple[int, ...] | None = None
    existing: Labels | LabelSets | None = None
    if of_task is None:
        own = pictures_and_labels(Path(settings.data), Path(settings.home))
        count = partial(_count_of_pictures, settings)
        samples, samples_for, shape, labels, existing = own.samples, own.images, own.shape, own.labels, own.existing
    else:
        samples, samples_for, labels = len(of_task.listing.ids), of_task.features, of_task.labels
        count = of_task.count_labels
    return Participant(
        name=settings.name,
        samples=samples,
        samples_for=samples_for,
        image_shape=shape,
        task=PICTURES if of_task is None else of_task.choice,
        labels=labels,
        count_labels=count,
        existing_labels=existing,
        key=read_key(Path(settings.key)),
        folder=Path(settings.home),
        own_secret=kept_secret(Path(settings.home)),
        decide=lambda offer: decision(settings, offer, samples=samples),
        labeling_cost=settings.labeling_cost or None,
        sample_cost=settings.sample_cost or None,
        operator=settings.operator,
    )


@dataclass(frozen=True)
class OwnPictures:
    """A participant's pictures.

    samples   their number
    images    returns them for an offer; raises InputError if they do not fit it
    shape     of each; None if they are fitted to what the offer asks for
    labels    returns the labels for an offer, from the data file or from labels.db in the participant's folder
    existing  the labels in the data file; None if there are none
    """

    samples: int
    images: Callable[[Offer], Images]
    shape: tuple[int, ...] | None
    labels: LabelSource
    existing: Labels | LabelSets | None = None


def pictures_and_labels(data: Path, home: Path) -> OwnPictures:
    """The participant's pictures and the source of their labels."""
    labeled = labeled_pictures(data)
    if labeled is not None:
        images, known = labeled.images, labeled.labels if labeled.sets is None else labeled.sets
        return OwnPictures(len(images), lambda _: images, images.shape[1:], lambda _: known, known)
    source, of_offer, shape = _unlabeled_pictures(data, home)
    ids = source.ids

    def labels(offer: Offer) -> Labels | LabelSets | None:
        asked = ids[: offer.client.samples]
        return handmade_labels(home / LABELS_FILE, asked, offer.job.classes, several=offer.job.several_labels)

    return OwnPictures(len(source), of_offer, shape, labels)


def _unlabeled_pictures(data: Path, home: Path) -> tuple[Source, Callable[[Offer], Images], tuple[int, ...] | None]:
    """The readable pictures in labeling order, as a source and for an offer; their shape, None if they are fitted."""
    ordered = in_kept_order(open_samples(data, home=home), home)
    if not data.is_dir():
        source, images = load_pictures(ordered)
        return source, lambda _: images, images.shape[1:]
    decoded = load_cached(ordered, home)
    return decoded.source, partial(_fitted, decoded), None


def _fitted(decoded: DecodedPictures, offer: Offer) -> Images:
    return decoded.of_shape(offer.job.image_shape, fit=offer.job.picture_fit == PADDED)


def _count_of_pictures(settings: Settings, offer: Offer) -> int:
    """How many of the labels that the offer asks for were made by hand so far."""
    ids = _picture_ids(settings)[: offer.client.samples]
    return count_labels(Path(settings.home) / LABELS_FILE, ids, offer.job.classes, several=offer.job.several_labels)


@lru_cache(maxsize=8)
def _picture_ids(settings: Settings) -> tuple[str, ...]:
    return _unlabeled_pictures(Path(settings.data), Path(settings.home))[0].ids


def labels_came_along(settings: Settings) -> bool:
    """Whether the samples already have labels in the file itself."""
    of_task = _task_data(settings)
    return labeled_pictures(Path(settings.data)) is not None if of_task is None else of_task.read.labels is not None


def samples_to_show(settings: Settings) -> tuple[Source, list[list[int]] | list[int] | list[str] | None]:
    """The samples in labeling order, and the labels in the file itself: numbers or names of classes, or None."""
    of_task = _task_data(settings)
    if of_task is not None:
        return of_task.source, of_task.existing_labels
    labeled = labeled_pictures(Path(settings.data))
    readable, *_ = _unlabeled_pictures(Path(settings.data), Path(settings.home))
    if labeled is None:
        return readable, None
    return readable, labeled.labels.tolist() if labeled.sets is None else labeled.sets.lists()


@lru_cache(maxsize=8)
def _task_data(settings: Settings) -> TaskData | None:
    """The samples, read once, if the task is not pictures."""
    choice = TaskChoice.of_argument(settings.task)
    return None if choice.is_pictures else TaskData(Path(settings.data), Path(settings.home), choice)


def labeled_pictures(data: Path) -> LabeledImages | None:
    """Return the content of an .npz file with images and labels; None for any other file or folder.

    Labels are numbers, or a matrix (pictures, classes) of true and false if a picture may have several.
    An offer may ask for the first samples only. A file that is sorted by class would then show few classes, so its
    samples are put in a random order, the same each time.
    """
    if data.suffix != ".npz" or data.is_dir() or not {"images", "labels"} <= names_in_npz(data):
        return None
    arrays = read_npz(data, ["images", "labels"])
    images, labels = arrays["images"], arrays["labels"]
    if labels.ndim == 2:
        sets = LabelSets.of(classes_of_rows(data, labels, len(images)))
        first = sets.classes[sets.starts[:-1]]
        return LabeledImages(images, first, [str(k) for k in range(labels.shape[1])], sets)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or np.max(labels, initial=0) >= MAX_CLASSES:
        raise InputError(f"the labels in {data} must be whole numbers, one per picture, each below {MAX_CLASSES:,}.")
    if len(labels) == len(images) and (np.diff(labels.astype(np.int64)) >= 0).all():
        mixed = asked_order(len(labels), 0, 0)
        images, labels = images[mixed], labels[mixed]
    return LabeledImages(images, labels, [str(k) for k in range(int(np.max(labels, initial=0)) + 1)])


def decision(settings: Settings, offer: Offer, *, samples: int | None = None) -> bool | None:
    """Whether to accept an offer by the setting `accept`; None if the participants answer themselves.

    samples  the number of samples to which the stated labeling cost refers; None for those that the offer asks for
    """
    if settings.accept == ACCEPT_ALL:
        return True
    if settings.accept == ACCEPT_IF_IT_PAYS:
        client = offer.client
        labeling, sample = settings.labeling_cost or client.labeling_cost, settings.sample_cost or client.sample_cost
        if settings.labeling_cost and samples is not None:
            labeling *= client.samples / samples
        alone = sample * recipe_of(offer.job.recipe).samples if offer.job.has_solo_models else 0.0
        price = formulas.batch_price(offer.job.rounds, client.participation, sample)
        return bool(offer.expected_pay >= formulas.work_cost(labeling, 1.0, price, client.batch_size) + alone)
    return None


def solo_opinion(settings: Settings) -> OpinionSource:
    """Asks the participant's solo model of the newest job that has one; before that, a quick model."""
    quick = quick_opinion(samples_to_show(settings)[0])

    def opinion(labels: Sequence[int], classes: Sequence[str]) -> Opinion | None:
        home = Path(settings.home)
        for offer in reversed(participant_folder.offers(home)):
            kept = read_audition(home, offer.hash) if tuple(offer.job.classes) == tuple(classes) else None
            if kept is None:
                continue
            participant = participant_of(settings)
            features = participant.samples_for(offer)[: offer.client.samples]
            model = model_of(offer.job, participant.task)
            return Opinion(range(len(features)), class_probabilities(model, kept.model, features), handed_in=True)
        return quick(labels, classes)

    return opinion
