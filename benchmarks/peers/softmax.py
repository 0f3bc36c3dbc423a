"""Softmax regression in many runs of ten clients: one call of `train`, and a plain NumPy loop. Prints JSON.

The loop has its images as floats and its batches drawn beforehand. It is timed for a few of the runs, half before and
half after the call, and their median is scaled to all runs. The parameters of both are compared.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

from benchmarks.peers.workload import CLASSES, SIDE, STEP_SIZE, THREADS, Work
from truthfl import InputError, Strategies
from truthfl.contracts.setting import Training
from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.draws import Purpose, below, bits, key
from truthfl.learning.training.train import train

CLIENTS, BATCH, PIXELS = 10, 50, SIDE * SIDE


def setting(data, rounds: int) -> Federated:
    """The paper's ten clients, 600 samples each."""
    partition = paper_partition(data.labels, np.full(CLIENTS, 600), seed=0)
    return Federated(SoftmaxRegression(PIXELS, CLASSES), data, partition, Training(rounds, 1, STEP_SIZE))


def plain_loop(x, y, rows, weight):
    """The parameters after one run; `rows` are (rounds, clients, batch), `weight` (clients,)."""
    common = np.zeros((CLASSES, PIXELS), dtype=np.float32), np.zeros(CLASSES, dtype=np.float32)
    each = np.arange(BATCH)
    for round_rows in rows:
        weights, biases = np.zeros_like(common[0]), np.zeros_like(common[1])
        for batch, share in zip(round_rows, weight, strict=True):
            images = x[batch]
            scores = images @ common[0].T + common[1]
            probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            probabilities[each, y[batch]] -= 1.0
            probabilities /= BATCH
            weights += share * (common[0] - np.float32(STEP_SIZE) * (probabilities.T @ images))
            biases += share * (common[1] - np.float32(STEP_SIZE) * probabilities.sum(axis=0))
        common = weights, biases
    return np.concatenate([common[0].ravel(), common[1]])


def measure(data, runs: int, rounds: int, loop_runs: int) -> dict:
    federated = setting(data, rounds)
    honest = Strategies.truthful(np.full(CLIENTS, BATCH))
    x = data.images.reshape(len(data), -1) * np.float32(1.0 / 255.0)
    weight = federated.weight.astype(np.float32)
    t, i = np.ogrid[:rounds, :CLIENTS]
    starts, sizes = federated.partition.starts[:-1, None], federated.partition.sizes[:, None]
    loop, times = [], []

    def time_loop(seeds) -> None:
        for seed in seeds:
            drawn = below(bits(key(seed, Purpose.BATCH, i, t, 0), BATCH), sizes) + starts
            rows = federated.partition.rows[drawn]
            start = time.perf_counter()
            loop.append(plain_loop(x, data.labels, rows, weight))
            times.append(time.perf_counter() - start)

    time_loop(range(loop_runs // 2))
    start = time.perf_counter()
    trained = train(federated, honest, np.arange(runs), threads=THREADS)
    seconds = time.perf_counter() - start
    time_loop(range(loop_runs // 2, loop_runs))
    loop_time = statistics.median(times)
    way = np.abs(trained.params[:loop_runs]).max()
    return {
        "runs": runs,
        "rounds": rounds,
        "seconds": seconds,
        "loop_runs_timed": loop_runs,
        "loop_seconds_scaled": loop_time * runs,
        "ratio": loop_time * runs / seconds,
        "distance_from_loop": float(np.abs(trained.params[:loop_runs] - np.stack(loop)).max() / way),
    }


def main() -> None:
    runs, rounds, loop_runs = (int(word) for word in sys.argv[1:])
    result = measure(Work(CLIENTS, images=6000).data(), runs, rounds, loop_runs)
    try:
        result["mnist"] = measure(bundled_mnist(), runs, rounds, loop_runs)
    except InputError:
        result["mnist"] = None
    print(json.dumps(result))


if __name__ == "__main__":
    main()
