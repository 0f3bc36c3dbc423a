"""One round of training, by the kernel or by NumPy: what a chunk of clients together adds to the model.

Clients are cut into chunks that depend on nothing but their number; a round's result is the chunks' results added in
order. So it is the same whether chunks or whole runs are spread over threads, and over how many. Looks at `federated`,
`individual_clients`, `draws`, `compiled`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.compiled import (
    ARRAYS,
    CompiledModel,
    KernelJob,
    address,
    bright_pixels,
    describe,
    kernel,
    kernel_images,
    supports,
)
from truthfl.learning.draws import Purpose, below, bits_at, key, uniform
from truthfl.learning.federated import Federated
from truthfl.learning.individual_clients import Individuals
from truthfl.learning.model import Images, Labels, Params
from truthfl.learning.partition import Partition

MOST_CHUNKS = 16


@dataclass(frozen=True, eq=False)
class Run:
    """What differs from run to run. Arrays over clients; labels over all clients' samples.

    partition    who trains on which samples, where that is not everything she holds; else None
    individuals  whoever does what these arrays do not say; else None
    """

    seed: int
    step_size: float
    batch_size: NDArray[np.int64]
    report_scale: NDArray[np.float64]
    labels: Labels
    partition: Partition | None = None
    individuals: Individuals | None = None


class Engine(Protocol):
    """How rounds are computed. `inner` is the model in whatever layout the engine likes."""

    def start(self, params: Params) -> Params: ...
    def params(self, inner: Params) -> Params: ...
    def chunk(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params: ...
    def combine(self, run: Run, inner: Params, said: list[Params]) -> None: ...
    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None: ...
    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None: ...
    def evaluate(self, params: Params, images: Images, labels: Labels) -> tuple[float, float]: ...


def chunk_bounds(clients: int) -> NDArray[np.int64]:
    """Where chunks of clients start and end; larger ones first, so that threads that take turns end together."""
    chunks = min(clients, MOST_CHUNKS, 2 * max(1, clients // 5))
    sizes = clients // chunks + (np.arange(chunks) < clients % chunks)
    return np.concatenate(([0], np.cumsum(sizes)))


def engine(federated: Federated) -> Engine:
    """The kernel where it is built and knows the model, NumPy otherwise."""
    found = kernel() if supports(federated.model) else None
    return NumPyEngine(federated) if found is None else KernelEngine(federated)


class NumPyEngine:
    """Any model, by its own functions."""

    def __init__(self, federated: Federated) -> None:
        self.federated = federated
        self.bounds = chunk_bounds(len(federated.partition))

    def start(self, params: Params) -> Params:
        return params.copy()

    def params(self, inner: Params) -> Params:
        return inner.copy()

    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None:
        for t in range(first, last):
            parts = [
                self.chunk(run, inner, t, int(a), int(b)) for a, b in zip(self.bounds, self.bounds[1:], strict=False)
            ]
            self.combine(run, inner, parts)

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        run.labels[samples] = labels

    def combine(self, run: Run, inner: Params, said: list[Params]) -> None:  # noqa: ARG002
        for part in said[1:]:
            said[0] += part
        inner += said[0]

    def chunk(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params:
        clients = np.arange(first, last)
        q = self.federated.participation[first:last]
        if q.min() < 1.0:
            chance = uniform(bits_at(key(run.seed, Purpose.AVAILABILITY, clients, round_), 0))
            clients = clients[chance < q]
        share = self.federated.weight * run.report_scale / self.federated.participation
        sizes = run.batch_size[clients]
        if self.federated.training.local_steps == 1:
            weight = np.repeat((share / run.batch_size)[clients], sizes)
            drawn = self._batches(run, clients, round_, 0)
            return -np.float32(run.step_size) * self._gradient(run, inner, drawn, weight)
        ends = np.cumsum(sizes)
        steps = [self._batches(run, clients, round_, h) for h in range(self.federated.training.local_steps)]
        delta = np.zeros_like(inner)
        for client, size, end in zip(clients, sizes, ends, strict=True):
            local, weight = inner.copy(), np.full(size, 1.0 / size)
            for drawn in steps:
                local -= np.float32(run.step_size) * self._gradient(run, local, drawn[end - size : end], weight)
            delta += np.float32(share[client]) * (local - inner)
        return delta

    def evaluate(self, params: Params, images: Images, labels: Labels) -> tuple[float, float]:
        model = self.federated.model
        return model.loss(params, images, labels), model.accuracy(params, images, labels)

    def _batches(self, run: Run, clients: NDArray[np.int64], round_: int, step: int) -> NDArray[np.int64]:
        """Which of all clients' samples these clients draw for this step, client after client."""
        sizes, partition = run.batch_size[clients], run.partition or self.federated.partition
        position = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        keys = np.repeat(key(run.seed, Purpose.BATCH, clients, round_, step), sizes)
        own = np.repeat(partition.sizes[clients], sizes)
        return np.repeat(partition.starts[clients], sizes) + below(bits_at(keys, position), own)

    def _gradient(self, run: Run, params: Params, drawn: NDArray[np.int64], weight: NDArray[np.float64]) -> Params:
        """Σ over the drawn samples of weight · ∇f."""
        if not len(drawn):
            return np.zeros_like(params)
        partition = run.partition or self.federated.partition
        images = self.federated.data.images[partition.rows[drawn]]
        return self.federated.model.weighted_gradient(params, images, run.labels[drawn], weight.astype(np.float32))


class KernelEngine:
    """The built-in models, by the compiled kernel."""

    def __init__(self, federated: Federated) -> None:
        found = kernel()
        assert found is not None
        self.federated, self.kernel = federated, found
        self.model = CompiledModel(federated.model, found)
        self.bounds = chunk_bounds(len(federated.partition))
        self.images = kernel_images(federated.model, federated.data.images)
        self.rows, self.starts = _held(federated.partition)
        self.available = np.ascontiguousarray(federated.participation, dtype=np.float64)
        self.bright = bright_pixels(federated.model, self.images)
        self.jobs: WeakKeyDictionary[Run, KernelJob] = WeakKeyDictionary()
        self.shared: tuple[Labels, NDArray[np.int32]] | None = None

    def start(self, params: Params) -> Params:
        return self.model.pack(params)

    def params(self, inner: Params) -> Params:
        return self.model.unpack(inner)

    def chunk(self, run: Run, inner: Params, round_: int, first: int, last: int) -> Params:
        job = self._job(run)
        said = np.empty(len(inner) + 1, dtype=np.float32)
        numbers = (ctypes.c_int64(round_), ctypes.c_int64(first), ctypes.c_int64(last))
        self.kernel.call("chunk", ctypes.byref(job), address(inner), *numbers, address(said))
        return said

    def combine(self, run: Run, inner: Params, said: list[Params]) -> None:
        job = self._job(run)
        together = np.concatenate(said)
        self.kernel.call("combine", ctypes.byref(job), address(inner), address(together), ctypes.c_int64(len(said)))

    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None:
        job = self._job(run)
        numbers = (ctypes.c_int64(first), ctypes.c_int64(last))
        chunks = (address(self.bounds), ctypes.c_int64(len(self.bounds) - 1))
        self.kernel.call("run", ctypes.byref(job), address(inner), *numbers, *chunks)

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        run.labels[samples] = labels
        self._job(run).points_to[ARRAYS.index("labels")][samples] = labels

    def evaluate(self, params: Params, images: Images, labels: Labels) -> tuple[float, float]:
        return self.model.evaluate(params, images, labels)

    def _job(self, run: Run) -> KernelJob:
        """What the kernel is told of a run; two threads that ask at once may make it twice, which does no harm."""
        job = self.jobs.get(run)
        if job is None:
            job = self.jobs[run] = self._described(run)
        return job

    def _labels(self, run: Run) -> NDArray[np.int32]:
        """Labels as the kernel reads them: one copy for all runs that share theirs and follow one another.

        A run whose labels change from round to round has a copy of its own.
        """
        if run.individuals is not None:
            return np.array(run.labels, dtype=np.int32)
        shared = self.shared
        if shared is None or shared[0].ctypes.data != run.labels.ctypes.data or len(shared[0]) != len(run.labels):
            shared = self.shared = run.labels, np.ascontiguousarray(run.labels, dtype=np.int32)
        return shared[1]

    def _described(self, run: Run) -> KernelJob:
        share = self.federated.weight * run.report_scale / self.federated.participation
        rows, starts = (self.rows, self.starts) if run.partition is None else _held(run.partition)
        arrays: tuple[NDArray[Any], ...] = (
            self.images,
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
        job.points_to = arrays  # alive as long as the job is
        return job


def _held(partition: Partition) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and starts as the kernel reads them."""
    return np.ascontiguousarray(partition.rows), np.ascontiguousarray(partition.starts)
