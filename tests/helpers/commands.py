"""`truthfl` commands as processes; tests' ports, scripts and clocks; the text of refusals.

For time limits, a thread sleeps in beats, which are counted. A beat takes a hundredth of a second on an idle machine.
On a busy one it takes longer, as does the measured work.

The processes are forks of one process that has imported truthfl, once per pytest process. Each has its own standard
input, output, folder, environment and exit code, as from a shell. Tests that start `python -m truthfl` (the guides, the
README, interrupts and many others) show that commands work without this.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

import pytest
from scripts import kill_and_resume

from truthfl import InputError


def free_port():
    """A port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


BEAT = 0.01  # seconds


@contextmanager
def within(seconds):
    """The work in this context takes less than this many seconds."""
    over, beats = threading.Event(), []

    def count():
        while not over.wait(BEAT):
            beats.append(BEAT)

    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    try:
        yield
    finally:
        over.set()
        counting.join()
    assert sum(beats) < seconds


def told(call, *arguments, kind=InputError, **options):
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


PLANS = "TRUTHFL_TEST_PLANS"  # names the folder of the plans that commands need not make again
SECONDS = 120
IMPORTED = [
    "helpers.small_jobs",
    "truthfl.cli.join",
    "truthfl.cli.serve",
    "truthfl.page.application",
    "truthfl.cli.app",
    "truthfl.cli.run",
    "truthfl.cli.plan",
    "truthfl.cli.verify",
    "truthfl.federation.simulated.in_process",
    "truthfl.ledger",
    "truthfl.reporting",
    "truthfl.studies",
    "sklearn.datasets",
    "rich.console",
    "rich.table",
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(IMPORTED)


def truthfl(*words, cwd=None, timeout=SECONDS):
    """Wait for its end; return the same as `subprocess.run` with captured text."""
    words = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("out", "error")]
        where = (str(cwd or Path.cwd()), dict(os.environ))
        process = _fork(words, *map(str, streams), *where)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, error = (file.read_text(encoding="utf-8") for file in streams)
        return subprocess.CompletedProcess(words, process.exitcode, out, error)


def begun(*words, log, errors=None, cwd=None, typed=os.devnull):
    """A command that goes on by itself; what it says is written to `log`, errors too unless they have a file.

    typed   the path of its standard input; of a terminal, for a command that asks
    """
    for file in filter(None, (log, errors)):
        file.touch()
    streams = str(log), None if errors is None else str(errors)
    words = [str(word) for word in words]
    return Begun(_fork(words, *streams, str(cwd or Path.cwd()), dict(os.environ), typed), errors or log)


def started_run(job, folder):
    """`kill_and_resume.start` as a fork."""
    log, errors = (folder.with_suffix(kind) for kind in (".out", ".errors"))
    return begun("run", job, "--out", folder, "--json", log=log, errors=errors)


kill_and_resume.start = started_run


class Begun:
    """A started command, in the form of `subprocess.Popen`."""

    def __init__(self, process, errors):
        self._process, self._errors, self.pid = process, errors, process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(["truthfl"], timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """Wait for its end; return nothing of standard output, and the errors."""
        self.wait(timeout)
        return None, self._errors.read_text(encoding="utf-8")

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _fork(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the first process would not look elsewhere for modules
        forkserver.ensure_running()
    process = FORKS.Process(target=_command, args=arguments)
    process.start()
    return process


def _command(words, out, error, folder, environment, typed=os.devnull):
    """error: None for the same file as `out`"""
    from truthfl.cli.entry import main

    read, write = os.O_RDONLY | os.O_NOCTTY, os.O_WRONLY | os.O_CREAT
    where = os.open(typed, read), os.open(out, write), 1 if error is None else os.open(error, write)
    for number, opened in enumerate(where):
        os.dup2(opened, number)
        if opened > 2:
            os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["truthfl", *words]
    if PLANS in environment:
        from helpers.small_jobs import remember_plans

        remember_plans(Path(environment[PLANS]))
    main()
