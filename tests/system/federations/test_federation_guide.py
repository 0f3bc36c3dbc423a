"""A federation over TLS with keys, by the guide's own commands; with a stranger, and with a node that is killed.

Ben draws his labels at random, and is stopped at the audition.
"""

import shlex
import shutil
import time

import pytest

from helpers.commands import free_port
from helpers.served_federations import (
    SECONDS,
    ended_whatever_happens,
    entries_of,
    finish,
    guide,
    start,
    truthfl,
    wait_until,
)
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view

GUIDE_PORT = "8443"


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
    """A copied folder, a free port, and the commands that serve, invite, join and come after."""
    folder, commands = prepared
    shutil.copytree(folder, tmp_path / "here")
    port = str(free_port())
    words = [
        [port if word == GUIDE_PORT else word.replace(GUIDE_PORT, port) for word in shlex.split(c)] for c in commands
    ]
    joins = {one[1].removesuffix(".invitation"): one for one in words if one[0] == "join"}
    invites = [one for one in words if one[0] == "invite"]
    after = [one for one in words if one[0] not in ("serve", "invite", "join")]
    return tmp_path / "here", words[0], invites, joins, after


def invited(folder, invites):
    for words in invites:
        done = truthfl(folder, *words)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_guide_from_keys_to_payment(prepared, tmp_path):
    folder, serve, invites, joins, after = copied(prepared, tmp_path)
    with ended_whatever_happens({"serve": start(folder, serve, "serve")}) as started:
        wait_for(folder, "waiting for 4 clients", started)
        invited(folder, invites)
        refuse_stranger(folder, serve[serve.index("--port") + 1])
        second = truthfl(folder, *serve)
        assert (second.returncode, "cannot be listened at" in second.stderr) == (3, True)
        elsewhere = [str(free_port()) if one == serve[serve.index("--port") + 1] else one for one in serve]
        second = truthfl(folder, *elsewhere)
        assert (second.returncode, "another server, process" in second.stderr) == (3, True)
        for name, words in joins.items():
            started[name] = start(folder, words, name)
        said = finish(started["serve"], folder, "serve")
        assert started["serve"].returncode == 0, said
        for name in joins:
            told = finish(started[name], folder, name)
            assert started[name].returncode == 0, told
            assert "It holds." in told
            assert (folder / name.lower()).stat().st_mode & 0o077 == 0  # nobody else can read the papers
    for words in after:
        done = truthfl(folder, *words)
        assert done.returncode == 0, done.stderr + done.stdout
    rows = entries_of(folder)
    assert check(rows) is None
    found = job_view(rows[0].job, rows)
    assert found.delivered == {"Ada": 5, "Cleo": 5, "Dora": 5}
    assert [entry.document["passed"] for entry in found.auditions.values()] == [True, False, True, True]
    assert found.settlements["Ben"].document["pay"] == 0
    assert found.payments[-1].document["state"] == "sent"
    assert (folder / "payout.csv").read_text(encoding="utf-8").count("\n") == 5


def refuse_stranger(folder, port):
    """Somebody with a key that nobody registered joins as Ada: told at once, here and there."""
    words = ["join", "--server", f"127.0.0.1:{port}", "--root", "keys/ca.crt", "--name", "Ada", "--home", "mallory"]
    started = time.monotonic()
    done = truthfl(folder, *words, "--key", "elsewhere/Mallory", "--data", "shares/Ada.npz", "--accept")
    assert (done.returncode, "does not know your key" in done.stderr) == (3, True)
    assert time.monotonic() - started < 20  # most of it is the start of a process on a busy machine
    assert "127.0.0.1 was not let in: a key that is not registered" in (folder / "serve.log").read_text()


def test_a_killed_node_does_not_stop_the_job_and_a_killed_server_goes_on(prepared, tmp_path):
    folder, serve, invites, joins, _ = copied(prepared, tmp_path)
    job = (folder / "digits.toml").read_text(encoding="utf-8").replace("round_seconds = 120", "round_seconds = 8")
    (folder / "digits.toml").write_text(job.replace("rounds = 5", "rounds = 100"), encoding="utf-8")
    shutil.copy(folder / "shares" / "Dora.npz", folder / "shares" / "Ben.npz")  # so that three are left without Cleo
    with ended_whatever_happens({"serve": start(folder, serve, "serve")}) as started:
        wait_for(folder, "waiting for 4 clients", started)
        invited(folder, invites)
        for name, words in joins.items():
            started[name] = start(folder, words, name)
        wait_for(folder, "round 1: all reports", started)
        started["Cleo"].kill()  # the node goes with it
        started["serve"].kill()  # and the operator's server too
        started["serve"].wait()
        changed = job.replace("rounds = 5", "rounds = 7").replace("round_seconds = 8", "round_seconds = 12")
        (folder / "digits.toml").write_text(changed, encoding="utf-8")
        started["again"] = start(folder, serve, "again")
        end = time.monotonic() + SECONDS
        while "Cleo has no receipt yet. This server delivers until" not in (folder / "again.log").read_text():
            assert (started["again"].poll(), time.monotonic() < end) == (None, True)
            time.sleep(0.1)
        assert "Report: served/reports" in (folder / "again.log").read_text()  # the result does not wait for Cleo
        started["late"] = start(folder, joins["Cleo"], "late")
        told = finish(
            started["late"], folder, "late"
        )  # the server may have died after it had said that it took a report
        assert "It holds." in told or "your computer sent 1 reports that are not counted" in told
        said = finish(started["again"], folder, "again")
        assert started["again"].returncode == 0, said
        assert "Cleo has got the receipt." in said
        assert "as it was begun" in said
        assert "digits.toml differs: training.rounds was 100 and is 7." in said
        assert "server.round_seconds was 8" in said
        for name in ("Ada", "Ben", "Dora"):
            assert "It holds." in finish(started[name], folder, name)
        shown = truthfl(folder, *serve)
        assert shown.returncode == 2
        assert "is complete, and digits.toml describes another one" in shown.stderr
        (folder / "digits.toml").write_text(job.replace("rounds = 5", "rounds = 100"), encoding="utf-8")
        shown = truthfl(folder, *serve)
        assert (shown.returncode, "is complete; --new begins another" in shown.stdout) == (0, True), shown.stderr
        assert "Cleo delivered " in shown.stdout
        assert len(list((folder / "served" / "jobs").iterdir())) == 1
    rows = entries_of(folder)
    assert check(rows) is None
    (name,) = {row.job for row in rows}
    found = job_view(name, rows)
    assert found.delivered["Ada"] == 100  # nobody loses a round by the operator's restart
    assert 1 <= found.delivered["Cleo"] < 100


def wait_for(folder, words, started):
    wait_until(lambda: words in (folder / "serve.log").read_text(encoding="utf-8"), started, folder)
