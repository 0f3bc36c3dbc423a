"""The process that speaks with Ray, between a study and a cluster.

Ray writes to the terminal, takes signals, and ends its process when a cluster is lost. Here it does so without harm:
the study sees a message or the end of this process.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from truthfl.errors import TruthflError
from truthfl.studies.cluster import node_call
from truthfl.studies.cluster.address import ClusterAddress
from truthfl.studies.cluster.connecting import connect

MOST_ATTEMPTS = 6  # at one task; the first ones may have been lost with a node
PROBE_SECONDS, WAIT_SECONDS = 10.0, 0.2


def run_broker(connection: Connection, address: ClusterAddress, expected: Mapping[str, str]) -> None:
    """Answer the messages of a study until it closes the connection.

    From the study: ("array", digest, array), ("forget", digests), ("do", number, call, digests). To it, at first:
    ("ready",), ("refused", exception) or ("unfit", why). Then ("done", number, result), ("error", number, exception),
    ("again", number, None) for a task that is computed again because its process or node was lost, and ("lost", why) or
    ("unfit", why) if none is computed any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _be_silent()
    with suppress(EOFError, OSError):  # the study has ended
        try:
            ray = connect(address)
        except TruthflError as error:
            connection.send(("refused", error))
            return
        try:
            _serve(connection, ray, dict(expected))
        finally:
            ray.shutdown()


def _be_silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115


@dataclass(eq=False)
class _Sent:
    """A task at a node: its number, how it is called, and how often it was sent."""

    number: int
    arguments: tuple[Any, ...]
    attempts: int = 1


@dataclass(eq=False)
class _RunningTasks:
    """The tasks at the cluster, by Ray's references to their results, and arrays in its object store, by digest."""

    ray: Any
    remote: Any
    sent: dict[Any, _Sent] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)

    def send(self, task: _Sent) -> None:
        self.sent[self.remote.remote(*task.arguments)] = task

    def finished(self) -> list[tuple[_Sent, str, Any]]:
        """Tasks that have ended, with what became of them; those lost with a process or a node are sent again."""
        ended, _ = self.ray.wait(list(self.sent), num_returns=1, timeout=WAIT_SECONDS)
        results = []
        for reference in ended:
            task = self.sent.pop(reference)
            try:
                results.append((task, *self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                if task.attempts >= MOST_ATTEMPTS or isinstance(error, self.ray.exceptions.TaskUnschedulableError):
                    results.append((task, "lost", _reason(error, task.attempts)))
                    continue
                task.attempts += 1
                self.send(task)
                results.append((task, "again", None))
        return results


def _reason(error: Exception, attempts: int) -> str:
    return (
        f"a task was lost {attempts} times ({type(error).__name__}), as happens when processes of a node run out of "
        "memory; what was done is kept: call again, with more memory for each core of a node."
    )


def _serve(connection: Connection, ray: Any, expected: dict[str, str]) -> None:
    ray.cloudpickle.register_pickle_by_value(node_call)
    remote = ray.remote(num_cpus=1, max_retries=0, name="truthfl")(node_call.call_on_node)
    unfit = _unfit_node(ray, remote, expected)
    connection.send(("ready",) if unfit is None else ("unfit", unfit))
    tasks = _RunningTasks(ray, remote)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    while True:
        if not tasks.sent or not messages.empty():
            message = messages.get()
            if message is None:
                return
            _take(tasks, message, expected)
            continue
        for task, status, value in tasks.finished():
            connection.send((status, value) if status in ("lost", "unfit") else (status, task.number, value))


def _take(tasks: _RunningTasks, message: tuple[Any, ...], expected: dict[str, str]) -> None:
    kind, *values = message
    if kind == "array":
        tasks.stored[values[0]] = tasks.ray.put(values[1])
    elif kind == "forget":
        for digest in values[0]:
            tasks.stored.pop(digest, None)
    else:
        number, call, digests = values
        tasks.send(_Sent(number, (expected, call, digests, *(tasks.stored[digest] for digest in digests))))


def _receive(connection: Connection, messages: queue.SimpleQueue[Any]) -> None:
    with suppress(EOFError, OSError):
        while True:
            messages.put(connection.recv())
    messages.put(None)


def _unfit_node(ray: Any, remote: Any, expected: dict[str, str]) -> str | None:
    """Why a node cannot compute; None if all can. Nodes that do not answer or come later are asked with their tasks."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    asked = [
        remote.options(num_cpus=0, scheduling_strategy=OnNode(node, soft=False)).remote(expected, b"", ())
        for node in nodes
    ]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=PROBE_SECONDS) if asked else ([], [])
    for answer in answered:
        with suppress(ray.exceptions.RayError):
            status, value = ray.get(answer)
            if status == "unfit":
                return str(value)
    return None
