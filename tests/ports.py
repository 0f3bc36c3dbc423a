"""Ports for servers that tests start."""

import socket


def free_port():
    """A port at which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
