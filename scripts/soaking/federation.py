"""A soak's federation: processes of `truthfl serve` and `truthfl join` on loopback, and an operator who intervenes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from scripts.soaking.job_checks import JobPapers, check_job
from scripts.soaking.kinds import NAMES, Kind
from scripts.soaking.processes import Failed, Process
from scripts.soaking.world import HOST, REFUSED, Activity, World, command, ended_well, free_port, pause, until

from truthfl.certificates import make_certificates
from truthfl.federation.operator.kept_jobs import kept_job_names
from truthfl.ledger.signing import new_key, write_key

SECONDS_FOR_RECEIPTS = 20.0
INTERRUPTED = 130
TLS, INVITED, PLAIN = "TLS and keys", "TLS and invitations", "loopback without TLS"
ENTRANCES = (TLS, INVITED, PLAIN)
STEPS = ("nothing", "pause", "extend", "remove", "end")


class Site:
    """The folder of one federation: job, keys, shares, the operator's folder `served`, and a home for each."""

    def __init__(self, world: World, folder: Path, kind: Kind, entrance: str, draws: random.Random) -> None:
        self.world, self.folder, self.kind, self.entrance = world, folder, kind, entrance
        self.port = free_port(draws)
        folder.mkdir(parents=True)
        if entrance != PLAIN:
            make_certificates(folder / "keys")
            write_key(new_key(), folder / "keys" / "operator", "operator")
        for name in NAMES if entrance != INVITED else ():
            write_key(new_key(), folder / "people" / name, name)

    @property
    def served(self) -> Path:
        return self.folder / "served"

    def serve_words(self, *more: object) -> list[object]:
        keys = [] if self.entrance == PLAIN else ["--keys", "keys"]
        people = [] if self.entrance == INVITED else ["--participants", "people"]
        where = ["--host", HOST, "--port", self.port, "--out", "served", "--ledger", self.world.database.address]
        return ["serve", "job.toml", *keys, *people, *where, "--yes", "--linger", 1, *more]

    def home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    def key(self, name: str) -> Path:
        return self.home(name) / "key" if self.entrance == INVITED else self.folder / "people" / name

    def join_words(self, name: str, *more: object) -> list[object]:
        root = [] if self.entrance == PLAIN else ["--root", "keys/ca.crt"]
        invited = [f"{name}.invitation"]
        known = ["--server", f"{HOST}:{self.port}", *root, "--name", name, "--key", f"people/{name}"]
        data = ["--data", f"shares/{name}.{self.kind.shares}", "--home", self.home(name), *self.kind.task_words]
        return ["join", *(invited if self.entrance == INVITED else known), *data, "--accept", "--no-browser", *more]

    def papers(self, job: str) -> JobPapers:
        return JobPapers(job, {name: (self.home(name), self.key(name)) for name in NAMES})


def shares(world: World, site: Site, rounds: int) -> Activity[None]:
    """Write the job and give each participant their data; each kind of data is made once."""
    site.kind.write(site.folder, rounds)
    kept = world.folder / "shares" / site.kind.name
    if not kept.exists():
        made = kept.with_name(f"{kept.name} in {site.folder.name}")
        yield from command(world, f"share-{site.folder.name}", site.folder, "share", "job.toml", "--out", made)
        if not kept.exists():
            made.rename(kept)
    shutil.copytree(kept, site.folder / "shares")


def federation(world: World, number: int, kind: Kind) -> Activity[None]:
    """One job of a new federation, from keys to payments."""
    draws = world.draws("federation", number)
    entrance, step = draws.choice(ENTRANCES), draws.choice(STEPS)
    site = Site(world, world.folder / f"federation-{number}", kind, entrance, draws)
    yield from shares(world, site, draws.randint(kind.rounds // 2, kind.rounds))
    serve = world.processes.start("serve", "server", site.serve_words(), site.folder)
    started = [serve]
    yield from until(lambda: "waiting for" in serve.said() or ended_well(serve), f"{site.folder.name}: the server")
    for name in NAMES if entrance == INVITED else ():
        yield from invited(world, site, name)
    joins = {name: world.processes.start(name, "participant", site.join_words(name), site.folder) for name in NAMES}
    started += joins.values()
    if draws.random() < 0.4:
        words = ["console", "--out", "served", "--no-browser"]
        yield from until(lambda: (site.served / "serving.json").exists(), "serving.json")
        started.append(world.processes.start("console", "page", words, site.folder))
    yield from pause(draws.uniform(0.0, 10.0))
    job = kept_job_names(site.served)[-1]
    yield from step_in(world, site.folder, job, step, draws)
    yield from until(lambda: ended_well(serve), f"{site.folder.name}, a job of {kind.name}")
    yield from leave(site.folder.name, list(joins.values()))
    for page in started[4:]:
        page.end()
    yield from check_job(world, site.papers(job), site.folder, {name: one.code for name, one in joins.items()})
    yield from until(lambda: all(one.pid is None for one in started), "leaving")
    world.memory.note("servers, at most", serve.most_kilobytes / 1024)
    world.processes.forget(started)
    world.jobs[f"federation: {kind.name}"] += 1
    shutil.rmtree(site.folder)


def invited(world: World, site: Site, name: str) -> Activity[None]:
    """Invite somebody; if the command was killed between writing the row and the file, invite again."""
    file = site.folder / f"{name}.invitation"
    while not file.exists():
        words = ("invite", name, "--out", "served")
        yield from command(world, f"invite-{name}", site.folder, *words, accepted=(0, REFUSED))


def step_in(world: World, folder: Path, job: str, step: str, draws: random.Random) -> Activity[None]:
    """Give the operator's command; a refusal is fine if the job has gone on meanwhile."""
    words = {
        "pause": ["pause"],
        "extend": ["extend", draws.choice(["enrol", "answer", "label", "audition"]), "--by", "1"],
        "remove": ["remove", draws.choice(NAMES)],
        "end": ["end"],
    }.get(step)
    if words is None:
        return

    def give(given: list[str]) -> Activity[int]:
        kills = world.acknowledged.total()
        code = yield from command(
            world, f"{given[0]}-{kills}", folder, *given, "--out", "served", "--why", "soak", accepted=(0, REFUSED)
        )
        if code == 0:
            world.acknowledged[job, given[0]] += 1
        return code

    yield from give(words)
    if step == "pause":  # a killed command may have written it before reporting it
        yield from pause(draws.uniform(0.0, 4.0))
        yield from give(["resume"])


def leave(what: str, joins: list[Process]) -> Activity[None]:
    """Wait until participants have left; tell those who wait for an ended server to leave."""
    try:
        yield from until(lambda: all(one.code is not None for one in joins), what, SECONDS_FOR_RECEIPTS)
    except Failed:
        for one in joins:
            one.end()
