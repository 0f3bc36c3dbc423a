"""Errors that stop a command with one sentence. Every room may import this module; it imports none.

`InputError` is what the user can mend in her input (exit code 2); `ServiceError` is network, disk, a port in use or a
crashed process (exit code 3).
"""

from __future__ import annotations


class TruthflError(Exception):
    """Base of all errors whose message is one sentence for the user: what, where, and what would do."""


class InputError(TruthflError, ValueError):
    """A value that cannot be used."""


class ServiceError(TruthflError, RuntimeError):
    """Something outside the input failed: network, disk, a port, another process. Trying again may succeed."""


class InfeasibleError(InputError):
    """No assignment exists. `clients` are the positions of those for whom it does not; empty when the budget is why."""

    def __init__(self, message: str, clients: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.clients = clients
