"""Exit code 2 where the input can be mended, 3 where network, disk, a port or a process failed; one sentence each."""

import socket
import sqlite3
import subprocess
import sys

import httpx
import numpy as np
import pytest

from helpers.commands import truthfl
from helpers.participants import Ada, draw_pictures
from helpers.small_jobs import small_job_file
from truthfl.errors import InputError, ServiceError
from truthfl.federation.protocol import server
from truthfl.ledger.book import open_ledger
from truthfl.ledger.signing import new_key, write_key
from truthfl.page.documents import documents_summary, offer_in_force
from truthfl.page.serving import open_page
from truthfl.page.work import Work
from truthfl.samples import label_store
from truthfl.samples.handmade_labels import labels_of
from truthfl.samples.label_store import LabelStore
from truthfl.samples.sources import open_samples


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "ada.npz", images=np.zeros((3, 8, 8), np.uint8), labels=np.array([0, 1, 2]))
    write_key(new_key(), tmp_path / "key")
    (tmp_path / "file").write_text("")
    draw_pictures(tmp_path / "pictures", 2)
    small_job_file(tmp_path)
    return tmp_path


@pytest.fixture
def taken():
    """A port that somebody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def ended(folder, *words):
    done = truthfl(*words, cwd=folder)
    assert done.stderr.startswith("truthfl: "), done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.returncode, done.stderr


JOIN = ["join", "--name", "Ada", "--key", "key", "--data", "ada.npz", "--accept"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([*JOIN, "--server", "127.0.0.1"], 2, "it must be HOST:PORT"),
        (["run", "job.toml", "--out", "file/out"], 3, "file/out cannot be written to (Not a directory)"),
        (["share", "job.toml", "--out", "file/out"], 3, "cannot be written to"),
        (["keys", "participant", "Ben", "--out", "file/out"], 3, "cannot be written"),
        (
            ["label", "--data", "pictures", "--home", "file/home", "--no-browser"],
            3,
            "file/home cannot be made private: Not a directory",
        ),
        (["label", "--data", "pictures", "--home", "h", "--export", "file/x.csv"], 3, "x.csv cannot be written"),
        (["run", "job.toml", "--ledger", "file/ledger.db"], 3, "cannot be made: File exists"),
        (["run", "job.toml", "--ledger", "postgresql://nobody@127.0.0.1:1/x"], 3, "cannot be used as a ledger"),
        (["ledger", "check", "postgresql://nobody@127.0.0.1:1/x"], 3, "cannot be used as a ledger"),
        (["ledger", "check", "key"], 2, "it is no SQLite file"),
        (["ledger", "check", "other.db"], 2, "holds no ledger"),
    ],
)
def test_exit_codes(folder, words, code, told):
    sqlite3.connect(folder / "other.db").execute("CREATE TABLE things (one)").connection.close()
    found, sentence = ended(folder, *words)
    assert told in sentence
    assert found == code


def test_a_port_in_use(folder, taken):
    code, sentence = ended(folder, "label", "--data", "pictures", "--home", "h", "--no-browser", "--port", taken)
    assert (code, f"port {taken} cannot be used" in sentence) == (3, True)
    code, sentence = ended(folder, "serve", "job.toml", "--yes", "--out", "served", "--port", taken)
    assert (code, f"127.0.0.1:{taken} cannot be listened at" in sentence) == (3, True)
    assert ended(folder, "serve", "job.toml", "--port", 70_000)[0] == 2


def test_an_unknown_behaviour_in_a_job(folder):
    job = small_job_file(folder, '"small batch"]', '"angel"]')
    code, sentence = ended(folder, "run", job, "--out", "out")
    assert (code, "behaviour is 'angel'" in sentence) == (2, True)


def test_files_of_other_contents_are_input_and_what_cannot_be_reached_is_not(folder, monkeypatch):
    with pytest.raises(InputError, match="is no SQLite file"):
        open_ledger(folder / "key")
    with pytest.raises(InputError, match="cannot be used for labels"):
        LabelStore(folder / "key")
    with pytest.raises(InputError, match="cannot be read as a file of labels"):
        labels_of(folder / "key", ["a"], ["b"])
    with pytest.raises(ServiceError, match="cannot be made private"):
        LabelStore(folder / "file" / "labels.db")
    LabelStore(folder / "labels.db").close()
    monkeypatch.setattr(label_store, "LOCK_WAIT_S", 0.05)
    holder = sqlite3.connect(folder / "labels.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(ServiceError, match="database is locked"):
            LabelStore(folder / "labels.db")
    finally:
        holder.close()


def test_those_who_wait_are_told_of_a_failed_service(monkeypatch):
    told = []
    monkeypatch.setattr(
        server, "send_news", lambda _, nodes, sentence, over: told.append((list(nodes), sentence, over))
    )
    roster = type("Roster", (), {"grid": None, "node_of": {"Ada": 7}})
    with pytest.raises(ServiceError), server._send_news_on_failure(roster):
        raise ServiceError("the disk is full.")
    assert told == [([7], "The operator's server ended the job: the disk is full.", True)]


def test_the_page_says_so_when_the_disk_fails(tmp_path, monkeypatch):
    def full(_):
        raise ServiceError("labels.db does not take the labels: the disk is full.")

    source = open_samples(draw_pictures(tmp_path / "data", 2))
    with open_page(tmp_path, source, ("a", "b")) as served, httpx.Client(trust_env=False) as client:
        came_in = client.get(served.url, follow_redirects=True)
        monkeypatch.setattr(Work, "state", full)
        answer = client.get(came_in.url.join("api/work"))
    assert answer.status_code == 503
    assert answer.json() == {"error": "labels.db does not take the labels: the disk is full."}


def test_papers_that_cannot_be_read_are_told_on_the_page(tmp_path):
    ada = Ada(tmp_path)
    ada.gets_offer()
    paper = next((ada.home / "offers").iterdir())
    paper.unlink()
    paper.mkdir()
    assert "cannot be read: Is a directory" in documents_summary(ada.home)["trouble"]
    assert offer_in_force(ada.home) is None


@pytest.mark.parametrize(
    "start",
    [
        "truthfl join ada.invitation --data pictures --accept",
        "truthfl label --data pictures",
        "truthfl keys participant Ada",
        "truthfl serve job.toml",
        "import truthfl.flower",
        "import truthfl.federation.deployed.node",
        "import truthfl.home.record",
    ],
)
def test_a_system_without_file_locks_is_one_sentence_wherever_one_starts(folder, start):
    """On Windows there is no module fcntl."""
    is_command = start.startswith("truthfl ")
    code = f"import truthfl.cli.entry; sys.argv = {start.split()}; truthfl.cli.entry.main()" if is_command else start
    words = [sys.executable, "-c", f"import sys; sys.modules['fcntl'] = None; {code}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    sentence = "this program runs on POSIX systems, such as Linux and macOS; on Windows, use it in WSL."
    if is_command:
        assert (done.returncode, done.stderr) == (2, f"truthfl: {sentence}\n")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].endswith(f": {sentence}")
    assert not (folder / "keys").exists()
