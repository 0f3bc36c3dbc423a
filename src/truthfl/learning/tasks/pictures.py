"""The task of pictures, the default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.data.class_sets import joined, require_no_separator
from truthfl.learning.data.datasets import (
    bundled_mnist,
    images_from_npz,
    mnist_from_folder,
    names_in_npz,
    read_npz,
    small_digits,
)
from truthfl.learning.data.samples import LabeledImages, classes_of_rows
from truthfl.learning.models.model import Features
from truthfl.learning.tasks.task import ReadSamples, Task


@dataclass(frozen=True)
class Pictures(Task):
    """Pictures with classes, learned by the model in the job's [model]."""

    sources: ClassVar[tuple[str, ...]] = ("mnist", "digits")

    def read(self, path: Path) -> ReadSamples:
        """Pictures in an .npz file, or the training pictures in a folder with the files of MNIST.

        With several labels per picture, `labels` of an .npz file is a matrix (pictures, classes) of true and false, and
        `classes` has the names.
        """
        if self.several_labels and path.suffix == ".npz" and not path.is_dir():
            return _read_several(path)
        return _read(mnist_from_folder(path)[0] if path.is_dir() else images_from_npz(path))

    def operator_samples(self, source: str) -> ReadSamples:
        known = {"mnist": bundled_mnist, "digits": small_digits}
        return _read(known[source]()) if source in known else super().operator_samples(source)

    def features(self, samples: ReadSamples) -> Features:
        return samples.raw


def _read(data: LabeledImages) -> ReadSamples:
    return ReadSamples(data.images, tuple(data.classes[label] for label in data.labels))


def _read_several(path: Path) -> ReadSamples:
    if "classes" not in names_in_npz(path):
        raise InputError(f"{path} has no array 'classes'; with several labels per picture it must name them.")
    arrays = read_npz(path, ["images", "labels", "classes"])
    names = [str(name) for name in arrays["classes"].ravel()]
    if arrays["labels"].ndim == 1:
        return _read(images_from_npz(path))
    sets = classes_of_rows(path, arrays["labels"], len(arrays["images"]), len(names))
    require_no_separator(names)
    pictures = LabeledImages(arrays["images"], np.array([own[0] for own in sets]), names)
    return replace(_read(pictures), labels=tuple(joined(names[k] for k in own) for own in sets))
