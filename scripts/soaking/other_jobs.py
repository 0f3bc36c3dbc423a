"""Jobs in one process, a federation whose participants stay from job to job, and concurrent ledger checks."""

from __future__ import annotations

import http.cookiejar
import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

from scripts.soaking.federation import PLAIN, STEPS, TLS, Site, shares, step_in
from scripts.soaking.job_checks import JobPapers, check_job
from scripts.soaking.kinds import KINDS, NAMES, Kind
from scripts.soaking.world import Activity, World, command, ended_well, pause, until

from truthfl.federation.operator.kept_jobs import kept_job_names

JOB_IN_OUTPUT = re.compile(r", job\s+(\S+)\s*$")
PAGE = re.compile(r"http://\S+")
STAYING = KINDS[0]
SECONDS_BETWEEN_CHECKS = 20.0


def run_in_one_process(world: World, number: int, kind: Kind) -> Activity[None]:
    """A job by `truthfl run`."""
    draws = world.draws("run", number)
    folder = world.folder / f"run-{number}"
    folder.mkdir()
    kind.write(folder, draws.randint(kind.rounds // 2, kind.rounds))
    words = ["run", "job.toml", "--out", "out", "--seed", number, "--ledger", world.database.address]
    run = world.processes.start("run", "run", words, folder)
    yield from until(lambda: ended_well(run), f"{folder.name}, a job of {kind.name}")
    found = JOB_IN_OUTPUT.search(run.said())
    assert found is not None, run.said()
    homes = {name: folder / "out" / "participants" / name for name in NAMES}
    papers = JobPapers(found.group(1), {name: (home, home / "key") for name, home in homes.items()})
    yield from check_job(world, papers, folder)
    world.processes.forget([run])
    world.jobs[f"one process: {kind.name}"] += 1
    shutil.rmtree(folder)


def staying(world: World) -> Activity[None]:
    """Job after job in one operator's folder, with participants who stay; Ada and the operator's page are spared."""
    draws = world.draws("staying")
    site = Site(world, world.folder / "staying", STAYING, draws.choice((TLS, PLAIN)), draws)
    yield from shares(world, site, STAYING.rounds)
    joins = [
        world.processes.start(name, "participant", site.join_words(name, "--stay"), site.folder, name == "Ada")
        for name in NAMES
    ]
    page, number, longest = None, 0, 0.0
    while world.goes_on(longest):
        began = time.monotonic()
        STAYING.write(site.folder, STAYING.rounds, number)
        before = len(kept_job_names(site.served)) if site.served.exists() else 0

        def words(before: int = before, contract: str = ("lceme", "audition")[number % 2]) -> list[object]:
            begun = site.served.exists() and len(kept_job_names(site.served)) > before
            return site.serve_words("--contract", contract, *([] if begun else ["--new"]))

        serve = world.processes.start(f"serve-{number}", "server", words, site.folder)
        yield from until(lambda one=serve: "waiting for" in one.said() or ended_well(one), "the staying server")
        if page is None:
            page_words = ["console", "--out", "served", "--no-browser"]
            page = world.processes.start("console", "page", page_words, site.folder, True)
            joins.append(page)
        yield from pause(draws.uniform(0.0, 6.0))
        job = kept_job_names(site.served)[-1]
        yield from step_in(world, site.folder, job, draws.choice(STEPS), draws)
        yield from until(lambda one=serve: ended_well(one), f"staying, job {number + 1}")
        yield from check_job(world, site.papers(job), site.folder)
        (site.served / "models" / f"{job}-test.npz").unlink()  # the next test set has some of these samples
        for one in joins:
            if one.code is not None:
                ended_well(one)
        world.memory.note("servers, at most", serve.most_kilobytes / 1024)
        world.processes.forget([serve])
        world.jobs["participants who stay"] += 1
        number, longest = number + 1, max(longest, time.monotonic() - began)
    for one in joins:
        one.end()
    yield from until(lambda: all(one.pid is None for one in joins), "leaving")
    world.processes.forget(joins)


def ledger_checks(world: World) -> Activity[None]:
    """`truthfl ledger check` of all rows, repeated while jobs write; it does not end."""
    number = 0
    yield from pause(SECONDS_BETWEEN_CHECKS)
    while True:
        if world.observer.rows:
            number += 1
            yield from command(world, f"check-{number}", world.folder, "ledger", "check", world.database.address)
            (world.folder / f"check-{number}.log").unlink()
        yield from pause(SECONDS_BETWEEN_CHECKS)


def page_visits(log: Path) -> Iterator[str]:
    """The job that an operator's page shows, per request in a browser's way; "" while the page does not answer."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    base = ""
    while True:
        try:
            if not base:
                found = PAGE.search(log.read_text(encoding="utf-8") if log.exists() else "")
                if found is not None:
                    browser.open(found.group(), timeout=5).read()
                    base = found.group().split("?")[0].split("#")[0]
            answer = json.loads(browser.open(f"{base}api/status", timeout=5).read()) if base else {}
            yield str(answer.get("status", {}).get("job", ""))
        except (URLError, OSError):
            yield ""
