"""A cell: one way for the clients to behave, trained with many seeds. What figures are made of.

The functions here are what tasks call, in whichever process: plain values in, named arrays out. Looks at `work`,
`learning` and the mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.federated import Federated
from truthfl.learning.federations import Data, ModelChoice, SimulatedFederation, build, with_training
from truthfl.learning.gradients import measure_gradients
from truthfl.learning.images import LabeledImages
from truthfl.learning.step_size import find_step_size
from truthfl.learning.training import train
from truthfl.mechanism.setting import Training
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.work import Result, WorkItem

SEEDS_PER_TASK = 10
WATCHED_SAMPLES = 1000  # of the clients' own, on which the training loss is looked at


@dataclass(frozen=True)
class Place:
    """Where training happens: the data, the model, how many samples each client holds, how often she is there."""

    data: Data
    model: ModelChoice
    sizes: tuple[int, ...]
    participation: tuple[float, ...] | None = None

    def said(self) -> dict[str, Any]:
        """In plain values; participation only where somebody is not always there."""
        plain = {"data": asdict(self.data), "model": asdict(self.model), "sizes": list(self.sizes)}
        absent = self.participation is not None and min(self.participation) < 1.0
        return plain | ({"participation": list(self.participation or ())} if absent else {})


@dataclass(frozen=True)
class Cell:
    """What everybody does in one training; a number stands for all clients.

    every   rounds between two looks at the model; only the last round's unless given
    pilot   on the server's own data instead of the clients'
    """

    place: Place
    rounds: int
    step_size: float
    batch_size: tuple[float, ...] | int = 50
    labeling_effort: tuple[float, ...] | float = 1.0
    report_scale: tuple[float, ...] | float = 1.0
    every: int | None = None
    pilot: bool = False

    def tasks(self, seeds: Sequence[int]) -> list[WorkItem]:
        """The training of this cell, some seeds to a task: more seeds later leave the earlier tasks as they are."""
        settings = self.place.said() | {
            "rounds": self.rounds,
            "step_size": self.step_size,
            "batch_size": self.each(self.batch_size),
            "labeling_effort": self.each(self.labeling_effort),
            "report_scale": self.each(self.report_scale),
            "every": self.every or self.rounds,
            "pilot": self.pilot,
        }
        blocks = [list(seeds[first : first + SEEDS_PER_TASK]) for first in range(0, len(seeds), SEEDS_PER_TASK)]
        return [WorkItem("studies.cells:train_cell", settings | {"seeds": block}) for block in blocks]

    def each(self, value: tuple[float, ...] | float) -> list[float]:
        """One number per client."""
        values = value if isinstance(value, tuple) else (value,) * len(self.place.sizes)
        return [float(one) for one in values]


@dataclass(frozen=True, eq=False)
class Seen:
    """What training gave: loss on clients' samples, loss and accuracy on the test set, each (seeds, moments)."""

    rounds: NDArray[np.int64]
    train_loss: NDArray[np.float64]
    test_loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    def test_loss_at(self, rounds: int) -> NDArray[np.float64]:
        """After so many rounds, one for each seed."""
        return self.test_loss[:, int(np.flatnonzero(self.rounds == rounds)[0])]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Seen:
        """From the results of a cell's tasks, in their order."""
        joined = {name: np.concatenate([r[name] for r in results]) for name in ("train_loss", "test_loss", "accuracy")}
        return cls(rounds=results[0]["rounds"], **joined)


def train_cell(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    step_size: float,
    batch_size: Sequence[float],
    labeling_effort: Sequence[float],
    report_scale: Sequence[float],
    every: int,
    pilot: bool,
    seeds: Sequence[int],
) -> Result:
    """Train once per seed and look on the way."""
    scene = scene_of(data, model, sizes, participation)
    federated = with_training(scene.pilot if pilot else scene.federated, Training(rounds, 1, step_size))
    played = Strategies(labeling_effort, batch_size, report_scale)
    watch = {"train": watched_samples(federated), "test": scene.test}
    with np.errstate(over="ignore", invalid="ignore"):  # lies may make training diverge, which is an answer
        done = train(federated, played, seeds, watch=watch, every=every, threads=1)
    return {
        "rounds": done.rounds,
        "train_loss": done.watched["train"].loss,
        "test_loss": done.watched["test"].loss,
        "accuracy": done.watched["test"].accuracy,
    }


def tune_step(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    batch_size: int,
    low: float,
    high: float,
    seeds: int,
) -> Result:
    """The best step for so many rounds on the server's pilot data, judged by the test loss."""
    scene = scene_of(data, model, sizes, participation)
    federated = with_training(scene.pilot, Training(rounds, 1, low))
    found = find_step_size(federated, scene.test, batch_size, low=low, high=high, seeds=seeds)
    return {"best": np.array(found.best), "tried": found.tried, "loss": found.loss, "error": found.standard_error}


def sample_gradients(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    rounds: int,
    step_size: float,
    batch_size: int,
) -> Result:
    """How gradients vary along an honest training on the server's pilot data."""
    federated = with_training(scene_of(data, model, sizes, participation).pilot, Training(rounds, 1, step_size))
    found = measure_gradients(federated, batch_size=batch_size)
    return {
        "gradient_variance": found.gradient_variance,
        "label_shift": np.array(found.label_shift),
        "gradient_bound": np.array(found.gradient_bound),
    }


def watched_samples(federated: Federated) -> LabeledImages:
    """A fixed, even choice among all clients' samples, with their true labels."""
    rows = federated.partition.rows
    count = min(WATCHED_SAMPLES, len(rows))
    return federated.data.take(rows[np.arange(count) * len(rows) // count])


def scene_of(
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
) -> SimulatedFederation:
    """The scene of these plain values; made once in a process."""
    there = (1.0,) * len(sizes) if participation is None else tuple(participation)
    return _scene(Data(**data), ModelChoice(**model), tuple(sizes), there)


@lru_cache(maxsize=8)
def _scene(
    data: Data, model: ModelChoice, sizes: tuple[int, ...], participation: tuple[float, ...]
) -> SimulatedFederation:
    return build(data, model, sizes, Training(1), participation)


def with_client(value: float, count: int, other: float, clients: Sequence[int]) -> tuple[float, ...]:
    """The same number for all `count` clients, but another one for some of them."""
    return tuple(other if i in clients else value for i in range(count))
