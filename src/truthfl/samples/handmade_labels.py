"""Labels that a participant made by hand, and quick models that judge them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.learning.data.class_sets import are_known, names_in
from truthfl.learning.data.samples import LabelSets
from truthfl.learning.models.model import Images, Labels
from truthfl.learning.people.second_opinion import Opinion, OpinionSource, cross_probabilities
from truthfl.samples.label_store import label_names
from truthfl.samples.sample import Pixels, Source, UnreadableError
from truthfl.texts import plain


def labels_of(
    path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str], *, several: bool = False
) -> Labels | LabelSets | None:
    """One label per sample, as an index into `classes`, in the samples' order; None until all of them are labeled.

    path     the label file, an SQLite database with the view `labels (sample, label)`
    samples  ids
    classes  names; a label that is not among them counts as missing
    several  whether a sample may have several labels; the result is then `LabelSets`
    """
    names = label_names(path)
    index = {name: position for position, name in enumerate(classes)}
    sets = [[index.get(name, -1) for name in names_in(names.get(sample, ""), several=several)] for sample in samples]
    if any(-1 in own for own in sets):
        return None
    return LabelSets.of(sets) if several else np.array([own[0] for own in sets], dtype=np.int64)


def handmade_labels(
    path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str], *, several: bool = False
) -> Labels | LabelSets | None:
    """As above, but raise `InputError` if a sample has a label that is not among the classes."""
    labels = labels_of(path, samples, classes, several=several)
    if labels is None:
        names, known = label_names(path), set(classes)
        made = [names[sample] for sample in samples if sample in names]
        foreign = [label for label in made if not are_known(label, known, several=several)]
        if foreign:
            words = "{count} of your labels are none of the job's classes, as is {first}; label these samples again."
            if len(foreign) == 1:
                words = "{count} of your labels is none of the job's classes, as is {first}; label these samples again."
            raise InputError(coded("news.other_classes", words, count=len(foreign), first=plain(repr(foreign[0]), 60)))
    return labels


def count_labels(
    path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str], *, several: bool = False
) -> int:
    """The number of these samples with a label that is among the classes."""
    names, known = label_names(path), set(classes)
    return sum(are_known(names.get(sample, ""), known, several=several) for sample in samples)


SHAPE = (28, 28, 3)  # to which pictures are fitted
MOST_PICTURES = 5000


def quick_opinion(source: Source) -> OpinionSource:
    """A function that trains models on the labels it is asked about; None for samples that are not pictures."""
    small: dict[int, Pixels | None] = {}  # by position; None for one that cannot be read

    def opinion(labels: Sequence[int], classes: Sequence[str]) -> Opinion | None:
        if source.kind != "picture":
            return None
        labeled = [position for position, label in enumerate(labels) if label >= 0][:MOST_PICTURES]
        for position in labeled:
            if position not in small:
                small[position] = _small(source, position)
        readable = [position for position in labeled if small[position] is not None]
        if not readable:
            return None
        images: Images = np.stack([pixels for position in readable if (pixels := small[position]) is not None])
        given = np.array([labels[position] for position in readable], dtype=np.int64)
        probabilities = cross_probabilities(images, given, classes)
        return None if probabilities is None else Opinion(readable, probabilities, handed_in=False)

    return opinion


def _small(source: Source, position: int) -> Pixels | None:
    try:
        return source.pixels(position, SHAPE)
    except UnreadableError:
        return None
