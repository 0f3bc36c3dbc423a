"""`Paper`: the parameters that all figures share; `Study`: the interface of a figure's module.

The paper states ten clients, MNIST, one convolutional layer, H = 1, degree 0.4, D = 50 and D'_1 = 60. We chose all
other values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.lceme.pilot import Calibration
from truthfl.contracts.setting import Clients, Training
from truthfl.errors import InputError
from truthfl.learning.data.federations import Data, ModelChoice
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.reporting.figure import Figure
from truthfl.studies.cells import Cell, CellResult, FederationSpec
from truthfl.studies.reproduce.claims import Claim

FIRST_SEED = 1000  # the pilot's seeds are counted from 0, so that nothing is tuned on the runs shown
PILOT = PilotDesign(
    seeds=5, honest_seeds=5, search_seeds=6, batch_sizes=(5, 10, 20, 40, 80, 160), step_range=(0.02, 1.0)
)

Key = tuple[object, ...]
"""The name of a cell within a study."""


@dataclass(frozen=True)
class Paper:
    """The parameters of the reproduction. Money has an arbitrary unit.

    federation          data, model (8 filters), 300 samples for each of 10 clients
    seeds               number of trainings of each cell
    rounds, every       T, and the rounds between two evaluations
    batch_size          D where the paper has 50; `other_batch_size` is shown next to it
    batch_sizes         D of Figures 2 and 3
    idle_clients        numbers of clients who do not label in Figures 2 and 3
    report_scales       γ of Figures 4 and 5, for `scaling_clients` of the clients
    small_step          the second step size of Figures 4 and 5, as a share of the tuned one
    assigned            D' of Figure 6; `own_batch_sizes` are the batches that client 1 really uses there
    moments             T of Figure 7; multiples of `every`, the last is `rounds`
    sample_cost         c_p; in Figure 7 multiplied by `cost_ratios`, one per client
    labeling_cost       c_l
    mean_optimum        mean of the best batch sizes at the last T of Figure 7, from which κ follows
    too_large           batch size of all clients in the third assignment of Figure 7
    pilot               design of the pilot runs on the server's own data
    """

    federation: FederationSpec
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
        return len(self.federation.sizes)

    @property
    def seed_list(self) -> list[int]:
        return list(range(FIRST_SEED, FIRST_SEED + self.seeds))


@dataclass(frozen=True, eq=False)
class PilotResult:
    """Results of the pilot: the best step size, and the loss model by number of rounds."""

    step_size: float
    calibration: Mapping[int, Calibration]

    def training(self, rounds: int) -> Training:
        """Training parameters for this number of rounds, at the best step size."""
        return Training(rounds, 1, self.step_size)


@dataclass(frozen=True)
class Study:
    """One figure, or the claims of the text.

    calibrated_rounds  numbers of rounds for which it needs a loss model
    cells              the cells to train
    figure, claims     functions that make them from the results of the cells
    """

    name: str
    calibrated_rounds: Callable[[Paper], tuple[int, ...]]
    cells: Callable[[Paper, PilotResult], Mapping[Key, Cell]]
    figure: Callable[[Paper, PilotResult, Mapping[Key, CellResult]], Figure] | None
    claims: Callable[[Paper, PilotResult, Mapping[Key, CellResult]], list[Claim]]


def full_paper(source: str = "mnist", seeds: int = 20) -> Paper:
    """The parameters of the full reproduction. Pilot and clients have equally many samples, so their losses agree."""
    data = Data(source=source, pilot_samples=2000, test_samples=1000)
    return Paper(FederationSpec(data, ModelChoice("cnn", filters=8, penalty=1e-4), (300,) * 10), seeds=seeds)


def quick_paper(source: str = "mnist", seeds: int = 3) -> Paper:
    """The parameters of a quick trial with fewer rounds, seeds and cells; most of its claims stay undecided."""
    return replace(
        full_paper(source, seeds),
        rounds=40,
        batch_sizes=(5, 50),
        idle_clients=(3,),
        report_scales=(0.0, 2.0),
        own_batch_sizes=(10, 60),
        moments=(20, 40),
        pilot=replace(PILOT, search_seeds=4, seeds=2, honest_seeds=2, batch_sizes=(5, 10, 40, 80)),
    )


def clients_of(paper: Paper, sample_cost: ArrayLike) -> Clients:
    """The clients for LCEME. The gradient variance is 1 because the calibrated loss model contains it."""
    sizes = np.asarray(paper.federation.sizes)
    return Clients(
        weight=sizes / sizes.sum(),
        gradient_variance=1.0,
        sample_cost=sample_cost,
        labeling_cost=paper.labeling_cost,
        dataset_size=sizes,
    )
