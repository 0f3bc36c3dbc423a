"""Federations built from plain settings, as job files and studies contain them.

There are three disjoint sets of samples: the clients' data, the server's pilot data (for calibration before the job),
and the test set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from truthfl.contracts.setting import IntArray, Training, number, whole_number
from truthfl.errors import InputError
from truthfl.learning.data.datasets import bundled_mnist, images_from_npz, mnist_from_folder, small_digits
from truthfl.learning.data.partition import (
    Federated,
    Partition,
    dirichlet_partition,
    iid_partition,
    paper_partition,
)
from truthfl.learning.data.samples import LabeledImages, LabeledSamples, split_positions
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.model import Model
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.tasks.custom import OwnSteps, require_trainable
from truthfl.learning.tasks.task import MOST_CLASSES, ReadSamples, Task
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice

TEST_SAMPLES = 1000  # default size of a test set that is split off


@dataclass(frozen=True, eq=False)
class SampleSets:
    """Three disjoint sets of samples, and the task fitted on the server's samples.

    If samples may have several labels, the clients' samples have all of them. The others have one, drawn by the seed.

    clients_read  the clients' samples as the file has them; None for pictures
    """

    clients: LabeledSamples
    pilot: LabeledSamples
    test: LabeledSamples
    task: Task
    clients_read: ReadSamples | None = None


@lru_cache(maxsize=4)
def sample_sets(task: TaskChoice, source: str, pilot_samples: int, test_samples: int | None, seed: int) -> SampleSets:
    """The samples of this source, cached: federations of one job ask for them repeatedly."""
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


SPLITS = ("paper", "iid", "dirichlet")
OWN = "own"
PICTURE_DIMENSIONS = 3  # of one picture: height, width, channels


@dataclass(frozen=True)
class Data:
    """The data set and its split among the clients.

    source          for pictures "mnist": 5,000 digits of an installed package; "digits": 1,797 digits of 8×8 pixels; a
                    folder of idx files or an .npz file. For other tasks a file, or a name that the task knows
    split           "paper", "iid" or "dirichlet"
    degree          of the paper's split: the share of a client's samples that are of the client's main class
    concentration   of the Dirichlet split
    pilot_samples   size of the server's pilot data
    test_samples    size of the test set; None: all of a folder's own test set
    seed            of the split
    """

    source: str = "mnist"
    split: str = "paper"
    degree: float = 0.4
    concentration: float = 1.0
    pilot_samples: int = 1000
    test_samples: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source:
            raise InputError(f"source is {self.source!r}; it must be a built-in data set, or a path.")
        if self.split not in SPLITS:
            raise InputError(f"split is {self.split!r}; it must be one of {', '.join(map(repr, SPLITS))}.")
        if not 0 <= number("degree", self.degree) <= 1:
            raise InputError(f"degree is {self.degree:g}; it must be from 0 to 1.")
        number("concentration", self.concentration, positive=True)
        whole_number("pilot_samples", self.pilot_samples, at_least=1)
        if self.test_samples is not None:
            whole_number("test_samples", self.test_samples, at_least=1)
        whole_number("seed", self.seed, at_least=0)


@dataclass(frozen=True)
class ModelChoice:
    """The model: "softmax" regression or "cnn" (one convolution with `filters` filters); factor of its L2 penalty.

    "own" is the model of a custom task. clip, noise  of private training (`PrivateModel`); 0 for none
    """

    kind: str = "softmax"
    filters: int = 8
    penalty: float = 1e-3
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in (*MODELS, OWN):
            raise InputError(f"kind is {self.kind!r}; it must be one of {', '.join(map(repr, MODELS))}.")
        whole_number("filters", self.filters, at_least=1)
        number("penalty", self.penalty, at_least=0.0)
        if number("clip", self.clip, at_least=0.0) == 0 < number("noise", self.noise, at_least=0.0):
            raise InputError(f"noise is {self.noise:g}, and clip is not given; noise is measured by clip.")

    def document(self) -> dict[str, Any]:
        """The fields as JSON values, without those of private training if there is none."""
        values = asdict(self)
        return values if self.clip else {name: values[name] for name in ("kind", "filters", "penalty")}

    def for_shape(self, shape: tuple[int, ...], classes: int, task: Task) -> Model:
        """The model for samples of this shape and this many classes."""
        own = task.model(shape)
        if own is not None:
            if self.clip:
                raise InputError(
                    f"[privacy] clip needs the length of each sample's gradient; the model of {type(task).__name__} "
                    "does not compute it."
                )
            return OwnSteps(own, task) if task.has_own_steps else own
        if self.kind not in MODELS:
            raise InputError(f"the model's kind is {self.kind!r}, and {type(task).__name__} brings no model.")
        plain = MODELS[self.kind](self, shape, classes)
        return PrivateModel(plain, self.clip, self.noise) if self.clip else plain

    def for_samples(self, samples: LabeledSamples, task: Task) -> Model:
        """The model for the shape and classes of these samples."""
        return self.for_shape(samples.features.shape[1:], len(samples.classes), task)


def _softmax(choice: ModelChoice, shape: tuple[int, ...], classes: int) -> SoftmaxRegression:
    return SoftmaxRegression(prod(shape), classes, choice.penalty)


def _cnn(choice: ModelChoice, shape: tuple[int, ...], classes: int) -> ConvolutionalNetwork:
    if len(shape) != PICTURE_DIMENSIONS:
        raise InputError('[model] kind is "cnn"; that is for pictures. Other samples are learned by "softmax".')
    height, width, channels = shape
    return ConvolutionalNetwork(height, width, channels, choice.filters, classes, choice.penalty)


MODELS: Mapping[str, Callable[[ModelChoice, tuple[int, ...], int], SoftmaxRegression | ConvolutionalNetwork]] = {
    "softmax": _softmax,
    "cnn": _cnn,
}


@dataclass(frozen=True, eq=False)
class ServerSide:
    """The server's data: a pilot federation with as many clients of the same sizes, and the test set.

    draw_clients  function from numbers of samples and a seed to a partition of the pilot data among other clients
    task          the task, fitted on the server's data
    """

    pilot: Federated
    test: LabeledSamples
    draw_clients: Callable[[tuple[int, ...], int], Partition]
    task: Task = field(default_factory=PICTURES.load, kw_only=True)


@dataclass(frozen=True, eq=False)
class SimulatedFederation(ServerSide):
    """The server's data and the clients' federation, for simulations.

    clients_read  the samples that are divided among the clients, as the file has them; None for pictures
    """

    federated: Federated
    clients_read: ReadSamples | None = field(default=None, kw_only=True)


def server_side(
    data: Data,
    model: ModelChoice,
    sizes: tuple[int, ...],
    training: Training,
    participation: ArrayLike = 1.0,
    task: TaskChoice = PICTURES,
) -> ServerSide:
    """The server's data; `sizes` are the clients' numbers of samples, `participation` their q_i."""
    sets = _sets_of(data, task)
    partition = _split(data, sets.pilot, sizes, data.seed + 1)
    network = model.for_samples(sets.pilot, sets.task)
    if sets.task.has_own_model:
        require_trainable(network, sets.pilot, type(sets.task).__name__)
    federated = Federated(network, sets.pilot, partition, training, participation=participation)
    return ServerSide(federated, sets.test, partial(_split, data, sets.pilot), task=sets.task)


def build_federation(
    data: Data,
    model: ModelChoice,
    sizes: tuple[int, ...],
    training: Training,
    participation: ArrayLike = 1.0,
    task: TaskChoice = PICTURES,
) -> SimulatedFederation:
    """The server's data and the clients' federation; parameters as in `server_side`."""
    side, sets = server_side(data, model, sizes, training, participation, task), _sets_of(data, task)
    partition = _split(data, sets.clients, sizes, data.seed)
    federated = Federated(side.pilot.model, sets.clients, partition, training, participation=participation)
    return SimulatedFederation(
        side.pilot, side.test, side.draw_clients, federated, task=side.task, clients_read=sets.clients_read
    )


def clients_federation(
    data: Data,
    model: ModelChoice,
    sizes: tuple[int, ...],
    training: Training,
    participation: ArrayLike = 1.0,
    task: TaskChoice = PICTURES,
    *,
    split_seed: int,
) -> tuple[Federated, LabeledSamples]:
    """The clients' federation and the test set; the clients' samples are drawn by `split_seed`.

    The server's pilot data and the test set still follow `data.seed`, so one plan can be tried on many splits.
    """
    sets = _sets_of(data, task)
    partition = _split(data, sets.clients, sizes, split_seed)
    network = model.for_samples(sets.clients, sets.task)
    return Federated(network, sets.clients, partition, training, participation=participation), sets.test


def _sets_of(data: Data, task: TaskChoice) -> SampleSets:
    return sample_sets(task, data.source, data.pilot_samples, data.test_samples, data.seed)


def _split(data: Data, samples: LabeledSamples, sizes: tuple[int, ...], seed: int) -> Partition:
    if data.split == "paper":
        classes = len(samples.classes)
        return paper_partition(samples.labels, sizes, degree=data.degree, seed=seed, classes=classes)
    if data.split == "dirichlet":
        return dirichlet_partition(samples.labels, sizes, concentration=data.concentration, seed=seed)
    return iid_partition(len(samples), sizes, seed=seed)
