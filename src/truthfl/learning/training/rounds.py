"""A round of training: local steps, changes and reports, computed by the compiled kernel or by NumPy.

Clients are divided into chunks that depend only on the number of clients. The updates of the chunks are added in order.
So the result does not depend on the number of threads, nor on whether chunks or whole runs are distributed over them.

Engines add up clients as they go. `SingleReports` keeps them separate where the rule for reports needs that, which is
slower. A chunk then has a single client, whose share of the sum is 1. So the model after it is the client's.

Arrays of (e, D, γ) do not describe clients who fabricate reports, use labels predicted by the common model, or scale
their reports differently from round to round. `SpecialClientRounds` trains runs with such clients round by round; the
engine computes all other clients.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.models.model import Features, Labels, Params
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.tasks.custom import OwnSteps
from truthfl.learning.training.aggregation import MEAN, limited_changes, new_combiner, taken_weights, with_momentum
from truthfl.learning.training.compute import (
    ARRAYS,
    CompiledModel,
    KernelJob,
    Layout,
    address,
    bright_pixels,
    describe,
    kernel,
    kernel_images,
    supports,
)
from truthfl.learning.training.draws import Purpose, below, bits_at, key
from truthfl.learning.training.local_training import report_noise, takes_part, taking_part, updated_memory
from truthfl.learning.training.run import Run, SpecialClients, model_of_client

MAX_CHUNKS = 16
EVERYONE = slice(None)


class Engine(Protocol):
    """Computes rounds. `inner` are the model's parameters in the engine's own layout.

    pack, unpack   convert flat parameters to the inner layout and back
    chunk_update   the update by clients first … last − 1 in one round, an input of `combine`
    combine        add the updates of all chunks to the model, in place
    rounds         train rounds first … last − 1, in place. `before` is the model before the last round, in the same
                   layout, and a copy of `inner` before the first one; it is kept up in place if there is momentum
    relabel        replace the labels of some samples of the run
    rescale        replace the report scale of some clients of the run
    evaluate       loss and accuracy
    """

    def pack(self, params: Params) -> Params: ...
    def unpack(self, inner: Params) -> Params: ...
    def chunk_update(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params: ...
    def combine(self, run: Run, inner: Params, updates: list[Params]) -> None: ...
    def rounds(self, run: Run, inner: Params, before: Params, first: int, last: int) -> None: ...
    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None: ...
    def rescale(self, run: Run, clients: NDArray[np.int64], scale: float) -> None: ...
    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]: ...


def chunk_bounds(clients: int) -> NDArray[np.int64]:
    """First clients of the chunks, and the number of clients; chunk sizes differ by at most 1, larger chunks first."""
    chunks = min(clients, MAX_CHUNKS, 2 * max(1, clients // 5))
    sizes = clients // chunks + (np.arange(chunks) < clients % chunks)
    return np.concatenate(([0], np.cumsum(sizes)))


def make_engine(federated: Federated, threads: int = 1) -> Engine:
    """The kernel's engine if the kernel is built and supports the model, else NumPy's, which uses one thread."""
    compiled = kernel() if supports(federated.model, federated.data.features) else None
    return NumPyEngine(federated) if compiled is None else KernelEngine(federated, threads)


class NumPyEngine:
    """Trains any model by the model's own functions."""

    def __init__(self, federated: Federated) -> None:
        self.federated = federated
        self.bounds = chunk_bounds(len(federated.partition))

    def pack(self, params: Params) -> Params:
        return params.copy()

    def unpack(self, inner: Params) -> Params:
        return inner.copy()

    def rounds(self, run: Run, inner: Params, before: Params, first: int, last: int) -> None:
        for t in range(first, last):
            updates = [
                self.chunk_update(run, inner, t, int(first_client), int(end))
                for first_client, end in zip(self.bounds, self.bounds[1:], strict=False)
            ]
            self.finish_round(run, inner, before, updates)

    def finish_round(self, run: Run, inner: Params, before: Params, updates: list[Params]) -> None:
        """Add the updates of all chunks and momentum to the model, in place."""
        now, momentum = inner.copy(), self.federated.training.momentum
        self.combine(run, inner, updates)
        if momentum:
            inner[:], before[:] = with_momentum(inner, now, before, momentum), now

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        run.labels[samples] = labels

    def rescale(self, run: Run, clients: NDArray[np.int64], scale: float) -> None:
        run.report_scale[clients] = scale

    def combine(self, run: Run, inner: Params, updates: list[Params]) -> None:  # noqa: ARG002
        for update in updates[1:]:
            updates[0] += update
        inner += updates[0]

    def chunk_update(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params:
        clients = np.arange(first, last)
        q = self.federated.participation[first:last]
        if q.min() < 1.0:
            clients = clients[taking_part(run.seed, clients, round_, q)]
        share = _share(self.federated, run)
        if self.federated.training.local_steps == 1 and not isinstance(self.federated.model, PrivateModel | OwnSteps):
            # a single step, from the same model: the sum of all clients' steps is one weighted gradient
            weight = np.repeat((share / run.batch_size)[clients], run.batch_size[clients])
            return -np.float32(run.step_size) * self._gradient(run, inner, self._batches(run, clients, round_), weight)
        delta = np.zeros_like(inner)
        for client in clients[share[clients] != 0].tolist():
            local = model_of_client(self.federated, run, inner, client, round_)
            delta += np.float32(share[client]) * (local - inner)
        return delta

    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]:
        model = self.federated.model
        return model.loss(params, features, labels), model.accuracy(params, features, labels)

    def _batches(self, run: Run, clients: NDArray[np.int64], round_: int) -> NDArray[np.int64]:
        """The samples that these clients draw for a round of one step: positions among all samples, by client."""
        sizes, partition = run.batch_size[clients], run.partition or self.federated.partition
        position = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        keys = np.repeat(key(run.seed, Purpose.BATCH, clients, round_, 0), sizes)
        own = np.repeat(partition.sizes[clients], sizes)
        return np.repeat(partition.starts[clients], sizes) + below(bits_at(keys, position), own)

    def _gradient(self, run: Run, params: Params, drawn: NDArray[np.int64], weight: NDArray[np.float64]) -> Params:
        """Σ weight · ∇f over the drawn samples."""
        if not len(drawn):
            return np.zeros_like(params)
        partition = run.partition or self.federated.partition
        features = self.federated.data.features[partition.rows[drawn]]
        return self.federated.model.weighted_gradient(params, features, run.labels[drawn], weight.astype(np.float32))


class KernelEngine:
    """Trains the built-in models by the compiled kernel; `threads` compute the chunks of each round."""

    def __init__(self, federated: Federated, threads: int = 1) -> None:
        compiled = kernel()
        assert compiled is not None
        self.federated, self.kernel, self.threads = federated, compiled, threads
        self.model = CompiledModel(federated.model, compiled)
        self.bounds = chunk_bounds(len(federated.partition))
        self.features = kernel_images(federated.model, federated.data.features)
        self.rows, self.starts = _contiguous(federated.partition)
        self.available = np.ascontiguousarray(federated.participation, dtype=np.float64)
        self.bright = bright_pixels(federated.model, self.features)
        self.layout = Layout(federated.model, compiled, self.bright)
        self.jobs: WeakKeyDictionary[Run, KernelJob] = WeakKeyDictionary()
        self.converted_labels: tuple[Labels, NDArray[np.int32]] | None = None

    def pack(self, params: Params) -> Params:
        return self.layout.pack(params)

    def unpack(self, inner: Params) -> Params:
        return self.layout.unpack(inner)

    def chunk_update(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params:
        job = self._job(run)
        update = np.empty(len(inner) + 1, dtype=np.float32)
        numbers = (ctypes.c_int64(round_), ctypes.c_int64(first), ctypes.c_int64(last))
        self.kernel.call("chunk", ctypes.byref(job), address(inner), *numbers, address(update))
        return update

    def combine(self, run: Run, inner: Params, updates: list[Params]) -> None:
        job = self._job(run)
        joined, count = np.concatenate(updates), ctypes.c_int64(len(updates))
        self.kernel.call("combine", ctypes.byref(job), address(inner), address(joined), count)

    def rounds(self, run: Run, inner: Params, before: Params, first: int, last: int) -> None:
        job = self._job(run)
        numbers = (ctypes.c_int64(first), ctypes.c_int64(last))
        chunks = (address(self.bounds), ctypes.c_int64(len(self.bounds) - 1))
        threads = ctypes.c_int64(self.threads)
        kept = address(before) if job.momentum else None
        self.kernel.call("run", ctypes.byref(job), address(inner), kept, *numbers, *chunks, threads)

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        run.labels[samples] = labels
        self._job(run).points_to[ARRAYS.index("labels")][samples] = labels

    def rescale(self, run: Run, clients: NDArray[np.int64], scale: float) -> None:
        run.report_scale[clients] = scale
        self._job(run).points_to[ARRAYS.index("share")][clients] = _share(self.federated, run, clients)

    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]:
        return self.model.evaluate(params, features, labels)

    def _job(self, run: Run) -> KernelJob:
        """The kernel's struct for a run, cached. Two threads may create it at the same time, which is harmless."""
        job = self.jobs.get(run)
        if job is None:
            job = self.jobs[run] = self._make_job(run)
        return job

    def _labels(self, run: Run) -> NDArray[np.int32]:
        """The run's labels as int32. Consecutive runs with the same array of labels share one converted copy.

        A run with special clients, whose labels may change from round to round, has its own copy.
        """
        if run.special_clients is not None:
            return np.array(run.labels, dtype=np.int32)
        last = self.converted_labels
        if last is None or last[0].ctypes.data != run.labels.ctypes.data or len(last[0]) != len(run.labels):
            last = self.converted_labels = run.labels, np.ascontiguousarray(run.labels, dtype=np.int32)
        return last[1]

    def _make_job(self, run: Run) -> KernelJob:
        share = _share(self.federated, run)
        rows, starts = (self.rows, self.starts) if run.partition is None else _contiguous(run.partition)
        arrays: tuple[NDArray[Any], ...] = (
            self.features,
            rows,
            self._labels(run),
            starts,
            np.ascontiguousarray(run.batch_size, dtype=np.int64),
            share.astype(np.float32),
            self.available,
            *self.bright,
        )
        job = describe(self.federated.model)
        for name, array in zip(ARRAYS, arrays, strict=False):
            setattr(job, name, array.ctypes.data)
        job.seed = run.seed % 2**64
        job.local_steps = self.federated.training.local_steps
        job.step_size = run.step_size
        job.momentum = self.federated.training.momentum
        job.points_to = arrays  # keeps the arrays alive as long as the job
        return job


def _share(federated: Federated, run: Run, clients: NDArray[np.int64] | slice = EVERYONE) -> NDArray[np.float64]:
    """p_i γ_i / q_i of these clients: the factors of their changes in the sum."""
    return federated.weight[clients] * run.report_scale[clients] / federated.participation[clients]


def _contiguous(partition: Partition) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The partition's rows and starts as contiguous arrays."""
    return np.ascontiguousarray(partition.rows), np.ascontiguousarray(partition.starts)


class ClientChanges:
    """The changes of the clients of one run, before the run's report scales."""

    def __init__(self, federated: Federated, engine: Engine, run: Run) -> None:
        self.federated, self.engine = federated, engine
        self.run = replace(run, report_scale=federated.participation / federated.weight)

    def of(self, inner: Params, round_: int, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """The honest changes of these clients, (clients, parameters); `inner` is the model in the engine's layout."""
        common = self.engine.unpack(inner)
        changes = np.empty((len(clients), len(common)), dtype=np.float32)
        for row, client in enumerate(clients.tolist()):
            local = inner.copy()
            update = self.engine.chunk_update(self.run, inner, round_, client, client + 1)
            self.engine.combine(self.run, local, [update])
            changes[row] = self.engine.unpack(local) - common
        return changes

    def present(self, round_: int) -> NDArray[np.bool_]:
        """Which clients take part in this round."""
        q = self.federated.participation
        return taking_part(self.run.seed, np.arange(len(q)), round_, q)


def needs_single_reports(federated: Federated, run: Run) -> bool:
    """Whether the rule for reports can do anything else with a report of this run than add it."""
    rule, special = federated.rule, run.special_clients
    longer = bool((np.abs(run.report_scale) > 1.0).any()) or bool(special and (special.fabricators or special.rescaled))
    empty = bool((run.report_scale == 0).any()) or special is not None
    return rule.aggregation != MEAN or (bool(rule.bounds) and longer) or (rule.rescales and not rule.clips and empty)


class SingleReports:
    """An engine for one run that combines single reports by the federation's rule.

    refused  how many reports of each client were too long, of the reports made here
    """

    def __init__(self, federated: Federated, engine: Engine, run: Run) -> None:
        self.federated, self.engine, self.run = federated, engine, run
        self.changes = ClientChanges(federated, engine, run)
        self.pack, self.unpack, self.evaluate = engine.pack, engine.unpack, engine.evaluate
        self.chunk_update, self.combine, self.rescale = engine.chunk_update, engine.combine, engine.rescale
        self.refused: Counter[int] = Counter()
        self.combined = new_combiner(federated.rule.aggregation)

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        self.engine.relabel(run, samples, labels)
        self.engine.relabel(self.changes.run, samples, labels)

    def rounds(self, run: Run, inner: Params, before: Params, first: int, last: int) -> None:  # noqa: ARG002
        for round_ in range(first, last):
            self.round(inner, before, round_, {})

    def round(self, inner: Params, before: Params, round_: int, fabricated: Mapping[int, Params]) -> None:
        """Train one round, in place; `fabricated` are the reports of clients who fabricate them."""
        common, scale, rule = self.engine.unpack(inner), self.run.report_scale, self.federated.rule
        asked = self.changes.present(round_)
        honest = np.flatnonzero(asked & (scale != 0))
        made = scale[honest].astype(np.float32)[:, None] * self.changes.of(inner, round_, honest)
        clients = np.concatenate((honest, np.array(list(fabricated), dtype=np.int64)))
        changes = np.concatenate((made, *(report[None] - common for report in fabricated.values())))
        order = np.argsort(clients, kind="stable")
        changes, taken = limited_changes(changes[order], rule, round_)
        self.refused.update(clients[order][~taken & changes.any(axis=1)].tolist())
        weight = self.federated.weight / self.federated.participation
        counted = np.zeros(len(weight), dtype=bool)
        counted[clients[order][taken]] = True
        counts = taken_weights(weight[asked], counted[asked], rule)
        changed = self.combined(round_ + 1, common, changes[taken], counts)
        moved = with_momentum(changed, common, self.engine.unpack(before), self.federated.training.momentum)
        inner[:], before[:] = self.engine.pack(moved), inner.copy()


class SpecialClientRounds:
    """Trains the rounds of a run with special clients.

    received       the models that each fabricator remembers
    refused_reports  how many reports of each client who fabricates or rescales were equal to the model received
    """

    def __init__(self, federated: Federated, run: Run, special: SpecialClients) -> None:
        self.federated, self.run, self.special = federated, run, special
        self.partition = run.partition or federated.partition
        self.predicted_features = federated.data.features[self.partition.rows[special.predicted]]
        self.received: dict[int, list[Params]] = {client: [] for client in special.fabricators}
        rescaling = [client for _, clients in special.rescaled for client in clients.tolist()]
        self.refused_reports = dict.fromkeys([*special.fabricators, *rescaling], 0)

    def rounds(
        self,
        engine: Engine,
        inner: Params,
        before: Params,
        first: int,
        last: int,
        single: SingleReports | None = None,
    ) -> None:
        """Train rounds first … last − 1, like `Engine.rounds`; `single`: the engine itself if it combines reports."""
        for t in range(first, last):
            common = engine.unpack(inner)
            several = self.special.several
            if several is not None:
                engine.relabel(self.run, several.samples, several.in_round(self.run.seed, t))
            if len(self.predicted_features):
                labels = self.federated.model.predict(common, self.predicted_features)
                engine.relabel(self.run, self.special.predicted, labels)
            for behaviour, clients in self.special.rescaled:
                self._rescale(engine, behaviour, clients, t)
            reports = self._fabricated_reports(common, t)
            if single is not None:
                single.round(inner, before, t, reports)
                continue
            engine.rounds(self.run, inner, before, t, t + 1)
            if reports:
                inner[:] = engine.pack(engine.unpack(inner) + self._update(common, reports))

    def _rescale(self, engine: Engine, behaviour: Behaviour, clients: NDArray[np.int64], round_: int) -> None:
        """Set the round's report scale of these clients; a scale of 0 makes their reports empty."""
        scale, q = behaviour.scale_in_round(round_, self.federated.training.rounds), self.federated.participation
        engine.rescale(self.run, clients, scale)
        if scale == 0:
            for client in clients.tolist():
                self.refused_reports[client] += takes_part(self.run.seed, client, round_, q[client])

    def _fabricated_reports(self, common: Params, round_: int) -> dict[int, Params]:
        """The reports of the fabricators who take part, by client."""
        reports, q = dict[int, Params](), self.federated.participation
        for client, behaviour in self.special.fabricators.items():
            if not takes_part(self.run.seed, client, round_, q[client]):
                continue
            self.received[client] = updated_memory(behaviour, self.received[client], common)
            report = behaviour.report(
                self.received[client],
                partial(report_noise, self.run.seed, client, round_),
                partial(model_of_client, self.federated, self.run, common, client, round_),
                round_=round_,
                rounds=self.federated.training.rounds,
            )
            reports[client] = report
            self.refused_reports[client] += np.array_equal(report, common)
        return reports

    def _update(self, common: Params, reports: Mapping[int, Params]) -> Params:
        """The sum of these weighted reports."""
        change, weight, q = np.zeros_like(common), self.federated.weight, self.federated.participation
        for client, report in reports.items():
            change += np.float32(weight[client] / q[client]) * (report - common)
        return change
