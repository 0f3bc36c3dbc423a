"""The clients' data, the server's pilot data and the test set, read once and split by a seed.

Imports `datasets`, `labeled_samples`, `task` and `task_choice`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from truthfl.errors import InputError
from truthfl.learning.datasets import bundled_mnist, images_from_npz, mnist_from_folder, small_digits
from truthfl.learning.images import LabeledImages
from truthfl.learning.labeled_samples import LabeledSamples, split_positions
from truthfl.learning.task import MOST_CLASSES, ReadSamples, Task
from truthfl.learning.task_choice import PICTURES, TaskChoice

TEST_SAMPLES = 1000  # default size of a test set that is split off


@dataclass(frozen=True, eq=False)
class SampleSets:
    """Three disjoint sets of samples, and the task fitted on the server's.

    clients_read  the clients' samples as the file has them; None for pictures
    """

    clients: LabeledSamples
    pilot: LabeledSamples
    test: LabeledSamples
    task: Task
    clients_read: ReadSamples | None = None


@lru_cache(maxsize=4)
def sample_sets(task: TaskChoice, source: str, pilot_samples: int, test_samples: int | None, seed: int) -> SampleSets:
    """The samples of this source."""
    if task == PICTURES:
        return _picture_sets(source, pilot_samples, test_samples, seed)
    loaded = task.load()
    read = loaded.operator_samples(source)
    if read.labels is None:
        raise InputError(f"{source} has no labels; the operator's data must have the true classes.")
    _require_classes(read.labels, source)
    kept = test_samples or TEST_SAMPLES
    _require_left(pilot_samples + kept, len(read), source)
    others, test = split_positions(len(read), kept, seed)
    clients, pilot = split_positions(len(others), pilot_samples, seed + 1)
    fitted = loaded.fit(read.take(others[pilot]), read)

    def labeled(samples: ReadSamples) -> LabeledSamples:
        labels = fitted.positions(samples.labels or (), source)
        return LabeledSamples(fitted.features(samples), labels, fitted.classes)

    of_clients, of_pilot, of_test = (read.take(rows) for rows in (others[clients], others[pilot], test))
    return SampleSets(labeled(of_clients), labeled(of_pilot), labeled(of_test), fitted, of_clients)


def _picture_sets(source: str, pilot_samples: int, test_samples: int | None, seed: int) -> SampleSets:
    train, test = _load(source)
    _require_left(pilot_samples + (0 if test is not None else test_samples or TEST_SAMPLES), len(train), source)
    if test is None:
        train, test = train.split_off(test_samples or TEST_SAMPLES, seed)
    elif test_samples is not None and test_samples < len(test):
        test = test.split_off(test_samples, seed)[1]
    clients, pilot = train.split_off(pilot_samples, seed + 1)
    return SampleSets(clients, pilot, test, PICTURES.load())


def _require_classes(labels: tuple[str, ...], source: str) -> None:
    different = len(set(labels))
    if different == 1:
        raise InputError(f"the labels in {source} are all {labels[0]!r}; there must be two classes or more.")
    if different > MOST_CLASSES:
        raise InputError(
            f"the labels in {source} have {different:,} different values, as {labels[0]!r}; there may be "
            f"{MOST_CLASSES:,} classes."
        )


def _require_left(kept: int, count: int, source: str) -> None:
    if kept >= count:
        raise InputError(
            f"pilot_samples and test_samples keep {kept} of the {count} samples of {source}; fewer must be kept, to "
            "leave some to the clients."
        )


@lru_cache(maxsize=1)
def _load(source: str) -> tuple[LabeledImages, LabeledImages | None]:
    if source == "mnist":
        return bundled_mnist(), None
    if source == "digits":
        return small_digits(), None
    if Path(source).is_dir():
        return mnist_from_folder(source)
    if source.endswith(".npz"):
        return images_from_npz(source), None
    raise InputError(
        f'source is {source!r}; it must be "mnist", "digits", a folder with the four files of MNIST, or an .npz file.'
    )
