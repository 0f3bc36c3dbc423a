"""`JobControl`: the operator's commands to a running job, as its server reads them in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from truthfl.ledger.book import Ledger
from truthfl.ledger.command_rows import KIND
from truthfl.ledger.command_state import CommandState, state_after
from truthfl.ledger.commands import APPROVE, DISAPPROVE, Command, next_fault, read_command, valid_commands

SECONDS_BETWEEN_READS = 0.3


def _tell_nobody(_: Command) -> None:
    pass


class JobEndedError(Exception):
    """The operator ended the job before there was a contract."""


def commanded_answer(ledger: Ledger, job: str, operator_key: str, plan: str) -> bool | None:
    """Whether the operator approved, by a command, the plan with this digest; None if no command is about it."""
    answer = None
    for _, command in valid_commands(ledger.entries(job, KIND), job, operator_key):
        if command.kind in (APPROVE, DISAPPROVE) and command.fields["plan"] == plan:
            answer = command.kind == APPROVE
    return answer


class JobControl:
    """The commands to one job. Without a ledger there are none, as in tests of single stages.

    tell   called with each command that comes while the server runs
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        job: str = "",
        operator_key: str = "",
        tell: Callable[[Command], None] = _tell_nobody,
    ) -> None:
        self.ledger, self.job, self.operator_key, self.tell = ledger, job, operator_key, tell
        self.state = CommandState()
        self._commands: list[Command] = []
        self._last_row, self._next_read = 0, 0.0
        self._read()

    @property
    def commands(self) -> tuple[Command, ...]:
        """Those that were read, in order."""
        return tuple(self._commands)

    @property
    def paused(self) -> bool:
        return self.state.paused

    @property
    def ended(self) -> Command | None:
        """The command that ended the job; None if there is none."""
        return self.state.ended

    @property
    def removed(self) -> Mapping[str, str]:
        """By name: why nothing is asked of her any more, as it stands in rejections."""
        return self.state.removed

    @property
    def extended(self) -> Mapping[str, datetime]:
        """By stage: the deadline that the operator gave."""
        return self.state.extended

    def poll(self, *, at_once: bool = False) -> list[Command]:
        """Read new commands, unless that was done a moment ago or `at_once`; tell and return them."""
        if self.ledger is None or (not at_once and time.monotonic() < self._next_read):
            return []
        new = self._read()
        for command in new:
            self.tell(command)
        return new

    def require_not_ended(self) -> None:
        """Raise `JobEndedError` if the job was ended."""
        self.poll(at_once=True)
        if self.ended is not None:
            raise JobEndedError

    def _read(self) -> list[Command]:
        """Read new rows; those that are not the operator's are refused in the ledger, once."""
        if self.ledger is None:
            return []
        self._next_read = time.monotonic() + SECONDS_BETWEEN_READS
        new: list[Command] = []
        for entry in self.ledger.entries(self.job, KIND, after=self._last_row):
            self._last_row = entry.sequence
            last = new[-1] if new else self._commands[-1] if self._commands else None
            fault = next_fault(entry.document, self.job, self.operator_key, last)
            if fault is None:
                new.append(read_command(entry.document))
                continue
            rejection = {"stage": "command", "round": None, "client": None, "node": None}
            reason = f"command {entry.key}: {fault}"
            self.ledger.append(self.job, "rejection", f"command/{entry.key}", rejection | {"reason": reason})
        if new:
            self._commands += new
            self.state = state_after(self._commands)
        return new
