"""What can be wrong with what we are given: one sentence each. Every room may look here; this room looks nowhere."""

from __future__ import annotations


class InputError(ValueError):
    """A value that cannot be used. The message says what, where, and what would do."""


class InfeasibleError(InputError):
    """No assignment exists. `clients` are the positions of those for whom it does not; empty when the budget is why."""

    def __init__(self, message: str, clients: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.clients = clients
