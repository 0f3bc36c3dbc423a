"""A federation over TLS with keys, by the guide's own commands; with a stranger, and with a node that is killed.

Ben draws his labels at random, and is stopped at the audition.
"""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from truthfl.federation.deployed.flower_servers import NOT_ADMITTED

from ports import free_port
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view

GUIDE = Path(__file__).parent.parent / "docs" / "federation.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 240
GUIDE_PORT = "8443"


def guide():
    """The job, and the commands in their order."""
    text = GUIDE.read_text(encoding="utf-8")
    (job,) = [block for language, block in FENCE.findall(text) if language == "toml"]
    console = "\n".join(block for language, block in FENCE.findall(text) if language == "console")
    return job, re.findall(r"^\$ truthfl (.*)$", console, flags=re.MULTILINE)


def start(folder, words, name):
    command = [sys.executable, "-m", "truthfl", *words]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def finish(process, folder, name):
    """Wait for the end; what it said."""
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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Keys, job and shares, as the guide makes them; a key that nobody registered; and the commands to go on with."""
    folder = tmp_path_factory.mktemp("guide")
    job, commands = guide()
    (folder / "digits.toml").write_text(job, encoding="utf-8")
    while not commands[0].startswith("serve"):
        done = truthfl(folder, *shlex.split(commands.pop(0)))
        assert done.returncode == 0, done.stderr
    assert truthfl(folder, "keys", "participant", "Mallory", "--out", "elsewhere").returncode == 0
    return folder, commands


def copied(prepared, tmp_path):
    """A folder of one's own, a free port, and the commands that serve, join and come after."""
    folder, commands = prepared
    shutil.copytree(folder, tmp_path / "here")
    port = str(free_port())
    words = [
        [port if word == GUIDE_PORT else word.replace(GUIDE_PORT, port) for word in shlex.split(c)] for c in commands
    ]
    joins = {one[one.index("--name") + 1]: one for one in words if one[0] == "join"}
    return tmp_path / "here", words[0], joins, [one for one in words if one[0] not in ("serve", "join")]


def test_the_guide_from_keys_to_payment(prepared, tmp_path):
    folder, serve, joins, after = copied(prepared, tmp_path)
    with ended_whatever_happens({"serve": start(folder, serve, "serve")}) as started:
        wait_for(folder, "waiting for 3 clients", started)
        refuse_stranger(folder, joins["Ada"])
        for name, words in joins.items():
            started[name] = start(folder, words, name)
        said = finish(started["serve"], folder, "serve")
        assert started["serve"].returncode == 0, said
        for name in joins:
            told = finish(started[name], folder, name)
            assert started[name].returncode == 0, told
            assert "It holds." in told
            assert (folder / name.lower()).stat().st_mode & 0o077 == 0  # her papers are for her eyes alone
    for words in after:
        done = truthfl(folder, *words)
        assert done.returncode == 0, done.stderr + done.stdout
    rows = entries_of(folder)
    assert check(rows) is None
    found = job_view(rows[0].job, rows)
    assert found.delivered == {"Ada": 5, "Cleo": 5}
    assert [entry.document["passed"] for entry in found.auditions.values()] == [True, False, True]
    assert found.settlements["Ben"].document["pay"] == 0
    assert found.payments[-1].document["state"] == "sent"
    assert (folder / "payout.csv").read_text(encoding="utf-8").count("\n") == 4


def refuse_stranger(folder, words_of_ada):
    """Somebody with a key that nobody registered joins as Ada: her node is not admitted, so she is never connected."""
    words = [word.replace("people/Ada", "elsewhere/Mallory").replace("ada", "mallory") for word in words_of_ada]
    with ended_whatever_happens({"Mallory": start(folder, words, "Mallory")}) as started:
        log = folder / "mallory" / "supernode.log"
        wait_until(lambda: log.exists() and NOT_ADMITTED in log.read_text(encoding="utf-8"), started, folder)
    assert "connected" not in (folder / "Mallory.log").read_text(encoding="utf-8")


def test_a_killed_node_does_not_stop_the_job_and_a_killed_server_goes_on(prepared, tmp_path):
    folder, serve, joins, _ = copied(prepared, tmp_path)
    job = (folder / "digits.toml").read_text(encoding="utf-8").replace("round_seconds = 120", "round_seconds = 12")
    (folder / "digits.toml").write_text(job, encoding="utf-8")
    with ended_whatever_happens({"serve": start(folder, serve, "serve")}) as started:
        wait_for(folder, "waiting for 3 clients", started)
        for name, words in joins.items():
            started[name] = start(folder, words, name)
        wait_for(folder, "round 1: all reports", started)
        started["Cleo"].kill()  # her node goes with her
        started["serve"].kill()  # and the operator's server too
        started["serve"].wait()
        started["again"] = start(folder, serve, "again")
        said = finish(started["again"], folder, "again")
        assert started["again"].returncode == 0, said
        for name in ("Ada", "Ben"):
            assert "It holds." in finish(started[name], folder, name)
    rows = entries_of(folder)
    assert check(rows) is None
    (name,) = {row.job for row in rows}
    found = job_view(name, rows)
    assert found.delivered["Ada"] == 5
    assert 1 <= found.delivered["Cleo"] < 5
    settled, terms = found.settlements["Cleo"].document, found.agreement.offers[2].client.pay
    expected = terms["joint_constant"] + terms["joint_curve"] / settled["present_labels"]
    computing = terms["joint_base"] + terms["joint_slope"] * (expected - found.test.document["loss"])
    computing = min(max(computing, 0.0), terms["joint_cap"]) * settled["delivered"] / 5
    assert settled["pay"] == round(settled["label_pay"] + computing)
    labels = {offer.client.name: offer.client.samples for offer in found.agreement.offers}
    present = found.settlements["Ada"].document["present_labels"]
    assert present == pytest.approx(labels["Ada"] + labels["Cleo"] * settled["delivered"] / 5)


def wait_for(folder, words, started):
    wait_until(lambda: words in (folder / "serve.log").read_text(encoding="utf-8"), started, folder)


def wait_until(happened, started, folder):
    """Wait until it has happened, while all who were started run."""
    end = time.monotonic() + SECONDS
    while not happened():
        for name, process in started.items():
            assert process.poll() is None, (folder / f"{name}.log").read_text(encoding="utf-8")
        assert time.monotonic() < end, [(folder / f"{name}.log").read_text(encoding="utf-8") for name in started]
        time.sleep(0.1)
