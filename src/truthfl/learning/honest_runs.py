"""One honest run of each of several federations, over all cores in one call.

Imports `blas_threads`, `federated`, `labeled_samples`, `training` and `mechanism.strategies`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.training import train
from truthfl.mechanism.strategies import Strategies


def honest_runs(
    runs: Sequence[tuple[Federated, NDArray[np.float64], int]], test: LabeledSamples
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Final test losses, (runs,), and models, (runs, parameters); a run is a federation, its batch sizes and a seed."""

    def one(run: tuple[Federated, NDArray[np.float64], int]) -> tuple[float, NDArray[np.float32]]:
        federated, batches, seed = run
        trained = train(federated, Strategies.truthful(batches), seed, evaluate_on={"test": test}, threads=1)
        return float(trained.evaluations["test"].loss[0, -1]), trained.params[0]

    with one_blas_thread(), ThreadPoolExecutor(min(os.cpu_count() or 1, 64)) as pool:
        results = list(pool.map(one, runs))
    return np.array([loss for loss, _ in results]), np.stack([params for _, params in results])
