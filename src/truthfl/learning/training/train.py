"""`train`: one or many runs in one call, over all cores; the result depends only on the seeds.

With at least as many runs as threads, runs are distributed over the threads. With fewer, the chunks of clients of each
round are distributed: by the kernel itself, or by `_ThreadedEngine` for NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import Strategies, whole_number
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Features, Labels, Params
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.compute import MOST_BLOCKS, Elsewhere, elsewhere, training_threads, usual_threads
from truthfl.learning.training.rounds import (
    Engine,
    NumPyEngine,
    SingleReports,
    SpecialClientRounds,
    chunk_bounds,
    make_engine,
    needs_single_reports,
)
from truthfl.learning.training.run import Run, make_runs


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
                     empty. Empty reports are counted only for clients who fabricate reports or whose report scale
                     differs from round to round: a scale of exactly 0 is an empty report. Clients whose scale is 0 in
                     all rounds (`Profile.reports_nothing`) are not included: all their reports are empty
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
    start: ArrayLike | None = None,
    evaluate_on: Mapping[str, LabeledSamples] | None = None,
    every: int | None = None,
    threads: int | None = None,
    progress: Callable[[], None] | None = None,
) -> TrainingResult:
    """Train once per seed. A training may diverge, without a warning: look at its losses.

    strategies   strategies (N,) for all runs or (runs, N); or a profile of behaviours, or a list with one per run
    labels       labels to train with, (samples,) or (runs, samples), ordered by client; by default each run's labels
                 are simulated from the strategies and the seed. Samples that a behaviour leaves out or has labeled by
                 the common model are still treated so; labels that it derives before training are used as given
    step_sizes   one per run; by default that of `federated.training`
    start        the parameters before the first round, (parameters,) or (runs, parameters); by default `model.init`'s
    evaluate_on  data sets on which the models are evaluated every `every` rounds, and after the last round
    progress     called after each evaluation, by any thread
    """
    other = elsewhere(threads)
    if other is not None and progress is None:
        return train_in_blocks(other, federated, strategies, seeds, labels, step_sizes, start, evaluate_on, every)
    runs = make_runs(federated, strategies, seeds, labels, step_sizes)
    rounds = federated.training.rounds
    step = max(rounds, 1) if every is None else whole_number("every", every, at_least=1)
    moments = np.array([*range(step, rounds, step), rounds], dtype=np.int64)
    data_sets = dict(evaluate_on or {})
    workers = usual_threads() if threads is None else whole_number("threads", threads, at_least=1)
    few = len(runs) < workers
    base = make_engine(federated, threads=workers if few else 1)
    engine: Engine = base
    initial = _initial_params(federated, runs, start)

    def train_run(run: Run, first: Params) -> tuple[Params, list[list[tuple[float, float]]], Mapping[int, int]]:
        single = SingleReports(federated, base, run) if needs_single_reports(federated, run) else None
        used: Engine = engine if single is None else single
        inner, before, evaluations, done = engine.pack(first), engine.pack(first), [], 0
        special = None if run.special_clients is None else SpecialClientRounds(federated, run, run.special_clients)
        for moment in moments:
            if special is None:
                used.rounds(run, inner, before, done, int(moment))
            else:
                special.rounds(used, inner, before, done, int(moment), single)
            done = int(moment)
            params = engine.unpack(inner)
            evaluations.append([engine.evaluate(params, data.features, data.labels) for data in data_sets.values()])
            if progress is not None:
                progress()
        refused = Counter({} if special is None else special.refused_reports)
        if single is not None:
            refused.update(single.refused)
        return params, evaluations, dict(refused)

    with training_threads(workers) as pool:
        if not few:
            results = list(pool.map(train_run, runs, initial))
        else:
            if isinstance(base, NumPyEngine):
                engine = _ThreadedEngine(base, pool, workers, len(federated.partition))
            results = list(map(train_run, runs, initial))
    shape = (len(runs), len(moments), len(data_sets), 2)
    values = np.array([evaluations for _, evaluations, _ in results], dtype=float).reshape(shape)
    by_name = {name: LossAndAccuracy(values[:, :, k, 0], values[:, :, k, 1]) for k, name in enumerate(data_sets)}
    refused_reports = tuple(empty for _, _, empty in results)
    return TrainingResult(np.stack([params for params, _, _ in results]), moments, by_name, refused_reports)


def _initial_params(federated: Federated, runs: Sequence[Run], start: ArrayLike | None) -> list[Params]:
    """The parameters from which each run starts."""
    if start is None:
        of_seed = {run.seed: federated.model.init(run.seed) for run in runs}
        return [of_seed[run.seed] for run in runs]
    given, shape = np.asarray(start, dtype=np.float32), (len(runs), federated.model.size)
    if given.shape not in (shape, shape[1:]):
        raise InputError(f"start has shape {given.shape}; it must be {shape[1:]}, or {shape} with one model per run.")
    return list(np.broadcast_to(given, shape))


class _ThreadedEngine:
    """NumPy's engine with the chunks of each round computed in several threads, including the calling one.

    chunks_of  the chunks of each thread: thread k computes chunks k, k + workers, …
    """

    def __init__(self, engine: NumPyEngine, pool: ThreadPoolExecutor, workers: int, clients: int) -> None:
        self.engine, self.pool = engine, pool
        chunks = list(pairwise(chunk_bounds(clients).tolist()))
        self.number_of_chunks = len(chunks)
        self.chunks_of = [chunks[k::workers] for k in range(min(workers, len(chunks)))]
        self.pack, self.unpack, self.combine = engine.pack, engine.unpack, engine.combine
        self.chunk_update, self.relabel = engine.chunk_update, engine.relabel
        self.rescale = engine.rescale

    def rounds(self, run: Run, inner: Params, before: Params, first: int, last: int) -> None:
        for t in range(first, last):
            others = [self.pool.submit(self._updates, run, inner, t, chunks) for chunks in self.chunks_of[1:]]
            by_thread = [self._updates(run, inner, t, self.chunks_of[0]), *(other.result() for other in others)]
            threads = len(by_thread)
            updates = [by_thread[k % threads][k // threads] for k in range(self.number_of_chunks)]
            self.engine.finish_round(run, inner, before, updates)

    def _updates(self, run: Run, inner: Params, round_: int, chunks: list[tuple[int, int]]) -> list[Params]:
        return [self.engine.chunk_update(run, inner, round_, first, last) for first, last in chunks]

    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]:
        return self.engine.evaluate(params, features, labels)


HonestRun = tuple[Federated, NDArray[np.float64], int] | tuple[Federated, NDArray[np.float64], int, Params]
"""A federation, its batch sizes, a seed, and if it is not `model.init`'s the model from which training starts."""


def honest_runs(runs: Sequence[HonestRun], test: LabeledSamples) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Final test losses, (runs,), and models, (runs, parameters)."""
    other = elsewhere(None)
    if other is not None:
        results = other("learning.training.train:honest_run", test, runs)
    else:
        with training_threads(usual_threads()) as pool:
            results = list(pool.map(partial(honest_run, test), runs))
    return np.array([float(result["loss"]) for result in results]), np.stack([result["params"] for result in results])


def honest_run(test: LabeledSamples, run: HonestRun) -> Mapping[str, NDArray[Any]]:
    """The final test loss and the model of one run."""
    (federated, batches, seed), start = run[:3], run[3] if len(run) == 4 else None
    honest = Strategies.truthful(batches)
    trained = train(federated, honest, seed, start=start, evaluate_on={"test": test}, threads=1)
    return {"loss": np.array(trained.evaluations["test"].loss[0, -1]), "params": trained.params[0]}


Given = Strategies | Profile | Sequence[Profile]
Common = tuple[Federated, Mapping[str, LabeledSamples], int | None]
Own = tuple[NDArray[Any], Given, NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]


def train_in_blocks(
    other: Elsewhere,
    federated: Federated,
    strategies: Given,
    seeds: ArrayLike,
    labels: ArrayLike | None,
    step_sizes: ArrayLike | None,
    start: ArrayLike | None,
    evaluate_on: Mapping[str, LabeledSamples] | None,
    every: int | None,
) -> TrainingResult:
    """What `train` returns, computed by `other`. The division of runs does not depend on the computer."""
    numbers = np.atleast_1d(np.asarray(seeds))
    size = max(1, -(-len(numbers) // MOST_BLOCKS))
    blocks = [slice(first, first + size) for first in range(0, len(numbers), size)]
    own: list[Own] = [
        (
            numbers[block],
            _strategies_of(strategies, block, len(numbers)),
            _rows_of(labels, block, len(numbers), 2),
            _rows_of(step_sizes, block, len(numbers), 1),
            _rows_of(start, block, len(numbers), 2),
        )
        for block in blocks
    ]
    data_sets = dict(evaluate_on or {})
    results = other("learning.training.train:train_block", (federated, data_sets, every), own)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([result[name] for result in results])

    evaluations = {name: LossAndAccuracy(joined(f"loss {name}"), joined(f"accuracy {name}")) for name in data_sets}
    refused: list[dict[int, int]] = [{} for _ in numbers]
    for block, result in zip(blocks, results, strict=True):
        for run, client, count in result["refused"].tolist():
            refused[block.start + run][client] = count
    return TrainingResult(joined("params"), results[0]["rounds"], evaluations, tuple(refused))


def train_block(common: Common, own: Own) -> Mapping[str, NDArray[Any]]:
    """The results of one block as named arrays; `refused` has a row (run, client, reports) for each client."""
    (federated, data_sets, every), (seeds, strategies, labels, step_sizes, start) = common, own
    trained = train(
        federated,
        strategies,
        seeds,
        labels=labels,
        step_sizes=step_sizes,
        start=start,
        evaluate_on=data_sets,
        every=every,
        threads=1,
    )
    refused = [
        (run, client, count)
        for run, by_client in enumerate(trained.refused_reports)
        for client, count in by_client.items()
    ]
    measured = {f"loss {name}": values.loss for name, values in trained.evaluations.items()}
    measured |= {f"accuracy {name}": values.accuracy for name, values in trained.evaluations.items()}
    rows = np.array(refused, dtype=np.int64).reshape(-1, 3)
    return measured | {"params": trained.params, "rounds": trained.rounds, "refused": rows}


def _strategies_of(strategies: Given, block: slice, runs: int) -> Given:
    if isinstance(strategies, Profile):
        return strategies
    if not isinstance(strategies, Strategies):
        return list(strategies)[block]
    fields = (strategies.labeling_effort, strategies.batch_size, strategies.report_scale, strategies.claimed_batch_size)
    if strategies.batch_size.ndim < 2 or len(strategies.batch_size) != runs:
        return strategies
    return Strategies(*(values[block] for values in fields))


def _rows_of(values: ArrayLike | None, block: slice, runs: int, dimensions: int) -> NDArray[Any] | None:
    """The block's part of values that may be given per run; such values have this many dimensions."""
    if values is None:
        return None
    array = np.asarray(values)
    return array[block] if array.ndim == dimensions and len(array) == runs else array
