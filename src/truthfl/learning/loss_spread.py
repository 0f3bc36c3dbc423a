"""The spread of the final loss of honest runs: between jobs, and between test samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.draws import Purpose, generator
from truthfl.learning.federated import Federated
from truthfl.learning.honest_runs import honest_runs
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.partition import Partition

RESAMPLED_PILOTS = 12
SAMPLES_FOR_VARIANCE = 1000


def spread_of_loss(pilot: Federated, test: LabeledSamples, batches: NDArray[np.float64]) -> tuple[float, float]:
    """The standard deviation of the final loss between jobs, and its variance between the test samples of one job.

    Jobs are simulated by a bootstrap: each trial uses another seed and the pilot's samples resampled with replacement.
    """
    losses, params = honest_runs([(resampled(pilot, k), batches, k) for k in range(RESAMPLED_PILOTS)], test)
    variances = [float(np.var(sample_losses(pilot, own, test))) for own in params]
    return float(np.std(losses, ddof=1)), float(np.mean(variances))


def resampled(pilot: Federated, trial: int) -> Federated:
    """The same federation with its samples resampled with replacement."""
    drawn = generator(trial, Purpose.TEST).integers(0, len(pilot.data), len(pilot.data))
    return Federated(
        pilot.model,
        pilot.data,
        Partition(drawn[pilot.partition.rows], pilot.partition.starts),
        pilot.training,
        weight=pilot.weight,
        participation=pilot.participation,
        merged=pilot.merged,
        rule=pilot.rule,
    )


def sample_losses(federated: Federated, params: NDArray[np.float32], test: LabeledSamples) -> NDArray[np.float64]:
    """The losses of single test samples; of at most `SAMPLES_FOR_VARIANCE`, evenly spaced."""
    model, features, labels = federated.model, test.features, test.labels
    chosen = np.linspace(0, len(labels) - 1, min(len(labels), SAMPLES_FOR_VARIANCE)).astype(int)
    return np.array([model.loss(params, features[k : k + 1], labels[k : k + 1]) for k in chosen])
