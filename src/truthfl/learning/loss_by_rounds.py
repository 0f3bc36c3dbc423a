"""By how much the joint loss is higher if training ends early."""

from __future__ import annotations

import numpy as np

from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.strategies import Strategies

SEEDS = 4
MOST_STEPS = 20  # the loss is measured after so many even shares of the rounds, or fewer


def measure_loss_by_rounds(federated: Federated, test: LabeledSamples, batches: FloatArray) -> tuple[float, ...]:
    """The rise of the loss of honest training if it ends after 0, 1/k, 2/k, … of the rounds; the last one is 0.

    k is `MOST_STEPS`, or the number of rounds if that is smaller. A loss that is lower than a later one counts as that.
    """
    rounds, seeds = federated.training.rounds, np.arange(SEEDS)
    steps = min(rounds, MOST_STEPS)
    honest = Strategies.truthful(np.maximum(np.rint(batches), 1.0))
    trained = train(federated, honest, seeds, evaluate_on={"test": test}, every=rounds // steps)
    start = np.mean(
        [federated.model.loss(federated.model.init(int(seed)), test.features, test.labels) for seed in seeds]
    )
    measured = np.concatenate(([start], trained.evaluations["test"].loss.mean(axis=0)))
    loss = np.interp(np.linspace(0, rounds, steps + 1), np.concatenate(([0], trained.rounds)), measured)
    rise = np.maximum.accumulate(loss[::-1])[::-1] - loss[-1]
    return tuple(rise.tolist())
