"""Ctrl+C at any moment: no traceback, exit code 130 (0 where it is how a page is closed)."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from helpers.commands import free_port
from helpers.participants import draw_pictures
from helpers.small_jobs import small_job_file
from truthfl.cli.entry import _comes_of_interrupt
from truthfl.errors import INTERRUPTED
from truthfl.ledger.signing import new_key, write_key

SECONDS = 30
IMPORT_TIME = re.compile(r"import time:\s*-?\d+ \|\s*-?\d+ \|")  # a line of -X importtime; a clock may be set back
BEGUN = "truthfl.cli.entry"  # -X importtime says so when the command's first module is loaded


@contextmanager
def started(*arguments):
    """A command in a process group of its own, as a shell starts it; given as soon as it is at work."""
    command = [sys.executable, "-X", "importtime", "-m", "truthfl", *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            while BEGUN not in process.stderr.readline():
                assert process.poll() is None
            process.stderr.readline()  # the first module that `main` imports, so it is at work
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def rest_of(process):
    """What it has printed and nobody has read, when it has ended.

    `communicate` reads below the streams' buffers, in which there are lines that `readline` has not given yet.
    """
    with ThreadPoolExecutor(2) as readers:
        reads = [readers.submit(stream.read) for stream in (process.stdout, process.stderr)]
        try:
            process.wait(timeout=SECONDS)
            return [read.result(timeout=SECONDS) for read in reads]
        finally:
            with suppress(ProcessLookupError):  # else a process of its group that is left keeps the streams open
                os.killpg(process.pid, signal.SIGKILL)


def interrupted(process):
    """What it says after Ctrl+C, which the whole group gets."""
    os.killpg(process.pid, signal.SIGINT)
    out, errors = rest_of(process)
    said = [line for line in errors.splitlines() if not IMPORT_TIME.match(line)]
    assert not any(word in out + errors for word in ("Traceback", "KeyboardInterrupt", "Exception ignored")), said
    return said


@pytest.fixture
def commands(tmp_path):
    data, job = draw_pictures(tmp_path / "data", 2), small_job_file(tmp_path)
    write_key(new_key(), tmp_path / "key")
    join = ("--server", f"127.0.0.1:{free_port()}", "--name", "Ada", "--key", tmp_path / "key", "--accept")
    return {
        "label": ("label", "--data", data, "--home", tmp_path / "home", "--no-browser"),
        "join": ("join", *join, "--data", data, "--home", tmp_path / "home", "--no-browser"),
        "serve": ("serve", job, "--out", tmp_path / "served", "--port", free_port(), "--yes", "--no-page"),
        "plan": ("plan", job),
        "verify": ("verify", job, "--out", tmp_path / "verified"),
    }


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.06, 0.15, 0.3])
@pytest.mark.parametrize("name", ["plan", "serve"])
def test_while_it_is_being_loaded(commands, name, delay):
    with started(*commands[name]) as process:
        time.sleep(delay)
        assert set(interrupted(process)) <= {"truthfl: interrupted; the same command goes on where it was."}
    assert process.returncode == INTERRUPTED


def test_while_a_node_waits_for_a_server_that_is_not_up(commands):
    with started(*commands["join"]) as process:
        while "nobody answers at" not in (line := process.stderr.readline()):
            assert line, "it did not wait"
        assert interrupted(process) == ["truthfl: interrupted; the same command joins again."]
    assert process.returncode == INTERRUPTED


def test_while_other_processes_work_for_it(commands):
    with started(*commands["verify"]) as process:
        time.sleep(1.5)
        assert all("interrupted; what was done is kept in" in line for line in interrupted(process))
    assert process.returncode == INTERRUPTED


def test_twice_while_a_page_closes(commands):
    """The second one comes while the first one's work is being done; what is printed has no traceback either."""
    with started(*commands["label"]) as process:
        while "Ctrl+C stops it" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
        assert interrupted(process) == []
    assert process.returncode in (0, INTERRUPTED)


IN_A_DESTRUCTOR = """
import sys, time
from truthfl.cli import app, entry

class Dying:
    def __del__(self):
        raise KeyboardInterrupt

def command():
    dying = Dying()
    del dying
    time.sleep(30)

app.main = command
entry.main()
"""


def test_where_nothing_can_be_raised():
    done = subprocess.run([sys.executable, "-c", IN_A_DESTRUCTOR], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")


def test_what_was_read_in_part_is_given_to_its_end():
    """As the buffer of `readline` holds it."""
    lines = "".join(f"line {number}\n" for number in range(10_000))
    command = [sys.executable, "-c", f"import sys; sys.stderr.write({lines!r}); print('out')"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        first = process.stderr.readline()
        out, errors = rest_of(process)
    assert (out, first + errors) == ("out\n", lines)


def test_which_errors_come_of_an_interrupt():
    broken = ImportError("half of it was loaded")
    assert not _comes_of_interrupt(broken)
    broken.__context__ = ValueError()
    assert not _comes_of_interrupt(broken)
    broken.__context__.__context__ = KeyboardInterrupt()
    assert _comes_of_interrupt(broken)
    broken.__context__.__context__ = broken  # a circle
    assert not _comes_of_interrupt(broken)
