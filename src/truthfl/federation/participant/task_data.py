"""`TaskData`: a participant's samples of a task other than pictures, as numbers for an offer, with labels.

The participant's own task reads the file before there is an offer: the number of samples, their order and their ids.
The task in the offer, which was fitted on the operator's data, makes the numbers. Both results are cached in the
participant's folder because each message may be handled in a new process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from truthfl.contracts.setting import IntArray
from truthfl.errors import InputError, ServiceError
from truthfl.federation.protocol.job_task import task_of
from truthfl.files import write_file
from truthfl.learning.data.class_sets import names_in
from truthfl.learning.data.samples import LabeledSamples, LabelSets
from truthfl.learning.models.model import Features, Labels
from truthfl.learning.people.labels import asked_order
from truthfl.learning.tasks.task import ReadSamples, Task
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.ledger.canonical import digest
from truthfl.ledger.terms import Offer
from truthfl.samples.folder import in_kept_order
from truthfl.samples.handmade_labels import count_labels, handmade_labels
from truthfl.samples.label_store import LABELS_FILE
from truthfl.samples.pixels import read_cached, write_cached
from truthfl.samples.sample import Source
from truthfl.samples.sources import read_by, source_of
from truthfl.texts import plain

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_ENTRIES = 2  # a server runs one job at a time; the one before may still be settled


class RecentEntries(dict[Key, Value]):
    """Setting an entry drops the oldest ones above `MOST_ENTRIES`; it must be possible to make them again."""

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > MOST_ENTRIES:
            del self[next(iter(self))]


ORDER, FEATURES = "cache/samples.json", "cache/features.bin"
REVISION = 1  # increase it when the format of the cached files changes


@dataclass(frozen=True)
class Listing:
    """The samples in labeling order: their rows in the file, and their ids."""

    rows: tuple[int, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The samples as numbers, and their labels if the file has them; in labeling order."""

    features: Features
    labels: Labels | LabelSets | None


@dataclass(eq=False)
class TaskData:
    """The samples in a participant's file or folder.

    home      the participant's folder, with labels.db and the cached files
    choice    the task that the participant named
    prepared  by offer: a cache
    """

    data: Path
    home: Path
    choice: TaskChoice
    prepared: dict[str, Prepared] = field(default_factory=RecentEntries)

    @cached_property
    def read(self) -> ReadSamples:
        """The samples as the participant's own task reads them."""
        return read_by(self.choice.load(), self.data)

    @cached_property
    def source(self) -> Source:
        """The samples for the labeling page, in labeling order."""
        task = self.choice.load()
        source = source_of(self.read, task, str(self.data))
        if self.read.labels is None:
            return in_kept_order(source, self.home)
        return source.subset(_order_of(self.read.labels), ())

    @property
    def existing_labels(self) -> list[str] | None:
        """The labels in the file, in the order of `source`; None if it has none."""
        labels = self.read.labels
        return None if labels is None else [labels[sample.row] for sample in self.source.samples]

    @cached_property
    def listing(self) -> Listing:
        """The samples in labeling order."""
        path, key = self.home / ORDER, self._key()
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == key:
                return Listing(tuple(kept["rows"]), tuple(kept["ids"]))
        listing = Listing(tuple(sample.row for sample in self.source.samples), self.source.ids)
        content = {"key": key, "rows": listing.rows, "ids": listing.ids}
        with suppress(ServiceError):  # without the file the next process reads the samples again
            write_file(path, json.dumps(content), private=True, sync=False)
        return listing

    def features(self, offer: Offer) -> Features:
        """The samples as numbers, by the offer's task; `InputError` if they do not fit it."""
        return self._prepared(offer).features

    def labels(self, offer: Offer) -> Labels | LabelSets | None:
        """The labels as positions in the offer's classes, from the file or made by hand; None until all exist."""
        labels = self._prepared(offer).labels
        if labels is not None:
            return labels
        asked = self.listing.ids[: offer.client.samples]
        return handmade_labels(self.home / LABELS_FILE, asked, offer.job.classes, several=offer.job.several_labels)

    def count_labels(self, offer: Offer) -> int:
        """How many of the labels that the offer asks for were made by hand so far."""
        asked = self.listing.ids[: offer.client.samples]
        return count_labels(self.home / LABELS_FILE, asked, offer.job.classes, several=offer.job.several_labels)

    def _prepared(self, offer: Offer) -> Prepared:
        if offer.hash not in self.prepared:
            terms = offer.job.task
            path, key = self.home / FEATURES, self._key("" if terms is None else str(terms["digest"]))
            cached = read_cached(path, key)
            if cached is None:
                made = self._made(task_of(offer.job, self.choice), offer)
                write_cached(path, key, {"labels": _as_list(made.labels)}, made.features)
            else:
                header, features = cached
                made = Prepared(features, _from_list(header["labels"], several=offer.job.several_labels))
            self.prepared[offer.hash] = made
        return self.prepared[offer.hash]

    def _made(self, task: Task, offer: Offer) -> Prepared:
        read, rows = read_by(task, self.data), np.array(self.listing.rows)
        if len(read) != len(rows) or (read.labels is None and self.read.labels is not None):
            yours, theirs = _labeled(self.read), _labeled(read)
            raise InputError(
                f"{self.data.name} has {yours} by your task and {theirs} by the offer's; take the operator's [task] "
                "in a .toml file, with --task."
            )
        numbers = task.features(read)
        if read.labels is None:
            unlabeled = LabeledSamples(numbers, np.zeros(len(read), np.int64), offer.job.classes)
            return Prepared(unlabeled.features[rows], None)
        if offer.job.several_labels:
            names = [names_in(label) for label in read.labels]
            sets = LabelSets.of(_positions(own, offer.job.classes, self.data.name).tolist() for own in names)
            first = LabeledSamples(numbers, sets.classes[sets.starts[:-1]], offer.job.classes)
            return Prepared(first.features[rows], sets.take(rows))
        labels = _positions(read.labels, offer.job.classes, self.data.name)
        labeled = LabeledSamples(numbers, labels, offer.job.classes)
        return Prepared(labeled.features[rows], labeled.labels[rows])

    def _key(self, offer_task: str = "") -> str:
        """The key of a cached file: it changes with the samples, the participant's task and the offer's task."""
        values = {"revisions": [REVISION, self.choice.load().revision], "data": _identity(self.data)}
        return digest({**values, "own": self.choice.document(), "offered": offer_task})


def _as_list(labels: Labels | LabelSets | None) -> list[Any] | None:
    """Labels as JSON: a list of numbers, or of lists of numbers."""
    return None if labels is None else labels.lists() if isinstance(labels, LabelSets) else labels.tolist()


def _from_list(listed: list[Any] | None, *, several: bool) -> Labels | LabelSets | None:
    return None if listed is None else LabelSets.of(listed) if several else np.array(listed, np.int64)


def _identity(data: Path) -> Any:
    """Changes with the content of a file, and with names, sizes and times of the files in a folder."""
    try:
        if not data.is_dir():
            return sha256(data.read_bytes()).hexdigest()
        files = sorted(path for path in data.rglob("*") if path.is_file())
        return [[str(path.relative_to(data)), path.stat().st_size, str(path.stat().st_mtime_ns)] for path in files]
    except OSError as error:
        raise InputError(f"{data} cannot be read: {error.strerror}.") from None


def _labeled(read: ReadSamples) -> str:
    return f"{len(read)} samples with{'out' if read.labels is None else ''} labels"


def _order_of(labels: Sequence[str]) -> IntArray:
    """The order in which samples with these labels are asked for: the file's, or a random one if it has class by class.

    An offer may ask for the first samples only, which would then show few classes.
    """
    changes = sum(one != other for one, other in pairwise(labels))
    grouped = changes == len(set(labels)) - 1
    return asked_order(len(labels), 0, 0) if grouped else np.arange(len(labels))


def _positions(labels: Sequence[str], classes: Sequence[str], place: str) -> Labels:
    """The positions of these labels in the classes; `InputError` if there are others."""
    position = {name: number for number, name in enumerate(classes)}
    foreign = [label for label in labels if label not in position]
    if foreign:
        raise InputError(
            f"{len(foreign)} of your labels {'are' if len(foreign) > 1 else 'is'} none of the job's classes, as is "
            f"{plain(repr(foreign[0]), 60)} in {place}; they are {plain(', '.join(classes), 200)}."
        )
    return np.array([position[label] for label in labels], dtype=np.int64)
