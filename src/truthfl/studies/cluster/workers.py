"""`RayWorkers`: a Ray cluster that computes the tasks of a study or the trainings of a plan."""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from truthfl.errors import InputError, ServiceError
from truthfl.job import DataJob
from truthfl.learning.training.aggregation import is_own
from truthfl.learning.training.compute import computed_by
from truthfl.studies.cluster.broker import ClusterAddress, cluster_address, run_broker
from truthfl.studies.cluster.node import ArrayCall, Digests, facts, parcel_of, pickled
from truthfl.studies.work import Progress, Result, Store, StudyTask, Workers, do_all, interrupts_deferred

START_SECONDS, END_SECONDS = 120.0, 15.0
MOST_STORED = 1 << 29  # bytes of arrays that the cluster keeps for later tasks


class RayWorkers(Workers):
    """The cluster named by `--on`; see `cluster_address`. Connected from the start of the context to its end.

    repeated  the number of tasks that were computed again because their process or node was lost
    """

    def __init__(self, on: str) -> None:
        self.address: ClusterAddress = cluster_address(on)
        if importlib.util.find_spec("ray") is None:
            raise InputError("Ray is not installed; pip install 'truthfl[cluster]' brings it.")
        self.numbers, self.repeated = count(), 0
        self.digests = Digests()
        self.stored: dict[str, int] = {}  # bytes of arrays at the cluster, by digest, the latest used last
        self.connection: Connection | None = None
        self.process: BaseProcess | None = None

    def __enter__(self) -> RayWorkers:
        spawn = multiprocessing.get_context("spawn")
        self.connection, other = spawn.Pipe()
        self.process = spawn.Process(target=run_broker, args=(other, self.address, facts()), name="truthfl-ray")
        with interrupts_deferred():
            self.process.start()
        other.close()
        try:
            if not self.connection.poll(START_SECONDS):
                raise ServiceError(f"{self.address.name} did not answer within {START_SECONDS:g} seconds.")
            self._receive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def compute(self, missing: Mapping[str, StudyTask]) -> Iterator[tuple[str, Result]]:
        running: dict[int, str] = {}
        for address, task in missing.items():
            number = next(self.numbers)
            running[number] = address
            parcel = parcel_of(task, self.digests)
            for digest, array in parcel.arrays.items():
                if digest not in self.stored:
                    self._send(("array", digest, array))
                self.stored[digest] = self.stored.pop(digest, array.nbytes)
            self._send(("do", number, parcel.call, tuple(parcel.arrays)))
            self._forget_oldest(set(parcel.arrays))
        while running:
            kind, number, value = self._receive()
            if number not in running:  # of tasks that nobody waits for, because another one failed
                continue
            if kind == "again":
                self.repeated += 1
                continue
            if kind == "error":
                raise value
            yield running.pop(number), value

    def _forget_oldest(self, needed: set[str]) -> None:
        """Tell the cluster to forget arrays that were not used for long; sent tasks keep theirs."""
        total = sum(self.stored.values())
        oldest = [digest for digest in self.stored if digest not in needed]
        forgotten = []
        while total > MOST_STORED and oldest:
            forgotten.append(oldest.pop(0))
            total -= self.stored.pop(forgotten[-1])
        if forgotten:
            self._send(("forget", forgotten))

    def _send(self, message: tuple[Any, ...]) -> None:
        assert self.connection is not None
        try:
            self.connection.send(message)
        except OSError:
            self._lost()

    def _receive(self) -> tuple[Any, ...]:
        """The next message; an exception if it reports the cluster's refusal or end."""
        assert self.connection is not None
        try:
            message: tuple[Any, ...] = self.connection.recv()
        except (EOFError, OSError):
            self._lost()
        if message[0] == "refused":
            raise message[1]
        if message[0] == "unfit":
            raise InputError(message[1])
        if message[0] == "lost":
            raise ServiceError(message[1])
        return message

    def _lost(self) -> NoReturn:
        raise ServiceError(f"the connection to {self.address.name} was lost; what was done is kept: call again.")

    def _end(self) -> None:
        """End the connection, and with it a cluster that was started for it."""
        if self.connection is None or self.process is None:
            return
        self.connection.close()
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def can_be_planned_elsewhere(job: DataJob) -> bool:
    """Whether the trainings of this job's plan can be computed elsewhere: they need no custom code."""
    return not job.task.is_own and not is_own(job.aggregation)


@contextmanager
def planned_by(workers: Workers, store: Store, progress: Progress | None = None) -> Iterator[None]:
    """In this context, the workers compute trainings that may use all cores, and keep them in the store."""
    digests = Digests()

    def compute(work: str, common: object, own: Sequence[object]) -> list[Result]:
        shared, arrays = pickled(common, digests)
        calls = []
        for each in own:
            content, more = pickled(each, digests)
            calls.append(ArrayCall(work, shared, content, arrays | more))
        return do_all(calls, store, workers=workers, progress=progress)

    with computed_by(compute):
        yield
