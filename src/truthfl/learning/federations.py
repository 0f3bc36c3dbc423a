"""Builds federations from plain settings (`Data`, `ModelChoice`), as job files and studies contain them.

There are three disjoint sets of samples: the clients' data, the server's pilot data (for calibration before the job),
and the test set. Imports `datasets`, `images`, `partition`, `model`, `cnn`, `softmax`, `private_model`, `federated`,
`mechanism.checks` and `mechanism.setting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.learning.aggregation import ReportRule
from truthfl.learning.cnn import ConvolutionalNetwork
from truthfl.learning.datasets import bundled_mnist, images_from_npz, mnist_from_folder, small_digits
from truthfl.learning.federated import Federated
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model
from truthfl.learning.partition import Partition, dirichlet_partition, iid_partition, paper_partition
from truthfl.learning.private_model import PrivateModel
from truthfl.learning.softmax import SoftmaxRegression
from truthfl.mechanism.checks import number, whole_number
from truthfl.mechanism.setting import Training

SPLITS = ("paper", "iid", "dirichlet")
MODELS = ("softmax", "cnn")
TEST_SAMPLES = 1000  # default size of a test set that is split off


@dataclass(frozen=True)
class Data:
    """The data set and its split among the clients.

    source          "mnist": 5,000 digits of an installed package; "digits": 1,797 digits of 8×8 pixels; else a folder
                    of idx files or an .npz file
    split           "paper", "iid" or "dirichlet"
    degree          of the paper's split: the share of a client's samples that are of her main class
    concentration   of the Dirichlet split
    pilot_samples   size of the server's pilot data
    test_samples    size of the test set; if None, a folder's own test set is used whole
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
            raise InputError(f'source is {self.source!r}; it must be "mnist", "digits" or a path.')
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

    clip, noise  of private training (`PrivateModel`); 0 for none
    """

    kind: str = "softmax"
    filters: int = 8
    penalty: float = 1e-3
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in MODELS:
            raise InputError(f"kind is {self.kind!r}; it must be one of {', '.join(map(repr, MODELS))}.")
        whole_number("filters", self.filters, at_least=1)
        number("penalty", self.penalty, at_least=0.0)
        if number("clip", self.clip, at_least=0.0) == 0 < number("noise", self.noise, at_least=0.0):
            raise InputError(f"noise is {self.noise:g}, and clip is not given; noise is measured by clip.")

    def document(self) -> dict[str, Any]:
        """The fields as JSON values; those of private training are omitted if there is none."""
        values = asdict(self)
        return values if self.clip else {name: values[name] for name in ("kind", "filters", "penalty")}

    def for_images(self, data: LabeledImages) -> Model:
        """The model for the size and classes of these images."""
        _, height, width, channels = data.images.shape
        classes = len(data.classes)
        plain: ConvolutionalNetwork | SoftmaxRegression
        if self.kind == "cnn":
            plain = ConvolutionalNetwork(height, width, channels, self.filters, classes, self.penalty)
        else:
            plain = SoftmaxRegression(height * width * channels, classes, self.penalty)
        return PrivateModel(plain, self.clip, self.noise) if self.clip else plain


@dataclass(frozen=True, eq=False)
class ServerSide:
    """The server's data: a pilot federation with as many clients of the same sizes, and the test set.

    draw_clients  function from numbers of samples and a seed to a partition of the pilot data among other clients
    """

    pilot: Federated
    test: LabeledImages
    draw_clients: Callable[[tuple[int, ...], int], Partition]


@dataclass(frozen=True, eq=False)
class SimulatedFederation(ServerSide):
    """The server's data and the clients' federation, for simulations."""

    federated: Federated


def server_side(
    data: Data, model: ModelChoice, sizes: tuple[int, ...], training: Training, participation: ArrayLike = 1.0
) -> ServerSide:
    """The server's data; `sizes` are the clients' numbers of samples, `participation` their q_i."""
    _, pilot, test = _sample_sets(data.source, data.pilot_samples, data.test_samples, data.seed)
    network = model.for_images(pilot)
    partition = _split(data, pilot, sizes, data.seed + 1)
    federated = Federated(network, pilot, partition, training, participation=participation)
    return ServerSide(federated, test, partial(_split, data, pilot))


def build_federation(
    data: Data, model: ModelChoice, sizes: tuple[int, ...], training: Training, participation: ArrayLike = 1.0
) -> SimulatedFederation:
    """The server's data and the clients' federation; parameters as in `server_side`."""
    side = server_side(data, model, sizes, training, participation)
    clients, _, _ = _sample_sets(data.source, data.pilot_samples, data.test_samples, data.seed)
    partition = _split(data, clients, sizes, data.seed)
    federated = Federated(side.pilot.model, clients, partition, training, participation=participation)
    return SimulatedFederation(side.pilot, side.test, side.draw_clients, federated)


def clients_federation(
    data: Data,
    model: ModelChoice,
    sizes: tuple[int, ...],
    training: Training,
    participation: ArrayLike = 1.0,
    *,
    split_seed: int,
) -> tuple[Federated, LabeledImages]:
    """The clients' federation and the test set, the clients' samples being drawn by `split_seed`.

    The server's pilot data and the test set remain those of `data.seed`, so that one plan can be tried on many splits.
    """
    samples, _, test = _sample_sets(data.source, data.pilot_samples, data.test_samples, data.seed)
    partition = _split(data, samples, sizes, split_seed)
    return Federated(model.for_images(samples), samples, partition, training, participation=participation), test


def with_training(federated: Federated, training: Training) -> Federated:
    """The same federation with other training parameters."""
    return Federated(
        federated.model,
        federated.data,
        federated.partition,
        training,
        weight=federated.weight,
        participation=federated.participation,
        merged=federated.merged,
        rule=federated.rule,
    )


def with_rule(federated: Federated, rule: ReportRule) -> Federated:
    """The same federation with another rule for reports."""
    return Federated(
        federated.model,
        federated.data,
        federated.partition,
        federated.training,
        weight=federated.weight,
        participation=federated.participation,
        merged=federated.merged,
        rule=rule,
    )


@lru_cache(maxsize=4)
def _sample_sets(
    source: str, pilot_samples: int, test_samples: int | None, seed: int
) -> tuple[LabeledImages, LabeledImages, LabeledImages]:
    """(clients' data, pilot data, test set), split by the seed."""
    train, test = _load(source)
    kept = pilot_samples + (0 if test is not None else test_samples or TEST_SAMPLES)
    if kept >= len(train):
        raise InputError(
            f"pilot_samples and test_samples keep {kept} of the {len(train)} samples of {source}; fewer must be kept, "
            "to leave some to the clients."
        )
    if test is None:
        train, test = train.split_off(test_samples or TEST_SAMPLES, seed)
    elif test_samples is not None and test_samples < len(test):
        test = test.split_off(test_samples, seed)[1]
    clients, pilot = train.split_off(pilot_samples, seed + 1)
    return clients, pilot, test


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


def _split(data: Data, samples: LabeledImages, sizes: tuple[int, ...], seed: int) -> Partition:
    if data.split == "paper":
        classes = len(samples.classes)
        return paper_partition(samples.labels, sizes, degree=data.degree, seed=seed, classes=classes)
    if data.split == "dirichlet":
        return dirichlet_partition(samples.labels, sizes, concentration=data.concentration, seed=seed)
    return iid_partition(len(samples), sizes, seed=seed)
