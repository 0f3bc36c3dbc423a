"""The operator's commands to a running job, and the server's waiting time in each stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from truthfl.federation.operator.live_status import LiveWriter
from truthfl.ledger.book import Ledger
from truthfl.ledger.command_rows import COMMAND
from truthfl.ledger.commands import (
    APPROVE,
    DISAPPROVE,
    Command,
    CommandLog,
    time_text,
    valid_commands,
)

SECONDS_BETWEEN_READS = 0.3  # of the operator's commands
LONGEST_SLEEP = 0.3  # seconds, while a stage waits


def _tell_nobody(_: Command) -> None:
    pass


class JobEndedError(Exception):
    """The operator ended the job before there was a contract."""


def commanded_answer(ledger: Ledger, job: str, operator_key: str, plan: str) -> bool | None:
    """Whether the operator approved, by a command, the plan with this digest; None without such a command."""
    answer = None
    for _, command in valid_commands(ledger.entries(job, COMMAND), job, operator_key):
        if command.kind in (APPROVE, DISAPPROVE) and command.fields["plan"] == plan:
            answer = command.kind == APPROVE
    return answer


class JobControl:
    """The commands to one job. Without a ledger there are none, as in tests of single stages.

    tell   called with each command that comes while the server runs
    log    the commands read so far
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        job: str = "",
        operator_key: str = "",
        tell: Callable[[Command], None] = _tell_nobody,
    ) -> None:
        self.ledger, self.job, self.tell = ledger, job, tell
        self.log = CommandLog(job, operator_key)
        self._last_row, self._next_read = 0, 0.0
        self._read()

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands read so far, in order."""
        return tuple(command for _, command in self.log.given)

    @property
    def paused(self) -> bool:
        return self.log.state.paused

    @property
    def ended(self) -> Command | None:
        """The command that ended the job; None if there is none."""
        return self.log.state.ended

    @property
    def removed(self) -> Mapping[str, str]:
        """By name: why nothing more is asked of the client, as it stands in rejections."""
        return self.log.state.removed

    @property
    def extended(self) -> Mapping[str, datetime]:
        """By stage: the deadline that the operator set."""
        return self.log.state.extended

    def poll(self, *, at_once: bool = False) -> list[Command]:
        """Read new commands, tell and return them. Without `at_once`, skip this shortly after the last reading."""
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
        known = len(self.log.given)
        for entry in self.ledger.entries(self.job, COMMAND, after=self._last_row):
            self._last_row = entry.sequence
            fault = self.log.add(entry)
            if fault is None:
                continue
            rejection = {"stage": "command", "round": None, "client": None, "node": None}
            reason = f"command {entry.key}: {fault}"
            self.ledger.append(self.job, "rejection", f"command/{entry.key}", rejection | {"reason": reason})
        return [command for _, command in self.log.given[known:]]


FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.05, 2.0, 1.5  # seconds between two questions to the same nodes


def hold_while_paused(control: JobControl, live: LiveWriter, refresh: Callable[[], None]) -> float:
    """Wait while the job is paused, unless it is ended; return the seconds.

    refresh   called at intervals, so that new connections are noticed
    """
    control.poll()
    if not control.paused:
        return 0.0
    began = refreshed = time.monotonic()
    live.set_paused(True)
    while control.paused:
        time.sleep(LONGEST_SLEEP)
        control.poll()
        if time.monotonic() >= refreshed + LONGEST_WAIT:
            refresh()
            refreshed = time.monotonic()
    live.set_paused(False)
    return time.monotonic() - began


class StageClock:
    """The time that is left in one stage.

    stage          one of `live_status`
    seconds        how long the server waits, by the job's terms
    refresh        as in `hold_while_paused`
    ends_with_job  whether its time is up when the operator ends the job
    """

    def __init__(
        self,
        control: JobControl,
        live: LiveWriter,
        stage: str,
        seconds: float,
        refresh: Callable[[], None],
        *,
        ends_with_job: bool = True,
    ) -> None:
        self.control, self.live, self.stage, self.refresh = control, live, stage, refresh
        self.ends_with_job = ends_with_job
        self._own_deadline = time.monotonic() + seconds
        self._next_wait = FIRST_WAIT
        self._show()

    @property
    def deadline(self) -> float:
        """The deadline on the monotonic clock, by the job's terms or the operator's extension, whichever is later."""
        until = self.control.extended.get(self.stage)
        if until is None:
            return self._own_deadline
        return max(self._own_deadline, time.monotonic() + (until - datetime.now(UTC)).total_seconds())

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def over(self) -> bool:
        """Whether time is up or the job was ended. Time does not pass during a pause."""
        self.control.poll()
        if self.ends_with_job and self.control.ended is not None:
            return True
        return not self.control.paused and not self.seconds_left

    @property
    def interrupted(self) -> bool:
        """Whether a command stops this stage from waiting for replies: the job is paused, or ends with the stage."""
        return self.control.paused or (self.ends_with_job and self.control.ended is not None)

    def wait(self) -> None:
        """Wait before asking again, at first shortly, then longer, at most until the deadline or a command.

        A pause prolongs the wait and moves the deadline by the same time.
        """
        self._hold()
        end = time.monotonic() + min(self._next_wait, self.seconds_left)
        self._next_wait = min(self._next_wait * GROWTH, LONGEST_WAIT)
        while (seconds := end - time.monotonic()) > 0:
            time.sleep(min(seconds, LONGEST_SLEEP))
            if self.control.poll():
                break
        self._hold()
        self._show()

    def _hold(self) -> None:
        self._own_deadline += hold_while_paused(self.control, self.live, self.refresh)

    def _show(self) -> None:
        deadline = datetime.now(UTC) + timedelta(seconds=self.seconds_left)
        self.live.begin(self.stage, time_text(deadline))
