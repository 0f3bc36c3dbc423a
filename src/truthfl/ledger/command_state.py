"""What a job's commands amount to: whether it is paused or ended, who is removed, until when stages were extended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from truthfl.ledger.commands import END, EXTEND, PAUSE, REMOVE, RESUME, Command, read_time

REMOVED = "removed by the operator"  # how the reason of a rejection begins


@dataclass(frozen=True)
class CommandState:
    """The state of a job after some commands.

    ended     the first command that ended it; None if there was none
    removed   by name: the reason, as it stands in rejections
    extended  by stage: the deadline, later by the pauses since it was set
    """

    paused: bool = False
    ended: Command | None = None
    removed: Mapping[str, str] = field(default_factory=dict)
    extended: Mapping[str, datetime] = field(default_factory=dict)


def state_after(commands: Iterable[Command]) -> CommandState:
    """The state after these commands, which are valid and in order."""
    paused_since: datetime | None = None
    ended: Command | None = None
    removed: dict[str, str] = {}
    extended: dict[str, datetime] = {}
    for command in commands:
        if command.kind == PAUSE and paused_since is None:
            paused_since = command.time
        elif command.kind == RESUME and paused_since is not None:
            length = max(command.time - paused_since, timedelta())
            extended = {stage: until + length for stage, until in extended.items()}
            paused_since = None
        elif command.kind == END:
            ended = ended or command
        elif command.kind == REMOVE:
            removed.setdefault(command.fields["client"], removal_reason(command))
        elif command.kind == EXTEND:
            extended[command.fields["stage"]] = read_time(command.fields["until"])
    return CommandState(paused_since is not None and ended is None, ended, removed, extended)


def removal_reason(command: Command) -> str:
    """Why nothing is asked of a removed client any more."""
    return f"{REMOVED}{command.reason}"
