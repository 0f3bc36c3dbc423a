"""The task of pictures, the default. Imports `datasets` and `task`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truthfl.learning.datasets import images_from_npz, mnist_from_folder
from truthfl.learning.model import Features
from truthfl.learning.task import ReadSamples, Task


@dataclass(frozen=True)
class Pictures(Task):
    """Pictures with classes, learned by the model in the job's [model]."""

    def read(self, path: Path) -> ReadSamples:
        """Pictures in an .npz file, or the training pictures in a folder with the files of MNIST."""
        data = mnist_from_folder(path)[0] if path.is_dir() else images_from_npz(path)
        return ReadSamples(data.images, tuple(data.classes[label] for label in data.labels))

    def features(self, samples: ReadSamples) -> Features:
        return samples.raw
