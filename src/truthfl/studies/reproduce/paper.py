"""The setting that all figures share. The paper gives ten clients, MNIST, one convolutional layer, H = 1, degree 0.4,
D = 50 and D'_1 = 60; everything else is chosen here, and said. Looks at `cells`, `learning`, the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.learning.calibration import Calibration
from truthfl.learning.federations import Data, ModelChoice
from truthfl.learning.pilot_design import PilotDesign
from truthfl.mechanism.setting import Clients, Training
from truthfl.reporting.figure import Figure
from truthfl.studies.cells import Cell, Place, Seen
from truthfl.studies.reproduce.claims import Claim

FIRST_SEED = 1000  # the pilot's seeds count from 0, so that nothing is tuned on the runs that are shown
PILOT = PilotDesign(
    seeds=5, honest_seeds=5, search_seeds=6, batch_sizes=(5, 10, 20, 40, 80, 160), step_range=(0.02, 1.0)
)

Key = tuple[object, ...]
"""How a study names one of its cells."""


@dataclass(frozen=True)
class Paper:
    """What is run. Money is in a unit of its own; κ of Figure 7 follows from `mean_optimum`.

    place               data, model (8 filters), 300 samples for each of 10 clients
    seeds               how many trainings each point is the mean of
    rounds, every       T, and how often a training is looked at
    batch_sizes         D of Figures 2 and 3; `batch_size` where the paper says 50, `other_batch_size` beside it
    idle_clients        how many do not label in Figures 2 and 3
    report_scales       γ of Figures 4 and 5, for `scaling_clients` of the clients
    small_step          the second step size of Figures 4 and 5, as a share of the tuned one
    assigned            D' of Figure 6; `own_batch_sizes` what client 1 really uses there
    moments             T of Figure 7; the last is `rounds`, the others are moments at which a training is looked at
    sample_cost         c_p; `cost_ratios` what it is multiplied with for each client in Figure 7
    labeling_cost       c_l
    mean_optimum        κ is such that the best batch sizes average this at the last T of Figure 7; `too_large` is the
                        batch size that ignores costs
    pilot               the step search and the calibration, on the server's own data
    """

    place: Place
    seeds: int = 20
    rounds: int = 100
    every: int = 10
    batch_size: int = 50
    batch_sizes: tuple[int, ...] = (5, 20, 50, 100)
    other_batch_size: int = 20
    idle_clients: tuple[int, ...] = (2, 4)
    report_scales: tuple[float, ...] = (0.0, 0.5, 1.5, 2.0)
    scaling_clients: int = 3
    small_step: float = 0.125
    assigned: int = 60
    own_batch_sizes: tuple[int, ...] = (10, 30, 60, 120)
    moments: tuple[int, ...] = (60, 80, 100)
    sample_cost: float = 0.01
    cost_ratios: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0) * 2
    labeling_cost: float = 20.0
    mean_optimum: float = 25.0
    too_large: int = 100
    pilot: PilotDesign = PILOT

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise InputError(f"seeds is {self.seeds}; a confidence interval needs at least 2.")
        if self.moments[-1] != self.rounds or any(moment % self.every for moment in self.moments):
            raise InputError(
                f"moments are {self.moments}; they must be multiples of {self.every} and end with {self.rounds}."
            )

    @property
    def clients(self) -> int:
        return len(self.place.sizes)

    @property
    def seed_list(self) -> list[int]:
        return list(range(FIRST_SEED, FIRST_SEED + self.seeds))


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the server found on its pilot data: the best step size for all rounds; the loss model at some moments."""

    step_size: float
    calibration: Mapping[int, Calibration]

    def training(self, rounds: int) -> Training:
        """So many rounds at that step size."""
        return Training(rounds, 1, self.step_size)


@dataclass(frozen=True)
class Study:
    """One figure, or claims of the text: for which rounds it needs a loss model, what is trained, what comes out."""

    name: str
    modelled: Callable[[Paper], tuple[int, ...]]
    cells: Callable[[Paper, Prepared], Mapping[Key, Cell]]
    figure: Callable[[Paper, Prepared, Mapping[Key, Seen]], Figure] | None
    claims: Callable[[Paper, Prepared, Mapping[Key, Seen]], list[Claim]]


def the_paper(source: str = "mnist", seeds: int = 20) -> Paper:
    """The full reproduction. Pilot and clients draw on as many samples, so that one tells the other's loss."""
    data = Data(source=source, pilot_samples=2000, test_samples=1000)
    return Paper(Place(data, ModelChoice("cnn", filters=8, penalty=1e-4), (300,) * 10), seeds=seeds)


def a_quick_look(source: str = "mnist", seeds: int = 3) -> Paper:
    """Fewer rounds, seeds and cells: what the figures look like, not what they prove."""
    return replace(
        the_paper(source, seeds),
        rounds=40,
        batch_sizes=(5, 50),
        idle_clients=(3,),
        report_scales=(0.0, 2.0),
        own_batch_sizes=(10, 60),
        moments=(20, 40),
        pilot=replace(PILOT, search_seeds=4, seeds=2, honest_seeds=2, batch_sizes=(5, 10, 40, 80)),
    )


def clients_of(paper: Paper, sample_cost: ArrayLike) -> Clients:
    """Ten clients with equal data; the variance of gradients is in the loss model, so it is left at 1 here."""
    sizes = np.asarray(paper.place.sizes)
    return Clients(
        weight=sizes / sizes.sum(),
        gradient_variance=1.0,
        sample_cost=sample_cost,
        labeling_cost=paper.labeling_cost,
        dataset_size=sizes,
    )
