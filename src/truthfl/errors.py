"""Exceptions whose message is one sentence for the user, and the exit codes of all commands.

On the command line, `InputError` exits with code 2 and `ServiceError` with code 3.
"""

from __future__ import annotations


class TruthflError(Exception):
    """Base class. The message says what is wrong, where, and what would be valid."""


class InputError(TruthflError, ValueError):
    """The user's input is invalid: an argument, a file, a document."""


class ServiceError(TruthflError, RuntimeError):
    """Network, disk, a port or another process failed, not the input. Trying again may succeed."""


class InfeasibleError(InputError):
    """No assignment exists. `clients`: positions of clients without one; empty if the budget is the reason."""

    def __init__(self, message: str, clients: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.clients = clients


FAILED = 1  # a job failed, or a check found a fault
BAD_INPUT = 2
SERVICE_FAILED = 3  # network, disk, a port in use, a crashed process
INTERRUPTED = 130
