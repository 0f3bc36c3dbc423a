"""A job on a SuperLink that Flower's own command started: `truthfl serve --running`, and participants who join."""

import signal
import subprocess
import sys
import time
from contextlib import ExitStack

from benchmarks.peers.plain_flower import program, started

from audition_jobs import audition_job_file
from ports import free_port
from truthfl.cli.exit_codes import INTERRUPTED
from truthfl.federation.deployed.superlink_client import Connection, is_reachable, run_status
from truthfl.ledger import participant_folder
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import new_key, write_key

HOST, SECONDS, ROUNDS = "127.0.0.1", 240.0, 2
NAMES = ("Ada", "Ben", "Cleo", "Dora")
FEWER_ROUNDS = ("rounds = 12\nstep_size = 1.5", f"rounds = {ROUNDS}\nstep_size = 0.5")
TRUTHFL = (sys.executable, "-m", "truthfl")


def log(folder, name):
    return (folder / f"{name}.log").read_text(encoding="utf-8")


def truthfl(folder, *words):
    done = subprocess.run([*TRUTHFL, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def wait(folder, happened):
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end, log(folder, "superlink")
        time.sleep(0.1)


def test_a_job_on_a_superlink_of_flowers(tmp_path):
    job, port = audition_job_file(tmp_path, FEWER_ROUNDS, privacy=""), free_port()
    truthfl(tmp_path, "share", job, "--out", "shares", "--seed", 3)
    with ExitStack() as stack:
        superlink = (program("flower-superlink"), "--insecure", "--host", HOST, "--port", port)
        stack.enter_context(started(tmp_path, "superlink", *superlink))
        connection = Connection(HOST, port, None, tmp_path / "flower")
        wait(tmp_path, lambda: is_reachable(connection))
        serve = ("serve", job, "--running", "--port", port, "--out", "served", "--seed", 3, "--yes")
        interrupted = stack.enter_context(started(tmp_path, "interrupted", *TRUTHFL, *serve))
        wait(tmp_path, lambda: ", run " in log(tmp_path, "interrupted"))
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(SECONDS) == INTERRUPTED, log(tmp_path, "interrupted")
        run = int(log(tmp_path, "interrupted").split(", run ")[1].split()[0])
        assert run_status(connection, run).state == "stopped"  # so that it does not go on beside the next one
        served = stack.enter_context(started(tmp_path, "serve", *TRUTHFL, *serve))
        joined = {}
        for name in NAMES:
            write_key(new_key(), tmp_path / f"{name}.key")
            words = ("--server", f"{HOST}:{port}", "--name", name, "--key", f"{name}.key", "--home", f"{name}-home")
            data = ("--data", f"shares/{name}.npz", "--accept")
            joined[name] = stack.enter_context(started(tmp_path, name, *TRUTHFL, "join", *words, *data))
        wait(tmp_path, lambda: served.poll() is not None)
        assert served.returncode == 0, log(tmp_path, "serve")
        for name, process in joined.items():
            assert process.wait(SECONDS) == 0, log(tmp_path, name)
    with open_for_reading(tmp_path / "served" / "ledger.db") as ledger:
        entries = ledger.entries()
    view = job_view(entries[0].job, entries)
    assert (view.finished, len(view.rounds), set(view.settlements)) == (True, ROUNDS, set(NAMES))
    assert view.delivered == dict.fromkeys(NAMES, ROUNDS)
    for name in NAMES:
        (receipt,) = participant_folder.receipts(tmp_path / f"{name}-home")
        assert receipt["document"]["settlement"]["pay"] == view.settlements[name].document["pay"]
        assert "It holds." in log(tmp_path, name)
    assert "hold" in truthfl(tmp_path, "ledger", "check", "served/ledger.db")
