"""The loop of a soak: activities, kills, samples of memory; then the last checks and the report."""

from __future__ import annotations

import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.process_memory import most_megabytes
from scripts.soaking.database import Database
from scripts.soaking.federation import federation
from scripts.soaking.killer import WEIGHTS, Killer
from scripts.soaking.kinds import KINDS, Kind
from scripts.soaking.memory import Growth
from scripts.soaking.observer import Observer
from scripts.soaking.other_jobs import ledger_checks, page_visits, run_in_one_process, staying
from scripts.soaking.private_postgresql import PrivateServer
from scripts.soaking.processes import Failed
from scripts.soaking.world import Activity, World, command

from truthfl.federation.operator.kept_jobs import kept_job_names
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check_receipt

TICK = 0.05
LAST_CHECKS = 10.0  # seconds, approximately
TOLD_EVERY = 10.0
SPARED = {"participant": "a participant who stays", "page": "the operator's page"}


@dataclass(frozen=True)
class SoakResult:
    """How a soak went; `faults` is empty if all held."""

    seconds: float
    jobs: dict[str, int]
    commands: int
    kills: dict[str, int]
    stages: dict[str, int]
    rows: int
    receipts: int
    lost: int
    doubled: int
    growths: list[Growth]
    faults: list[str]

    def table(self) -> str:
        """The work and its results, one line each."""
        by = ", ".join(f"{role} {self.kills[role]}" for role in WEIGHTS if role in self.kills)
        in_stages = ", ".join(f"{stage} {count}" for stage, count in sorted(self.stages.items()))
        lines = [
            ("minutes", f"{self.seconds / 60:.1f}", ""),
            ("jobs", sum(self.jobs.values()), ""),
            *((f"  {kind}", count, "") for kind, count in sorted(self.jobs.items())),
            ("commands", self.commands, "invite, pause, end, settle, ledger check and others"),
            ("kills", sum(self.kills.values()), by),
            ("  of a job's processes", sum(self.stages.values()), in_stages),
            ("rows", self.rows, ""),
            ("receipts that hold", self.receipts, ""),
            ("lost", self.lost, ""),
            ("doubled", self.doubled, ""),
        ]
        for one in self.growths:
            verdict = f"MB, {one.late:.1f} at the end; flat is up to {one.most:.1f}{'' if one.is_flat else ': GREW'}"
            lines.append((f"memory: {one.name}", f"{one.early:.1f}", verdict))
        return "\n".join(f"{name:36}{value!s:>9}  {more}".rstrip() for name, value, more in lines)

    def sentence(self, seed: int) -> str:
        return (
            f"{sum(self.jobs.values())} jobs, {sum(self.kills.values())} kills, {self.rows} rows, {self.lost} lost, "
            f"{self.doubled} doubled, memory flat (seed {seed})."
        )


def run_soak(
    server: PrivateServer, folder: Path, seed: int, seconds: float, kill_every: float, *, gently: bool = False
) -> SoakResult:
    """Run the soak in this folder; no process is left, whatever happens."""
    began = time.monotonic()
    database = Database(server)
    observer = Observer(server.address, folder / "observed.tsv")
    world = World(seed, folder, database, observer, began + max(seconds - LAST_CHECKS, 0.5 * seconds))
    killer = Killer(seed, kill_every, folder / "kills.tsv")
    faults: list[str] = []
    try:
        _loop(world, killer, gently=gently)
    except Failed as failure:
        faults.append(str(failure))
    except Exception as error:
        (folder / "failure.log").write_text(traceback.format_exc(), encoding="utf-8")
        faults.append(f"{type(error).__name__}: {error}; failure.log says where")
    except BaseException:
        _end(world)
        raise
    lost, doubled, growths = 0, 0, world.memory.growths()
    if not faults:
        lost, doubled = _last_checks(world, faults)
        faults += [f"{one.name} grew from {one.early:.1f} to {one.late:.1f} MB" for one in growths if not one.is_flat]
    faults += [f"process {pid} was left behind" for pid in _end(world)]
    return SoakResult(
        time.monotonic() - began,
        dict(world.jobs),
        world.commands.total(),
        dict(killer.kills),
        dict(killer.stages),
        observer.rows,
        world.receipts,
        lost,
        doubled,
        growths,
        faults,
    )


def series(world: World, *begins: Callable[[World, int, Kind], Activity[None]]) -> Activity[None]:
    """Jobs one after another, started by these in turn, of all kinds in the seed's order."""
    kinds: list[Kind] = []
    longest = 0.0
    for number in itertools.count(1):
        if not world.goes_on(longest):
            return
        began, begin = time.monotonic(), begins[number % len(begins)]
        if not kinds:
            kinds = world.draws(begin.__name__, number).sample(KINDS, len(KINDS))
        yield from begin(world, number, kinds.pop())
        longest = max(longest, time.monotonic() - began)


def _loop(world: World, killer: Killer, *, gently: bool) -> None:
    """Go through all activities until they are done; with `gently`, two jobs at a time instead of three."""
    others = [(run_in_one_process, federation)] if gently else [(federation,), (run_in_one_process,)]
    activities: list[Activity[None]] = [staying(world), *(series(world, *one) for one in others)]
    checks = ledger_checks(world)
    visits = page_visits(world.folder / "staying" / "console.log")
    looked = told = time.monotonic()
    while activities:
        world.processes.look()
        world.database.look()
        now = time.monotonic()
        if now < world.ends_at:
            killer.look(world.processes, world.database)
        for one in list(activities):
            try:
                next(one)
            except StopIteration:
                activities.remove(one)
        next(checks)
        if now > looked + 1.0:
            looked = now
            world.observer.look()
            _sample(world, visits)
        if now > told + TOLD_EVERY:
            told = now
            _tell(world, killer)
        time.sleep(TICK)


def _sample(world: World, visits: Iterator[str]) -> None:
    """Look at the operator's page, as a browser does, and note the memory of the processes."""
    world.memory.sample("the soak itself", "self")
    if world.database.is_up:
        shown = next(visits)
        if shown and shown not in kept_job_names(world.folder / "staying" / "served"):
            raise Failed(f"the operator's page shows job {shown}, which is not in the operator's folder")
        world.memory.note("a process of PostgreSQL", world.database.kilobytes() / 1024)
    for one in world.processes.all:
        if one.pid is not None and one.spared:
            world.memory.sample(SPARED[one.role], one.pid)
        if one.pid is not None and one.role == "server":
            one.most_kilobytes = max(one.most_kilobytes, int(1024 * most_megabytes(one.pid)))


def _tell(world: World, killer: Killer) -> None:
    running = sum(one.pid is not None for one in world.processes.all)
    print(
        f"{time.monotonic() - killer.began:6.0f} s: {world.jobs.total()} jobs, {killer.kills.total()} kills, "
        f"{world.observer.rows} rows, {running} processes",
        file=sys.stderr,
        flush=True,
    )


def _last_checks(world: World, faults: list[str]) -> tuple[int, int]:
    """Check that all known rows are there once; return how many are lost and doubled."""
    world.observer.look()
    lost, doubled = world.observer.lost(), world.observer.doubled()
    begun_twice = world.observer.jobs - world.names
    doubled += [f"job {name} was begun, and is none that was asked for" for name in begun_twice]
    with open_for_reading(world.database.address) as ledger:
        entries = ledger.entries()
    for path in sorted((world.folder / "receipts").glob("*.json")):
        fault = check_receipt(json.loads(path.read_bytes()), entries)
        if fault is not None:
            lost.append(f"{path.name}: {fault}")
    try:
        for _ in command(world, "last-check", world.folder, "ledger", "check", world.database.address):
            world.processes.look()
            time.sleep(TICK)
    except Failed as failure:
        faults.append(str(failure))
    faults += lost + doubled
    return len(lost), len(doubled)


def _end(world: World) -> list[int]:
    """End all processes; return the ids of processes that were left behind."""
    world.observer.close()
    world.processes.end()
    return world.processes.left_behind()
