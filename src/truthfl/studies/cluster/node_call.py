"""The function that Ray calls on a node. It travels by value, so that a node without truthfl can say so."""

from __future__ import annotations

from typing import Any


def call_on_node(expected: dict[str, str], call: bytes, digests: tuple[str, ...], *arrays: Any) -> tuple[str, Any]:
    """The outcome of the task: ("done", its result), ("error", the exception) or ("unfit", why this node cannot)."""
    try:
        from truthfl.studies.cluster.node import do_on_node
    except ImportError as error:
        import socket
        import sys

        host, lacking = socket.gethostname(), error.name or "truthfl"
        if lacking == "truthfl":
            reason = f"truthfl is not installed on the node {host}, for {sys.executable}"
        else:
            reason = f"the node {host} has no module {lacking}, which truthfl needs there"
        return "unfit", f"{reason}; pip install 'truthfl[cluster]' on every node, in the version that is here."
    return do_on_node(expected, call, digests, arrays)
