"""One honest run of each of several federations, over all cores in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.elsewhere import elsewhere, usual_threads
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.training import train
from truthfl.mechanism.strategies import Strategies

HonestRun = tuple[Federated, NDArray[np.float64], int]
"""A federation, its batch sizes and a seed."""


def honest_runs(runs: Sequence[HonestRun], test: LabeledSamples) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Final test losses, (runs,), and models, (runs, parameters)."""
    other = elsewhere(None)
    if other is not None:
        results = other("learning.honest_runs:honest_run", test, runs)
    else:
        with one_blas_thread(), ThreadPoolExecutor(usual_threads()) as pool:
            results = list(pool.map(partial(honest_run, test), runs))
    return np.array([float(result["loss"]) for result in results]), np.stack([result["params"] for result in results])


def honest_run(test: LabeledSamples, run: HonestRun) -> Mapping[str, NDArray[Any]]:
    """The final test loss and the model of one run."""
    federated, batches, seed = run
    trained = train(federated, Strategies.truthful(batches), seed, evaluate_on={"test": test}, threads=1)
    return {"loss": np.array(trained.evaluations["test"].loss[0, -1]), "params": trained.params[0]}
