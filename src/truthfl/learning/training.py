"""Training of one or many runs in one call, over all cores; the result depends on the seeds only.

With at least as many runs as threads, runs are distributed over the threads; with fewer, the chunks of clients of each
round are: by the kernel itself, or by `_ThreadedEngine` for NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.elsewhere import elsewhere, usual_threads
from truthfl.learning.engines import Engine, KernelEngine, Run, chunk_bounds, make_engine
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Features, Labels, Params
from truthfl.learning.profile import Profile
from truthfl.learning.runs import make_runs
from truthfl.learning.single_reports import SingleReports, needs_single_reports
from truthfl.learning.special_clients import SpecialClientRounds
from truthfl.mechanism.checks import whole_number
from truthfl.mechanism.strategies import Strategies


@dataclass(frozen=True, eq=False)
class LossAndAccuracy:
    """Loss and accuracy on one data set, arrays (runs, evaluations)."""

    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The results of all runs.

    params           (runs, parameters) the final models
    rounds           (evaluations,) the numbers of rounds after which the models were evaluated
    evaluations      loss and accuracy after these rounds, by the name of the data set
    refused_reports  for each run: the number of reports by client that are longer than the federation's rule allows, or
                     empty, of clients who fabricate reports or whose report scale differs from round to round: a scale
                     of exactly 0 is an empty report. Not in it are clients whose scale is 0 in all rounds
                     (`Profile.reports_nothing`): all their reports are empty
    """

    params: NDArray[np.float32]
    rounds: NDArray[np.int64]
    evaluations: Mapping[str, LossAndAccuracy]
    refused_reports: tuple[Mapping[int, int], ...]


def train(
    federated: Federated,
    strategies: Strategies | Profile | Sequence[Profile],
    seeds: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    step_sizes: ArrayLike | None = None,
    evaluate_on: Mapping[str, LabeledSamples] | None = None,
    every: int | None = None,
    threads: int | None = None,
    progress: Callable[[], None] | None = None,
) -> TrainingResult:
    """Train once per seed.

    strategies   strategies (N,) for all runs or (runs, N); or a profile of behaviours, or a list with one per run
    labels       labels to train with, (samples,) or (runs, samples), ordered by client; by default each run's labels
                 are simulated from the strategies and the seed. Samples that a behaviour leaves out or has labeled by
                 the common model are still treated so; labels that it derives before training are taken as given
    step_sizes   one per run; by default that of `federated.training`
    evaluate_on  data sets on which the models are evaluated every `every` rounds, and after the last round
    progress     called after each evaluation, by any thread
    """
    other = elsewhere(threads)
    if other is not None and progress is None:
        from truthfl.learning.training_blocks import train_in_blocks

        return train_in_blocks(other, federated, strategies, seeds, labels, step_sizes, evaluate_on, every)
    runs = make_runs(federated, strategies, seeds, labels, step_sizes)
    rounds = federated.training.rounds
    step = rounds if every is None else whole_number("every", every, at_least=1)
    moments = np.array([*range(step, rounds, step), rounds], dtype=np.int64)
    data_sets = dict(evaluate_on or {})
    workers = usual_threads() if threads is None else whole_number("threads", threads, at_least=1)
    few = len(runs) < workers
    base = make_engine(federated, threads=workers if few else 1)
    engine: Engine = base
    initial = {run.seed: federated.model.init(run.seed) for run in runs}

    def train_run(run: Run) -> tuple[Params, list[list[tuple[float, float]]], Mapping[int, int]]:
        single = SingleReports(federated, base, run) if needs_single_reports(federated, run) else None
        used: Engine = engine if single is None else single
        inner, evaluations, done = engine.pack(initial[run.seed]), [], 0
        special = None if run.special_clients is None else SpecialClientRounds(federated, run, run.special_clients)
        for moment in moments:
            if special is None:
                used.rounds(run, inner, done, int(moment))
            else:
                special.rounds(used, inner, done, int(moment), single)
            done = int(moment)
            params = engine.unpack(inner)
            evaluations.append([engine.evaluate(params, data.features, data.labels) for data in data_sets.values()])
            if progress is not None:
                progress()
        refused = Counter({} if special is None else special.refused_reports)
        if single is not None:
            refused.update(single.refused)
        return params, evaluations, dict(refused)

    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        if not few:
            results = list(pool.map(train_run, runs))
        else:
            if not isinstance(base, KernelEngine):
                engine = _ThreadedEngine(base, pool, workers, len(federated.partition))
            results = [train_run(run) for run in runs]
    shape = (len(runs), len(moments), len(data_sets), 2)
    values = np.array([evaluations for _, evaluations, _ in results], dtype=float).reshape(shape)
    by_name = {name: LossAndAccuracy(values[:, :, k, 0], values[:, :, k, 1]) for k, name in enumerate(data_sets)}
    refused_reports = tuple(empty for _, _, empty in results)
    return TrainingResult(np.stack([params for params, _, _ in results]), moments, by_name, refused_reports)


class _ThreadedEngine:
    """An engine that computes the chunks of each round in several threads, the calling one among them; for NumPy's.

    chunks_of  the chunks of each thread: thread k computes chunks k, k + workers, …
    """

    def __init__(self, engine: Engine, pool: ThreadPoolExecutor, workers: int, clients: int) -> None:
        self.engine, self.pool = engine, pool
        chunks = list(pairwise(chunk_bounds(clients).tolist()))
        self.number_of_chunks = len(chunks)
        self.chunks_of = [chunks[k::workers] for k in range(min(workers, len(chunks)))]
        self.pack, self.unpack, self.combine = engine.pack, engine.unpack, engine.combine
        self.chunk_update, self.relabel = engine.chunk_update, engine.relabel
        self.rescale = engine.rescale

    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None:
        for t in range(first, last):
            others = [self.pool.submit(self._updates, run, inner, t, chunks) for chunks in self.chunks_of[1:]]
            by_thread = [self._updates(run, inner, t, self.chunks_of[0]), *(other.result() for other in others)]
            threads = len(by_thread)
            updates = [by_thread[k % threads][k // threads] for k in range(self.number_of_chunks)]
            self.engine.combine(run, inner, updates)

    def _updates(self, run: Run, inner: Params, round_: int, chunks: list[tuple[int, int]]) -> list[Params]:
        return [self.engine.chunk_update(run, inner, round_, first, last) for first, last in chunks]

    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]:
        return self.engine.evaluate(params, features, labels)
