"""An audition and masked rounds on Flower's processes: the same models, results and pay as in one process."""

import os
import pty
import signal
import time

import numpy as np
import pytest

from helpers.auditions import audition_job_file
from helpers.commands import begun, free_port, truthfl
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.home.record import rounds_of
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import new_key, write_key

SECONDS = 240
NAMES = ("Ada", "Ben", "Cleo", "Dora")
PASS = ("Ada", "Cleo", "Dora")
LIAR = ('"truthful", "truthful", "truthful", "truthful"', '"truthful", "lazy labeler", "truthful", "truthful"')
ROUNDS = 3
FEWER_ROUNDS = ("rounds = 12\nstep_size = 1.5", f"rounds = {ROUNDS}\nstep_size = 0.5")
MASKED = "\n[privacy]\nsecure_aggregation = true\n"
UNMASKED = "\n[privacy]\nsecure_aggregation = false\n"


def said(folder, *words):
    done = truthfl(*words, cwd=folder, timeout=SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def start_at_terminal(folder, name, *words):
    """The command with standard input from a terminal; also its other end, at which one types."""
    typed, terminal = pty.openpty()
    return typed, begun(*words, log=folder / f"{name}.log", cwd=folder, typed=os.ttyname(terminal))


def log(folder, name):
    return (folder / f"{name}.log").read_text(encoding="utf-8")


def wait_for(folder, name, words, process):
    end = time.monotonic() + SECONDS
    while words not in log(folder, name):
        assert process.poll() is None, log(folder, name)
        assert time.monotonic() < end, log(folder, name)
        time.sleep(0.1)


@pytest.mark.parametrize("masked", [True, False])
def test_deployed_as_in_one_process(tmp_path, masked):
    """Without masks it is the same model and pay; under masks batches are the participants' own, and it is as good."""
    job = audition_job_file(tmp_path, FEWER_ROUNDS, LIAR, privacy=MASKED if masked else UNMASKED)
    said(tmp_path, "share", job, "--out", "shares", "--seed", 3)
    port, started = free_port(), {}
    try:
        serve = ("serve", job, "--port", port, "--out", "served", "--seed", 3)
        terminal, started["serve"] = start_at_terminal(tmp_path, "serve", *serve)
        wait_for(tmp_path, "serve", "waiting for 4 clients", started["serve"])
        for name in NAMES:
            write_key(new_key(), tmp_path / f"{name}.key")
            words = ("--server", f"127.0.0.1:{port}", "--name", name, "--key", f"{name}.key", "--home", f"{name}-home")
            data = ("--data", f"shares/{name}.npz", "--accept")
            started[name] = begun("join", *words, *data, log=tmp_path / f"{name}.log", cwd=tmp_path)
        wait_for(tmp_path, "serve", "Send these offers? [y/N]: ", started["serve"])
        assert "offer to" not in log(tmp_path, "serve")
        assert not any(list((tmp_path / f"{name}-home").glob("offers/*")) for name in NAMES)
        os.write(terminal, b"y\n")
        assert started["serve"].wait(SECONDS) == 0, log(tmp_path, "serve")
        for name in NAMES:
            assert started[name].wait(SECONDS) == 0, log(tmp_path, name)
            assert "for labels, " in log(tmp_path, name)
            assert "It holds." in log(tmp_path, name)
        assert "You did not pass the audition." in log(tmp_path, "Ben")
        assert "Ben: solo loss" in log(tmp_path, "serve")
    finally:
        for process in started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in started.values():
            process.wait(60)
    with open_for_reading(tmp_path / "served" / "ledger.db") as book:
        rows = book.entries()
    assert check(rows) is None
    found = job_view(rows[0].job, rows)
    assert found.delivered == dict.fromkeys(PASS, ROUNDS)
    for name in PASS:
        offer = next(offer for offer in found.agreement.offers if offer.client.name == name)
        kept = rounds_of(tmp_path / f"{name}-home", offer.hash)
        assert [(one.round, one.missing, one.opened) for one in kept] == [(n, (), masked) for n in range(ROUNDS)]
    assert "was recomputed" in said(tmp_path, "ledger", "check", "served/ledger.db")
    said(tmp_path, "run", job, "--seed", 3, "--out", "alone")
    with open_for_reading(tmp_path / "alone" / "ledger.db") as book:
        alone = job_view(found.name, book.entries(found.name))
    losses = [view.test.document["loss"] for view in (alone, found)]
    assert losses[0] == (pytest.approx(losses[1], rel=0.1) if masked else losses[1])
    for kind, same in (("", not masked), ("-solo", True)):
        files = [np.load(tmp_path / place / "models" / f"{found.name}{kind}.npy") for place in ("served", "alone")]
        assert np.array_equal(*files, equal_nan=True) == same
    if masked:
        return
    assert [e.document["model"] for e in alone.rounds] == [e.document["model"] for e in found.rounds]
    assert [e.document for e in alone.settlements.values()] == [e.document for e in found.settlements.values()]
