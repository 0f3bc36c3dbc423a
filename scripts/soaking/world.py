"""What all activities of a soak share. An activity is a generator that yields while it waits.

One thread goes through all activities about twenty times a second.
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from scripts.soaking.database import Database
from scripts.soaking.memory import Memory
from scripts.soaking.observer import Observer
from scripts.soaking.processes import Failed, Process, Processes

Result = TypeVar("Result")
Activity = Generator[None, None, Result]
HOST = "127.0.0.1"
PORTS = range(20_000, 30_000)  # below those that systems give to outgoing connections: a server comes back to its own
LONGEST = 420.0  # seconds that an activity waits for anything
REFUSED = 2  # exit code: truthfl cannot do that now


@dataclass
class World:
    """One soak.

    seed          the source of all its draws
    ends_at       no job begins that would last beyond this time, judging by earlier jobs
    acknowledged  the rows that commands reported as written: job, kind of the command
    """

    seed: int
    folder: Path
    database: Database
    observer: Observer
    ends_at: float
    processes: Processes = field(default_factory=Processes)
    memory: Memory = field(default_factory=Memory)
    jobs: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    commands: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[tuple[str, str]] = field(default_factory=Counter)
    receipts: int = 0

    def goes_on(self, longest: float = 0.0) -> bool:
        """Whether there is time for one more job of this duration."""
        return time.monotonic() + longest < self.ends_at

    def draws(self, *of: object) -> random.Random:
        """The draws of one part of the soak, independent of the other parts."""
        return random.Random(f"{self.seed} {' '.join(map(str, of))}")


def until(ready: Callable[[], bool], what: str, longest: float = LONGEST) -> Activity[None]:
    """Wait until this is true."""
    latest = time.monotonic() + longest
    while not ready():
        if time.monotonic() > latest:
            raise Failed(f"{what} took more than {longest:g} s")
        yield


def pause(seconds: float) -> Activity[None]:
    latest = time.monotonic() + seconds
    while time.monotonic() < latest:
        yield


def command(world: World, name: str, folder: Path, *words: object, accepted: tuple[int, ...] = (0,)) -> Activity[int]:
    """Give a truthfl command, again if it was killed; return its exit code, which must be an accepted one."""
    process = world.processes.start(name, "command", [*words], folder)
    yield from until(lambda: process.code is not None, f"truthfl {words[0]} in {folder.name}")
    assert process.code is not None
    if process.code not in accepted:
        raise Failed(f"truthfl {' '.join(map(str, words))} ended with {process.code}: {process.said()[-1500:]}")
    world.commands[str(words[0])] += 1
    world.processes.forget([process])
    return process.code


def ended_well(process: Process) -> bool:
    """Whether it has ended by itself; raise Failed if it did not end well."""
    if process.code not in (None, 0):
        raise Failed(f"{process.name} ended with {process.code}: {process.said()[-2500:]}")
    return process.code == 0


def free_port(draws: random.Random) -> int:
    """A port for a server on which nobody listens."""
    while True:
        port = draws.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) != 0:
                return port
