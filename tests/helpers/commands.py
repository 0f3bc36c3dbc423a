"""`truthfl` commands as processes; tests' ports, scripts and clocks; the text of refusals.

For time limits, a thread sleeps in beats, which are counted. A beat takes a hundredth of a second on an idle machine.
On a busy one it takes longer, as does the measured work.

The processes are forks of one process that has imported truthfl, once per pytest process. Each has its own standard
input, output, folder, environment and exit code, as from a shell. Tests that start `python -m truthfl` (the guides, the
README, interrupts and many others) show that commands work without this.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

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


SCRIPTS = Path(__file__).parents[2] / "scripts"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kill_and_resume = loaded("kill_and_resume")


SECONDS = 120
IMPORTED = [
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
        process = FORKS.Process(target=_command, args=(words, *map(str, streams), *where))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, error = (file.read_text(encoding="utf-8") for file in streams)
        return subprocess.CompletedProcess(words, process.exitcode, out, error)


def begun(*words, log, errors=None, cwd=None):
    """A command that goes on by itself; what it says is written to `log`, errors too unless they have a file."""
    for file in filter(None, (log, errors)):
        file.touch()
    streams = str(log), None if errors is None else str(errors)
    words = [str(word) for word in words]
    process = FORKS.Process(target=_command, args=(words, *streams, str(cwd or Path.cwd()), dict(os.environ)))
    process.start()
    return Begun(process)


class Begun:
    """A started command, in the form of `subprocess.Popen`."""

    def __init__(self, process):
        self._process, self.pid = process, process.pid

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

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _command(words, out, error, folder, environment):
    """error: None for the same file as `out`"""
    from truthfl.cli.entry import main

    flags = os.O_WRONLY | os.O_CREAT
    where = os.open(os.devnull, os.O_RDONLY), os.open(out, flags), 1 if error is None else os.open(error, flags)
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
    main()
