"""The opinion of a quick model on labels of pictures, for a participant who has no model of a job yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truthfl.learning.model import Images
from truthfl.learning.second_opinion import Opinion, OpinionSource, cross_probabilities
from truthfl.samples.sample import Pixels, Source, UnreadableError

SHAPE = (28, 28, 3)  # to which pictures are fitted
MOST_PICTURES = 5000


def quick_opinion(source: Source) -> OpinionSource:
    """Trains models on the labels that it is asked about; None for samples that are not pictures."""
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
