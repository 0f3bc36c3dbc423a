"""A whole job in one process: everybody labels, trains and reports as she behaves, the server tests and pays.

Looks at `job`, `learning` and the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.job import DataJob
from truthfl.learning.behaviours import BEHAVIOURS, error_rates, play
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.learning.federated import Federated
from truthfl.learning.labelers import assigned_labels
from truthfl.learning.planning import Plan
from truthfl.learning.scene import Scene, with_training
from truthfl.learning.training import Trained, train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.payoff import work_cost

LOOKS = 20  # at the model on the way


@dataclass(frozen=True, eq=False)
class Settlement:
    """What it came to.

    test_loss  of the final model on the drawn test samples; what pay is computed from
    refused    whose reports were empty: she is not paid
    pay, cost  of each client
    """

    test_loss: float
    refused: NDArray[np.bool_]
    pay: FloatArray
    cost: FloatArray

    @property
    def payoff(self) -> FloatArray:
        return self.pay - self.cost


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job that was run.

    trained  the final model, and loss and accuracy by round
    settled  what everybody got
    honest   what she would have been left with had she alone been honest, of those who are not; NaN for the others
    """

    behaviour: tuple[str, ...]
    trained: Trained
    settled: Settlement
    honest: FloatArray


def run_job(
    job: DataJob, scene: Scene, plan: Plan, *, seed: int = 0, progress: Callable[[], None] | None = None
) -> Outcome:
    """Label, train, test, pay; and once more for each liar, with her alone honest, to see what lying brought her."""
    names = job.clients.behaviour
    trained, settled = _played(job, scene, plan, names, seed, progress)
    honest = np.full(len(names), np.nan)
    for client, name in enumerate(names):
        if not BEHAVIOURS[name].truthful:
            instead = (*names[:client], "truthful", *names[client + 1 :])
            honest[client] = _played(job, scene, plan, instead, seed, None)[1].payoff[client]
    return Outcome(names, trained, settled, honest)


def looks_of(rounds: int) -> int:
    """How many rounds are between two looks at the model."""
    return max(1, rounds // LOOKS)


def _played(
    job: DataJob, scene: Scene, plan: Plan, names: tuple[str, ...], seed: int, progress: Callable[[], None] | None
) -> tuple[Trained, Settlement]:
    federated = with_training(scene.federated, plan.training)
    played = play(names, plan.contract.batch_size)
    labels = assigned_labels(
        federated.data.labels,
        federated.partition,
        labeling_effort=played.labeling_effort,
        error_rate=error_rates(names),
        classes=len(federated.data.classes),
        seed=seed,
    )
    trained = train(
        federated,
        played,
        labels,
        seed,
        watch={"test": scene.test},
        every=looks_of(plan.training.rounds),
        progress=progress,
    )
    refused = played.report_scale == 0
    loss = _test_loss(federated, trained.params[0], scene, job.server.test_samples, seed)
    pay = np.where(refused, 0.0, plan.contract.reward(loss))
    cost = np.where(refused & (played.labeling_effort == 0), 0.0, work_cost(plan.clients, plan.training, played))
    return trained, Settlement(loss, refused, pay, cost)


def _test_loss(federated: Federated, params: NDArray[np.float32], scene: Scene, samples: int, seed: int) -> float:
    """The mean loss over so many draws, with replacement, from the test set."""
    drawn = below(bits(key(seed, Purpose.TEST), samples), len(scene.test))
    return federated.model.loss(params, scene.test.images[drawn], scene.test.labels[drawn])
