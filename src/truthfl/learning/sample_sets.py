"""The clients' data, the server's pilot data and the test set, read once and split by a seed."""

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
from truthfl.mechanism.checks import IntArray

TEST_SAMPLES = 1000  # default size of a test set that is split off


@dataclass(frozen=True, eq=False)
class SampleSets:
    """Three disjoint sets of samples, and the task fitted on the server's.

    If samples may have several labels, the clients' have all of them; of the others one was drawn by the seed.

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
    _require_classes(loaded.class_names_in(read.labels), read.labels[0], source)
    kept = test_samples or TEST_SAMPLES
    _require_left(pilot_samples + kept, len(read), source)
    others, test = split_positions(len(read), kept, seed)
    clients, pilot = split_positions(len(others), pilot_samples, seed + 1)
    fitted = loaded.fit(read.take(others[pilot]), read)

    sets = fitted.label_sets(read.labels, source) if fitted.several_labels else None
    labels = fitted.positions(read.labels, source) if sets is None else sets.of_data(seed)

    def labeled(rows: IntArray, *, all_labels: bool = False) -> LabeledSamples:
        own = None if sets is None or not all_labels else sets.take(rows)
        return LabeledSamples(fitted.features(read.take(rows)), labels[rows], fitted.classes, own)

    of_clients = others[clients]
    return SampleSets(
        labeled(of_clients, all_labels=True), labeled(others[pilot]), labeled(test), fitted, read.take(of_clients)
    )


def _picture_sets(source: str, pilot_samples: int, test_samples: int | None, seed: int) -> SampleSets:
    train, test = _load(source)
    _require_left(pilot_samples + (0 if test is not None else test_samples or TEST_SAMPLES), len(train), source)
    if test is None:
        train, test = train.split_off(test_samples or TEST_SAMPLES, seed)
    elif test_samples is not None and test_samples < len(test):
        test = test.split_off(test_samples, seed)[1]
    clients, pilot = train.split_off(pilot_samples, seed + 1)
    return SampleSets(clients, pilot, test, PICTURES.load())


def _require_classes(classes: tuple[str, ...], first: str, source: str) -> None:
    if len(classes) == 1:
        raise InputError(f"the labels in {source} are all {first!r}; there must be two classes or more.")
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"the labels in {source} have {len(classes):,} different values, as {first!r}; there may be "
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
