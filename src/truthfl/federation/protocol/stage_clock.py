"""`StageClock`: how long the server waits in a stage, with the operator's pauses, extensions and end of the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from truthfl.federation.protocol.job_control import SECONDS_BETWEEN_READS, JobControl
from truthfl.federation.protocol.live_status import LiveWriter
from truthfl.ledger.commands import time_text

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.05, 2.0, 1.5  # seconds between two questions to the same nodes


def hold_while_paused(control: JobControl, live: LiveWriter, refresh: Callable[[], None]) -> float:
    """Wait while the job is paused, unless it is ended; return for how many seconds.

    refresh   called now and then, so that who connects meanwhile is known
    """
    control.poll()
    if not control.paused:
        return 0.0
    began = refreshed = time.monotonic()
    live.set_paused(True)
    while control.paused:
        time.sleep(SECONDS_BETWEEN_READS)
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
        """When time is up, on the monotonic clock: by the job's terms or the operator's extension, the later one."""
        until = self.control.extended.get(self.stage)
        if until is None:
            return self._own_deadline
        return max(self._own_deadline, time.monotonic() + (until - datetime.now(UTC)).total_seconds())

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def over(self) -> bool:
        """Whether time is up, or the job was ended; while it is paused, time does not pass."""
        self.control.poll()
        if self.ends_with_job and self.control.ended is not None:
            return True
        return not self.control.paused and not self.seconds_left

    @property
    def interrupted(self) -> bool:
        """Whether a command lets this stage wait no longer for replies: the job is paused, or ends with the stage."""
        return self.control.paused or (self.ends_with_job and self.control.ended is not None)

    def wait(self) -> None:
        """Wait before asking again: at first shortly, then longer, until the deadline or a command at most.

        While the job is paused it waits longer, and the deadline is later by that.
        """
        self._hold()
        end = time.monotonic() + min(self._next_wait, self.seconds_left)
        self._next_wait = min(self._next_wait * GROWTH, LONGEST_WAIT)
        while (seconds := end - time.monotonic()) > 0:
            time.sleep(min(seconds, SECONDS_BETWEEN_READS))
            if self.control.poll():
                break
        self._hold()
        self._show()

    def _hold(self) -> None:
        self._own_deadline += hold_while_paused(self.control, self.live, self.refresh)

    def _show(self) -> None:
        deadline = datetime.now(UTC) + timedelta(seconds=self.seconds_left)
        self.live.begin(self.stage, time_text(deadline))
