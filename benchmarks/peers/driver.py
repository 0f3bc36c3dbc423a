"""Starts contenders, each in a process of its own, and lets them take turns, block by block.

So whatever else the machine does hits all of them alike. All have two threads and two cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from benchmarks.peers.neighbours import Neighbours
from benchmarks.peers.workload import THREADS, Work

PATIENCE = 180.0  # seconds for one answer
COMPARED_AFTER = 2  # rounds, beside the first
COMPARED_UP_TO = 100  # clients
REST = 0.03  # seconds in which the threads of the one before fall asleep


class AbsentError(Exception):
    """Why a contender does not take part."""


@dataclass(frozen=True)
class Contender:
    """`module` is its file here; `alone`: it keeps processes busy between blocks, so it runs after the others.

    NumPy's BLAS has one thread for the plain loops: two gain less than a tenth on matrices this small, and lose a
    hundredfold, waiting for each other, when something else needs a core.
    """

    name: str
    module: str
    is_peer: bool = True
    kernel: str = "auto"
    alone: bool = False
    threads: int = THREADS


@dataclass(frozen=True)
class Plan:
    """How long to measure a setting: blocks of so many rounds, but after the second no more than `seconds` in all."""

    work: Work
    rounds: int
    blocks: int
    seconds: float


def environment(kernel: str = "auto", threads: int = THREADS) -> dict[str, str]:
    """So many threads for whatever counts threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(counts, str(threads)), "TRUTHFL_KERNEL": kernel, "PYTHONWARNINGS": "ignore"}


class Process:
    """A contender at work."""

    def __init__(self, contender: Contender, work: Work) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        command = [sys.executable, "-m", "benchmarks.peers.worker", contender.module]
        self.process = subprocess.Popen(
            [*command, json.dumps(dataclasses.asdict(work))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(contender.kernel, contender.threads),
            start_new_session=True,
        )
        self.times: list[float] = []
        self.spent = 0.0
        self.import_s = self._answer()["import_s"]
        self.first_s = self.ask(rounds=1)["seconds"]
        self.distance = None
        if work.clients <= COMPARED_UP_TO:
            self.ask(rounds=COMPARED_AFTER)
            self.distance = self.ask(compare=True)["distance"]

    def ask(self, **wish) -> dict:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(wish) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AbsentError(self._reason()) from None
        return self._answer()

    def block(self, rounds: int) -> None:
        time.sleep(REST)
        seconds = self.ask(rounds=rounds)["seconds"]
        self.times.append(seconds)
        self.spent += seconds * rounds

    def end(self) -> None:
        try:
            self.process.communicate('{"quit": true}\n', timeout=30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.kill()
        self.errors.close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _answer(self) -> dict:
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        reason = self._reason() if ready else f"no answer within {PATIENCE:g} seconds"
        self.kill()
        raise AbsentError(reason)

    def _reason(self) -> str:
        """The last line that it wrote on standard error, without the type of the error."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1].removeprefix("ModuleNotFoundError: ") if lines else "it ended without a word"


def measure(plan: Plan, contenders: list[Contender], absent: dict[str, str], tell) -> list[dict]:
    """One row per contender; those who cannot take part are put into `absent`, with the reason."""
    together, alone = ([c for c in contenders if c.alone is it] for it in (False, True))
    return [row for group in (together, *([c] for c in alone)) for row in _take_turns(plan, group, absent, tell)]


def _take_turns(plan: Plan, group: list[Contender], absent: dict[str, str], tell) -> list[dict]:
    running: dict[str, Process] = {}
    neighbours, others = Neighbours(), None
    try:
        for contender in group:
            if contender.name not in absent:
                tell(f"{plan.work.label}: {contender.name}")
                with _or_absent(absent, contender.name):
                    running[contender.name] = Process(contender, plan.work)
        for block in range(plan.blocks):
            for name, process in running.items():
                if name not in absent and (block < 2 or process.spent < plan.seconds):
                    with _or_absent(absent, name):
                        process.block(plan.rounds)
        if not any(contender.alone for contender in group):  # who have processes of their own, not known here
            others = neighbours.cores([process.process.pid for process in running.values()])
    finally:
        for process in running.values():
            process.end()
    return [_row(name, process, plan) | {"others_cores": others} for name, process in running.items() if process.times]


@contextlib.contextmanager
def _or_absent(absent: dict[str, str], name: str):
    try:
        yield
    except AbsentError as error:
        absent[name] = str(error)


def _row(name: str, process: Process, plan: Plan) -> dict:
    return {
        "contender": name,
        "clients": plan.work.clients,
        "local_steps": plan.work.local_steps,
        "setting": plan.work.label,
        "best_ms": 1e3 * min(process.times),
        "median_ms": 1e3 * statistics.median(process.times),
        "blocks": len(process.times),
        "rounds_per_block": plan.rounds,
        "import_s": process.import_s,
        "first_round_s": process.first_s,
        "startup_s": process.import_s + process.first_s,
        "distance_from_truthfl": process.distance,
    }
