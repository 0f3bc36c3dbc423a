"""The two-minute form of scripts/soak.py, and that a soak would find what it looks for."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts import soak
from scripts.soaking import private_postgresql, processes
from scripts.soaking.database import Database
from scripts.soaking.job_checks import row_faults
from scripts.soaking.memory import growth
from scripts.soaking.observer import Observer
from scripts.soaking.soak_run import SoakResult

from helpers.databases import private_server
from helpers.participants import Ada
from truthfl.ledger.book import open_ledger
from truthfl.ledger.job_view import job_view

SCRIPT = Path(__file__).parents[3] / "scripts" / "soak.py"
RESULT = {
    "seconds": 120.0,
    "jobs": {"one process": 2},
    "commands": 3,
    "kills": {"server": 4},
    "stages": {"training": 4},
    "rows": 50,
    "receipts": 6,
    "growths": [],
}


def test_two_minutes_of_jobs_and_kills():
    """Short for what the script does in an hour; gently, since other tests run beside it."""
    with private_server():
        pass  # skipped where there is no PostgreSQL
    command = [sys.executable, str(SCRIPT), "--minutes", "2", "--gently"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"^(\d+) jobs, (\d+) kills, (\d+) rows, 0 lost, 0 doubled, memory flat", done.stdout, re.MULTILINE)
    assert told is not None, done.stdout
    assert all(int(number) > 1 for number in told.groups())


def test_memory_that_grows_with_the_jobs_is_found_and_noise_is_not():
    noisy = [100.0 + (7 * number) % 5 for number in range(400)]
    assert growth("flat", noisy).is_flat
    assert growth("warm", [20.0 + number for number in range(80)] + noisy[80:]).is_flat
    assert not growth("leaks", [value + 0.08 * number for number, value in enumerate(noisy)]).is_flat
    assert growth("short", noisy[:5]) is None


class Rows(Observer):
    """An observer of rows in memory."""

    def __init__(self, file):
        super().__init__("", file)
        self.there = [(number, "cats", "round", str(number), f"hash {number}") for number in range(1, 6)]

    def _read(self, _query, values):
        if not values:
            return [row[1:4] for row in self.there]
        return [row for row in self.there if row[0] > values[0]]


def test_rows_that_were_seen_and_are_gone_others_or_twice_are_found(tmp_path):
    observer = Rows(tmp_path / "seen")
    observer.look()
    observer.look()
    assert (observer.rows, observer.jobs, observer.lost(), observer.doubled()) == (5, {"cats"}, [], [])
    observer.there[1] = (2, "cats", "round", "2", "another hash")
    assert observer.lost() == ["a row that was seen is not there: 2\tcats\tround\t2\thash 2"]
    observer.there[1] = (2, "cats", "round", "1", "hash 2")
    assert observer.doubled() == ["cats round 1 is there 2 times"]
    del observer.there[1:]
    assert len(observer.lost()) == 4
    observer.there[0] = (2, "cats", "round", "1", "hash 1")
    assert "the rows' sequence numbers have a gap" in observer.lost()


def test_what_a_finished_job_lacks_is_found(tmp_path):
    ada = Ada(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer)
    with open_ledger(tmp_path / "ledger.db", ada.operator) as book:
        name = book.jobs()[0]
        before = book.entries()
        book.append(name, "receipt", "Ada", {"digest": ""})
        entries = book.entries()
    assert row_faults(job_view(name, before)) == ["['Ada'] have a contract, [] a receipt"]
    assert row_faults(job_view(name, entries)) == []
    for kind, words in (
        ("settlement", "a settlement"),
        ("payment", "payments fell due for {}"),
        ("test", "not tested"),
    ):
        (fault,) = row_faults(job_view(name, [entry for entry in entries if entry.kind != kind]))
        assert words in fault
    (fault,) = row_faults(job_view(name, [entry for entry in entries if (entry.kind, entry.key) != ("round", "2")]))
    assert fault == "its rounds are [1, 3]; the contract has 3"
    assert row_faults(job_view(name, entries[:1])) == ["it has no contract, and was not ended"]


def test_a_command_that_was_killed_is_started_again_and_one_that_failed_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROGRAM", [sys.executable, "-c"])
    (tmp_path / "first").touch()
    words = "import os, time\nif os.path.exists('first'): os.remove('first'); time.sleep(60)\nraise SystemExit(4)"
    started = processes.Processes()
    process = started.start("one", "command", [words], tmp_path)
    wait(lambda: not (tmp_path / "first").exists())
    process.kill(time.monotonic())
    wait(lambda: started.look() or process.code is not None)
    assert (process.code, process.starts, process.kills) == (4, 2, 1)
    staying = started.start("two", "command", ["import time; time.sleep(60)"], tmp_path)
    started.end()
    assert (staying.pid, started.left_behind()) == (None, [])


def test_what_a_process_of_a_soak_started_and_left_is_found_and_nothing_else_is(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROGRAM", [sys.executable, "-c"])
    sleep = "[sys.executable, '-c', 'import time; time.sleep(60)']"
    words = f"import subprocess, sys\nprint(subprocess.Popen({sleep}, start_new_session=True).pid)"
    other, started = processes.Processes(), processes.Processes()
    stranger = other.start("other", "command", ["import time; time.sleep(60)"], tmp_path)
    process = started.start("one", "command", [words], tmp_path)
    wait(lambda: started.look() or process.code is not None)
    started.forget([process])
    assert started.left_behind() == [int(process.said())]
    wait(lambda: started.left_behind() == [])
    assert stranger.pid is not None
    other.end()


PARENT = """
import subprocess, sys, time
from scripts.soaking.processes import die_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=die_with_parent)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_nothing_outlives_a_soak_that_is_killed():
    root = SCRIPT.parent.parent
    command, marked = [sys.executable, "-c", PARENT], {**os.environ, processes.MARK: "this test"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=marked) as parent:
        child = int(parent.stdout.readline())
        assert child in processes.running("this test")
        parent.send_signal(signal.SIGKILL)
    wait(lambda: child not in processes.running("this test"))


@pytest.mark.parametrize("fault", ["", "a row is gone"])
def test_a_soak_ends_with_a_sentence(tmp_path, monkeypatch, capsys, fault):
    result = SoakResult(**RESULT, lost=bool(fault) * 1, doubled=0, faults=[fault] if fault else [])
    monkeypatch.setattr(soak, "run_soak", lambda *_, **__: result)
    monkeypatch.setattr(soak, "restartable_server", lambda: private_postgresql.tempfile.TemporaryDirectory())
    monkeypatch.setattr(sys, "argv", ["soak.py", "--seed", "7", "--keep", str(tmp_path / "kept")])
    assert soak.main() == (1 if fault else 0)
    last = capsys.readouterr().out.splitlines()[-1]
    if fault:
        assert last == f"Seed 7 FAILED: a row is gone. The folder {tmp_path / 'kept'} is kept."
    else:
        assert last == "2 jobs, 4 kills, 50 rows, 0 lost, 0 doubled, memory flat (seed 7)."


def test_a_database_that_ended_by_itself_is_started_again():
    """PostgreSQL gives up if its startup process is killed, as by a second kill while it recovers from the first."""
    with private_server():
        pass  # skipped where there is no PostgreSQL
    with private_postgresql.restartable_server() as server:
        database = Database(server)
        before = database.pid
        os.kill(before, signal.SIGKILL)
        server.process.wait()
        wait(lambda: database.look() or (database.is_up and database.pid != before))
        assert server.answers()


def wait(holds):
    latest = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < latest
        time.sleep(0.02)
