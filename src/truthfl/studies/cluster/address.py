"""`ClusterAddress`: which cluster `--on` names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from truthfl.errors import InputError

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
    """The cluster that a person names: ray, ray://HOST:PORT or HOST:PORT."""
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
