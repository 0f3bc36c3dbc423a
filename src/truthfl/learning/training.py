"""Training, fast: one run or many in one call, over all cores, always with the same result for the same seed.

With at least as many runs as threads, runs are spread over the threads; with fewer, each round's chunks of clients are.
Imports `engines`, `runs`, `individual_clients`, `federated`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from truthfl.learning.engines import Engine, Run, chunk_bounds, engine
from truthfl.learning.federated import Federated
from truthfl.learning.images import LabeledImages
from truthfl.learning.individual_clients import IndividualRounds
from truthfl.learning.model import Labels, Params
from truthfl.learning.profile import Profile
from truthfl.learning.runs import make_runs
from truthfl.mechanism.checks import whole_number
from truthfl.mechanism.strategies import Strategies


@dataclass(frozen=True, eq=False)
class Watched:
    """What was seen of one data set on the way: loss and accuracy, (runs, moments)."""

    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of the runs.

    params         the final models, one row per run
    rounds         the moments at which the watched data sets were looked at
    watched        what was seen then, by the data set's name
    empty_reports  of each run: how many reports were empty, of each client who fabricates hers
    """

    params: NDArray[np.float32]
    rounds: NDArray[np.int64]
    watched: Mapping[str, Watched]
    empty_reports: tuple[Mapping[int, int], ...]


def train(
    federated: Federated,
    strategies: Strategies | Profile | Sequence[Profile],
    seeds: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    step_sizes: ArrayLike | None = None,
    watch: Mapping[str, LabeledImages] | None = None,
    every: int | None = None,
    threads: int | None = None,
    progress: Callable[[], None] | None = None,
) -> Trained:
    """Train once per seed.

    strategies  what everybody does: strategies (N,) for all runs or (runs, N); or a profile of behaviours, or a list
                with one per run
    labels      to train with instead of those that these make by each run's seed: (samples,) or (runs, samples), client
                after client; who leaves samples out or has them labeled by the model still does
    step_sizes  one per run, the training's own unless given
    watch       data sets that are looked at every so many rounds, and always after the last
    progress    called at each of these looks, by any thread
    """
    runs = make_runs(federated, strategies, seeds, labels, step_sizes)
    rounds = federated.training.rounds
    step = rounds if every is None else whole_number("every", every, at_least=1)
    moments = np.array([*range(step, rounds, step), rounds], dtype=np.int64)
    sets = dict(watch or {})
    workers = min(os.cpu_count() or 1, 64) if threads is None else whole_number("threads", threads, at_least=1)
    by = engine(federated)
    start = {run.seed: federated.model.init(run.seed) for run in runs}

    def one_run(run: Run) -> tuple[Params, list[list[tuple[float, float]]], Mapping[int, int]]:
        inner, seen, done = by.start(start[run.seed]), [], 0
        apart = None if run.individuals is None else IndividualRounds(federated, run, run.individuals)
        for moment in moments:
            if apart is None:
                by.rounds(run, inner, done, int(moment))
            else:
                apart.rounds(by, inner, done, int(moment))
            done = int(moment)
            params = by.params(inner)
            seen.append([by.evaluate(params, data.images, data.labels) for data in sets.values()])
            if progress is not None:
                progress()
        return params, seen, {} if apart is None else apart.empty_reports

    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        if len(runs) >= workers or workers == 1:
            results = list(pool.map(one_run, runs))
        else:
            by = _Spread(by, pool, workers, len(federated.partition))
            results = [one_run(run) for run in runs]
    shape = (len(runs), len(moments), len(sets), 2)
    looked = np.array([seen for _, seen, _ in results], dtype=float).reshape(shape)
    watched = {name: Watched(looked[:, :, k, 0], looked[:, :, k, 1]) for k, name in enumerate(sets)}
    empty = tuple(empty for _, _, empty in results)
    return Trained(np.stack([params for params, _, _ in results]), moments, watched, empty)


class _Spread:
    """An engine whose rounds are spread over threads: each takes every so-manyth chunk, this one among them."""

    def __init__(self, by: Engine, pool: ThreadPoolExecutor, workers: int, clients: int) -> None:
        self.by, self.pool = by, pool
        bounds = chunk_bounds(clients).tolist()
        chunks = list(pairwise(bounds))
        self.chunks, self.hands = len(chunks), [chunks[k::workers] for k in range(min(workers, len(chunks)))]
        self.start, self.params, self.chunk, self.combine = by.start, by.params, by.chunk, by.combine
        self.relabel = by.relabel

    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None:
        for t in range(first, last):
            others = [self.pool.submit(self._some, run, inner, t, hand) for hand in self.hands[1:]]
            by_hand = [self._some(run, inner, t, self.hands[0]), *(other.result() for other in others)]
            said = [by_hand[k % len(by_hand)][k // len(by_hand)] for k in range(self.chunks)]
            self.by.combine(run, inner, said)

    def _some(self, run: Run, inner: Params, round_: int, chunks: list[tuple[int, int]]) -> list[Params]:
        return [self.by.chunk(run, inner, round_, first, last) for first, last in chunks]

    def evaluate(self, params: Params, images: NDArray[np.uint8], labels: Labels) -> tuple[float, float]:
        return self.by.evaluate(params, images, labels)
