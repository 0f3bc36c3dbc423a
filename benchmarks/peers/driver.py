"""Runs contenders in separate processes, alternating by block, so that other load affects all of them alike.

All have two threads and two cores.
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

ANSWER_TIMEOUT = 180.0  # seconds
COMPARED_AFTER = 2  # rounds after the first one until parameters are compared
COMPARED_UP_TO = 100  # clients
PAUSE = 0.03  # seconds before a block, until the threads of the previous contender are idle


class AbsentError(Exception):
    """A contender cannot take part; the message has the reason."""


@dataclass(frozen=True)
class Contender:
    """A contender.

    module   its module in this package
    alone    whether it runs after the others, because its processes are busy between blocks
    threads  of NumPy's BLAS: one for the plain loops. With two, small matrices gain less than a tenth, and lose a
             hundredfold if another process needs a core
    """

    name: str
    module: str
    is_peer: bool = True
    kernel: str = "auto"
    alone: bool = False
    threads: int = THREADS


@dataclass(frozen=True)
class Plan:
    """A setting and its measurement: `blocks` blocks of `rounds` rounds; after the second, at most `seconds` in all."""

    work: Work
    rounds: int
    blocks: int
    seconds: float


def environment(kernel: str = "auto", threads: int = THREADS) -> dict[str, str]:
    """Environment variables that set the number of threads of BLAS and OpenMP, and the kernel."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(counts, str(threads)), "TRUTHFL_KERNEL": kernel, "PYTHONWARNINGS": "ignore"}


class Process:
    """The process of a contender."""

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

    def ask(self, **request) -> dict:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AbsentError(self._reason()) from None
        return self._answer()

    def block(self, rounds: int) -> None:
        time.sleep(PAUSE)
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
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_TIMEOUT)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        reason = self._reason() if ready else f"no answer within {ANSWER_TIMEOUT:g} seconds"
        self.kill()
        raise AbsentError(reason)

    def _reason(self) -> str:
        """The last line of its standard error, without the type of the error."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1].removeprefix("ModuleNotFoundError: ") if lines else "it ended without a word"


def measure(plan: Plan, contenders: list[Contender], absent: dict[str, str], report) -> list[dict]:
    """One row per contender; contenders that cannot take part are added to `absent`, with the reason."""
    together, alone = ([c for c in contenders if c.alone is flag] for flag in (False, True))
    return [row for group in (together, *([c] for c in alone)) for row in _take_turns(plan, group, absent, report)]


def _take_turns(plan: Plan, group: list[Contender], absent: dict[str, str], report) -> list[dict]:
    running: dict[str, Process] = {}
    neighbours, others = Neighbours(), None
    try:
        for contender in group:
            if contender.name not in absent:
                report(f"{plan.work.label}: {contender.name}")
                with _or_absent(absent, contender.name):
                    running[contender.name] = Process(contender, plan.work)
        for block in range(plan.blocks):
            for name, process in running.items():
                if name not in absent and (block < 2 or process.spent < plan.seconds):
                    with _or_absent(absent, name):
                        process.block(plan.rounds)
        if not any(contender.alone for contender in group):  # their child processes are not known here
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
