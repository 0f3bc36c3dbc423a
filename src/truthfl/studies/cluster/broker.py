"""The process that talks to Ray, between a study and a cluster that it connects to or starts.

Ray writes to the terminal, handles signals, and ends its process when a cluster is lost. Here it does so without harm:
the study sees a message or the end of this process.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.studies.cluster import node_call

CLIENT = "ray://"
CLIENT_PORT = 10001
_PLACE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")


@dataclass(frozen=True)
class ClusterAddress:
    """A cluster.

    place   HOST:PORT; "" for a cluster that runs here, or is started here
    client  whether the port is that of Ray's client server, so that this machine need not be a node of the cluster
    """

    place: str = ""
    client: bool = False

    @property
    def for_ray(self) -> str:
        """The address as Ray wants it; "" if there is none."""
        return f"{CLIENT if self.client else ''}{self.place}"

    @property
    def name(self) -> str:
        """The cluster, for messages."""
        return f"the Ray cluster at {self.for_ray}" if self.place else "the Ray cluster of this machine"


def cluster_address(on: str) -> ClusterAddress:
    """The cluster named by the user: ray, ray://HOST:PORT or HOST:PORT."""
    if on == "ray":
        return ClusterAddress()
    client, place = on.startswith(CLIENT), on.removeprefix(CLIENT).rstrip("/")
    if client and ":" not in place and place:
        place = f"{place}:{CLIENT_PORT}"
    found = _PLACE.fullmatch(place)
    if found is None or not 0 < int(found[2]) < 65536:
        raise InputError(
            f"on is {on!r}; it must be ray for a cluster on this machine, ray://HOST:PORT for one elsewhere (usually "
            f"port {CLIENT_PORT}), or HOST:PORT of the head of one to which this machine belongs."
        )
    return ClusterAddress(place, client)


LOOPBACK = "127.0.0.1"
SECONDS = 5.0  # to connect
OBJECT_STORE = 1 << 30  # most bytes of memory for a cluster that is started here
ATTEMPTS = 3  # a busy head may take longer to start a server for this client than Ray waits
NO_SERVER = "Initialization failure from server"  # Ray's message for this
SETTINGS = {  # of Ray: no usage reports, no advice
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


def connect(address: ClusterAddress) -> Any:
    """Ray, connected; `InputError` or `ServiceError` if that fails."""
    os.environ.update(SETTINGS)
    if not address.place:
        found = running_cluster()
        if found is None:
            return _start_here()
        address = found
    _require_reached(address)
    import ray

    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            ray.init(address.for_ray, log_to_driver=False, logging_level="CRITICAL", configure_logging=False)
            break
        except Exception as error:
            if attempts_left == 0 or NO_SERVER not in str(error):
                raise refusal(address, str(error), ray.__version__) from None
    return ray


def running_cluster() -> ClusterAddress | None:
    """The cluster in RAY_ADDRESS, or the one last started by `ray start` on this machine that still runs."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named == "local":
        return None
    if named and named != "auto":
        return cluster_address(named)
    try:
        place = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text().strip()
        last = cluster_address(place)
        _require_reached(last)
    except (OSError, InputError, ServiceError):
        return None
    return last


def _start_here() -> Any:
    import ray

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        ray.init(
            "local",
            _node_ip_address=LOOPBACK,  # Ray has no passwords
            include_dashboard=False,
            object_store_memory=min(OBJECT_STORE, memory // 4),
            log_to_driver=False,
            logging_level="CRITICAL",
            configure_logging=False,
        )
    except Exception as error:
        raise ServiceError(f"Ray could not be started on this machine ({_first_line(str(error))}).") from None
    return ray


def _require_reached(address: ClusterAddress) -> None:
    """Raise `ServiceError` unless a Ray server answers; Ray itself would wait long, or end this process."""
    host, _, port = address.place.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS)):
            pass
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise ServiceError(
            f"{address.name} is not reached ({reason}); check the address, and on its head that `ray status` answers."
        ) from None
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return
    import grpc

    with closing(grpc.insecure_channel(address.place)) as channel:
        try:
            grpc.channel_ready_future(channel).result(SECONDS)
        except grpc.FutureTimeoutError:
            raise ServiceError(
                f"what answers at {address.for_ray} is no Ray cluster; unless other ports were chosen, Ray's "
                "client server has port 10001 and its head 6379."
            ) from None


def refusal(address: ClusterAddress, message: str, own_ray: str) -> InputError | ServiceError:
    """The error for Ray's message when it refuses to connect."""
    if "ersion" in message and ("match" in message or "same" in message):
        rays, pythons = re.findall(r"Ray: *(\S+)", message), re.findall(r"Python: *(\S+)", message)
        there = f"Ray {rays[0]} and Python {pythons[0]}" if rays and pythons else "another Ray or Python"
        here = f"Ray {own_ray}" + (f" and Python {pythons[1]}" if len(pythons) > 1 else "")
        return InputError(f"{address.name} has {there}, this machine {here}; they must be the same.")
    if "raylet" in message.lower() and not address.client:
        return InputError(
            f"this machine is no node of {address.name}; name ray://HOST:10001, or add it: "
            f"ray start --address {address.place}."
        )
    reason = _last_line(message) if NO_SERVER in message else _first_line(message)
    return ServiceError(f"{address.name} did not let this machine in ({reason}).")


def _first_line(message: str) -> str:
    return _lines(message)[0].rstrip(".")


def _last_line(message: str) -> str:
    return _lines(message)[-1].rstrip(".")


def _lines(message: str) -> list[str]:
    return [line.strip() for line in message.splitlines() if line.strip()] or ["it does not say why"]


MOST_ATTEMPTS = 6  # at one task; the first ones may have been lost with a node
PROBE_SECONDS, WAIT_SECONDS = 10.0, 0.2


def run_broker(connection: Connection, address: ClusterAddress, expected: Mapping[str, str]) -> None:
    """Answer the messages of a study until it closes the connection.

    From the study: ("array", digest, array), ("forget", digests), ("do", number, call, digests). To the study, first
    ("ready",), ("refused", exception) or ("unfit", why). Then ("done", number, result) or ("error", number, exception).
    ("again", number, None) means that a task is computed again because its process or node was lost. ("lost", why) or
    ("unfit", why) means that no more tasks are computed.
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
    """A task at a node: its number, its call, and how often it was sent."""

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
        """Finished tasks with their outcomes; tasks lost with a process or a node are sent again."""
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
    """Why a node cannot compute; None if all can. Nodes that answer late or join later are asked with their tasks."""
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
