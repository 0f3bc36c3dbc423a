"""Connects this process to a Ray cluster, or starts one.

Only `broker` calls this, in a process of its own.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, ServiceError
from truthfl.studies.cluster.address import ClusterAddress, cluster_address

LOOPBACK = "127.0.0.1"
SECONDS = 5.0  # to be reached
OBJECT_STORE = 1 << 30  # bytes of memory for a cluster that is started here, at most
ATTEMPTS = 3  # a busy head may take longer to start a server for this client than Ray waits for it
NO_SERVER = "Initialization failure from server"  # how Ray says that
SETTINGS = {  # of Ray: nothing is reported to its makers, and no advice is given
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


def connect(address: ClusterAddress) -> Any:
    """Ray, connected; `InputError` or `ServiceError` if it cannot be."""
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
    """The cluster that RAY_ADDRESS names, or that was started last by `ray start` on this machine and still runs."""
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
    """Raise `ServiceError` unless there is a server of Ray's kind; Ray itself would wait long, or end this process."""
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
    """The error for what Ray says when it refuses to connect."""
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
