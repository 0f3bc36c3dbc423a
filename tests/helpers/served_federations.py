"""A federation of real commands: start them, wait, finish, and end them whatever happens."""

import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from truthfl.ledger.book import open_for_reading

GUIDE = Path(__file__).parents[2] / "docs" / "federation.md"


FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


SECONDS = 240


def guide():
    """The job and its commands, in order."""
    text = GUIDE.read_text(encoding="utf-8")
    (job,) = [block for language, block in FENCE.findall(text) if language == "toml"]
    console = "\n".join(block for language, block in FENCE.findall(text) if language == "console")
    return job, re.findall(r"^\$ truthfl (.*)$", console, flags=re.MULTILINE)


def start(folder, words, name):
    command = [sys.executable, "-m", "truthfl", *words]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def finish(process, folder, name):
    """Wait for the command's end; return its output."""
    process.wait(SECONDS)
    return (folder / f"{name}.log").read_text(encoding="utf-8")


def truthfl(folder, *words):
    command = [sys.executable, "-m", "truthfl", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)


@contextmanager
def ended_whatever_happens(started):
    try:
        yield started
    finally:
        for process in started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in started.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def entries_of(folder):
    with open_for_reading(folder / "served" / "ledger.db") as book:
        return book.entries()


def wait_until(happened, started, folder):
    """Wait until this has happened, while all started commands run."""
    end = time.monotonic() + SECONDS
    while not happened():
        for name, process in started.items():
            assert process.poll() is None, (folder / f"{name}.log").read_text(encoding="utf-8")
        assert time.monotonic() < end, [(folder / f"{name}.log").read_text(encoding="utf-8") for name in started]
        time.sleep(0.1)
