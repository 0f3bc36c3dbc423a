"""Random kills of any process, drawn from the seed and logged."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from scripts.soaking.database import Database
from scripts.soaking.processes import Process, Processes

from truthfl.federation.operator.live_status import read_live_status

WEIGHTS = {"server": 4, "participant": 4, "run": 4, "page": 1, "command": 1, "postmaster": 1, "backend": 2}
MOST_KILLS = {"offering": 2, "labeling": 2, "auditioning": 2, "training": 3, "testing": 2, "in one process": 3}
"""The most kills of one command in each of these stages, so that it can end; in other stages, such as planning, one."""
BUSY_WEIGHT = 4  # of those in these stages, which are short
LONGEST_PAUSE = 2.0  # until a killed process is started again


class Killer:
    """Kills one process at a time, with random pauses in between.

    seconds  the mean pause
    """

    def __init__(self, seed: int, seconds: float, log: Path) -> None:
        self.draws = random.Random(f"{seed} kills")
        self.seconds, self.log = seconds, log
        self.began = time.monotonic()
        self.next = self.began + self._pause()
        self.kills: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()

    def look(self, processes: Processes, database: Database) -> None:
        """Kill something if it is time."""
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + self._pause()
        targets: list[tuple[str, Process | None, str]] = []
        for one in processes.all:
            if not one.spared and one.code is None and one.has_worked():
                stage = _stage(one)
                if one.killed_in[stage] < MOST_KILLS.get(stage, 1):
                    targets.append((one.role, one, stage))
        if targets and database.is_up:  # otherwise it would be down whenever there is nothing else to kill
            targets += [("postmaster", None, ""), ("backend", None, "")]
        weights = [WEIGHTS[role] * (BUSY_WEIGHT if stage in MOST_KILLS else 1) for role, _, stage in targets]
        choice, again_at = self.draws.random(), now + self.draws.uniform(0.0, LONGEST_PAUSE)
        role, target, stage = self.draws.choices(targets, weights)[0] if targets else ("", None, "")
        if role == "postmaster":
            database.kill(again_at)
            self._note(role, "PostgreSQL", "")
        elif role == "backend":
            title = database.kill_child(int(choice * 1000))
            if title is not None:
                self._note(role, title, "")
        elif target is not None:
            target.kill(again_at)
            if target.start_at is not None:
                target.killed_in[stage] += 1
                self._note(role, f"{target.folder.name}/{target.name}", stage)

    def _pause(self) -> float:
        return self.draws.expovariate(1.0 / self.seconds)

    def _note(self, role: str, name: str, stage: str) -> None:
        self.kills[role] += 1
        if stage:
            self.stages[stage] += 1
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{time.monotonic() - self.began:8.2f}\t{role}\t{name}\t{stage}\n")


def _stage(target: Process) -> str:
    """The stage of this process's job, from its server's latest record."""
    try:
        status = read_live_status(target.folder / "served") or read_live_status(target.folder / "out")
    except Exception:  # the file may not be there yet
        status = None
    if status is None:
        return "in one process" if target.role == "run" else "starting"
    return status.stage
