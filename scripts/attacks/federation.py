"""A real federation on loopback: `truthfl serve` and `truthfl join` as processes, over TLS, with keys."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from attacks.people import Person
from attacks.ports import free_port
from truthfl.certificates import make_certificates
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import new_key, write_key

HOST, SEED = "127.0.0.1", 3
PATCHES = Path(__file__).parent / "patches"
SECONDS, SECONDS_TO_LEAVE = 1200.0, 30.0
NO_CLASS = 12


def truthfl(*words: object, folder: Path, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a truthfl command to its end."""
    command = [sys.executable, "-m", "truthfl", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)


class Federation:
    """One job with its folder: keys, the operator's folder `served`, and per participant data, home and log."""

    def __init__(self, folder: Path, job: str, people: Sequence[Person], more_words: Sequence[str] = ()) -> None:
        self.folder, self.people, self.port, self.more_words = folder, tuple(people), free_port(), tuple(more_words)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.toml").write_text(job, encoding="utf-8")
        make_certificates(folder / "keys")
        write_key(new_key(), folder / "keys" / "operator", "operator")
        for person in self.people:
            write_key(new_key(), folder / "people" / person.name, person.name)
        shared = truthfl("share", "job.toml", "--out", "shares", "--seed", SEED, folder=folder)
        assert shared.returncode == 0, shared.stderr
        for person in self.people:
            self.make_data(person.name)
            _change_data(self.data(person.name), person)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def data(self, name: str) -> Path:
        """The participant's file of pictures and labels."""
        return self.folder / f"data-{name}.npz"

    def make_data(self, name: str) -> None:
        """Give the participant all pictures and labels of the job."""
        shutil.copy(self.folder / "shares" / f"{name}.npz", self.data(name))

    def home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    @property
    def staying(self) -> set[str]:
        """The participants who stay after their receipt."""
        return {person.name for person in self.people if "--stay" in person.words}

    @property
    def served(self) -> Path:
        return self.folder / "served"

    @property
    def serve_words(self) -> list[object]:
        """The arguments of truthfl serve."""
        keys = ("--keys", "keys", "--participants", "people", "--host", HOST, "--port", self.port)
        return ["serve", "job.toml", *keys, "--seed", SEED, "--out", "served", "--yes", "--linger", 0, *self.more_words]

    @contextmanager
    def running(self, operator: str = "", joined: Sequence[Person] | None = None) -> Iterator[None]:
        """Start server and participants; end remaining processes.

        operator  the patch for the operator's code
        joined    the people who join at once; all if None
        """
        RUNNING.add(self)
        try:
            self._start("serve", operator, *self.serve_words)
            self.wait_until(lambda: "waiting for" in self.log("serve"))
            for person in self.people if joined is None else joined:
                self.join(person)
            yield
        finally:
            RUNNING.discard(self)
            self.end()

    def join(self, person: Person) -> None:
        """Start a participant's node."""
        server = ("--server", f"{HOST}:{self.port}", "--root", "keys/ca.crt")
        own = ("--name", person.name, "--key", f"people/{person.name}", "--home", self.home(person.name))
        words = ("--data", self.data(person.name), "--accept", "--no-browser", *person.words)
        self._start(person.name, person.patch, "join", *server, *own, *words)

    def join_invited(self, name: str, invitation: Path) -> None:
        """Start the node of an invited person without a key."""
        words = ("--home", self.home(name), "--data", self.data(name), "--accept", "--no-browser")
        self._start(name, "", "join", invitation, *words)

    def wait_for_end(self) -> None:
        """Wait until the server has ended, then for the remaining participants."""
        self.wait_until(lambda: self.processes["serve"].poll() is not None)
        deadline = time.monotonic() + SECONDS_TO_LEAVE
        for name, process in self.processes.items():
            if name not in self.staying:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until this is true, or the server has ended."""
        deadline = time.monotonic() + SECONDS
        while not ready() and self.processes["serve"].poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the federation takes more than {SECONDS:g} seconds: {self.log('serve')[-2000:]}")
            time.sleep(0.2)

    def log(self, name: str) -> str:
        """The output of the server or of a participant's command."""
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def exit_code(self, name: str) -> int | None:
        return self.processes[name].poll()

    def entries(self) -> list[Entry]:
        with open_for_reading(self.served / "ledger.db") as ledger:
            return ledger.entries()

    def view(self) -> JobView:
        """The job from its ledger."""
        entries = self.entries()
        return job_view(entries[0].job, entries)

    def reasons(self, client: str | None) -> list[str]:
        """The ledger's reasons for refusing something from this client; None for clients who were not enrolled."""
        found = self.view().rejections
        return [str(entry.document["reason"]) for entry in found if entry.document["client"] == client]

    def pay(self) -> dict[str, int]:
        """Each client's pay, by client."""
        return {name: entry.document["pay"] for name, entry in self.view().settlements.items()}

    def _start(self, name: str, patch: str, *words: object) -> None:
        environment = dict(os.environ, TRUTHFL_ATTACK=patch, TRUTHFL_ATTACK_FOLDER=str(self.folder))
        if patch:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PATCHES), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "truthfl", *map(str, words)]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def end(self) -> None:
        """End all processes that still run."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


RUNNING: set[Federation] = set()
"""The federations that run now."""


def end_running() -> None:
    """End the processes of all federations, in any state."""
    for federation in tuple(RUNNING):
        federation.end()


def ledger_check(federation: Federation, *words: object) -> tuple[int, str]:
    """Exit code and output of truthfl ledger check."""
    done = truthfl("ledger", "check", "served/ledger.db", *words, folder=federation.folder)
    return done.returncode, done.stdout + done.stderr


def _change_data(path: Path, person: Person) -> None:
    """Give a person fewer pictures, no labels, or one label of no class."""
    with np.load(path) as file:
        images, labels = file["images"][: person.pictures], file["labels"][: person.pictures]
    if person.labels == "none":
        np.savez(path, images=images)
        return
    if person.labels == "wrong":
        labels[0] = NO_CLASS
    np.savez(path, images=images, labels=labels)
