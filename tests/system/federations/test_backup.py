"""Backup and restore of an operator's ledger and keys: the drill, what is in the file, and what is refused."""

import io
import json
import re
import shutil
import signal
import sqlite3
import tarfile
import time
from contextlib import closing
from hashlib import sha256

import pytest

from helpers.commands import kill_and_resume as script
from helpers.commands import truthfl
from helpers.databases import KEY, opening
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl import __version__
from truthfl.federation.operator.kept_jobs import keep_ledger_address, lock_folder
from truthfl.federation.protocol.recorder import read_checkpoint
from truthfl.ledger.backup import FOLDER, back_up
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.signing import write_key

SECONDS = 120
ROUNDS = 150


def refused(*words, code=2):
    """The one sentence of a command that fails."""
    done = truthfl(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("truthfl: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not re.search(r"Error|Traceback", done.stderr)
    return done.stderr


def rounds_in(folder):
    return len([row for row in script.entries(folder) if row.kind == "round"])


def wait_for_rounds(run, folder, number):
    latest = time.monotonic() + SECONDS
    while rounds_in(folder) < number:
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < latest
        time.sleep(0.05)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    text = re.sub("behaviour = .*", "", script.JOB).replace("rounds = 120", f"rounds = {ROUNDS}")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def served(tmp_path):
    """An operator's folder and keys, with what a server leaves in them."""
    folder, keys = tmp_path / "served", tmp_path / "keys"
    with open_ledger(folder / "ledger.db", KEY) as ledger:
        ledger.append("cats", "job", "job", opening())
    write_key(KEY, keys / "operator")
    for name in ("jobs/cats/secrets.json", "agreement-keys/cats", "models/cats.npy", "live.json", "serve.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    keep_ledger_address(folder, str(folder / "ledger.db"))
    return folder, keys


@pytest.fixture(scope="module")
def undisturbed(job):
    """What is paid if nobody disturbs."""
    return script.undisturbed(job, job.parent / "calm")[0]


def test_the_drill(job, undisturbed, tmp_path):
    """Backed up in mid-training, while it runs; lost, restored elsewhere: the same command goes on, pay is the same."""
    folder, elsewhere, target = tmp_path / "wild", tmp_path / "elsewhere", tmp_path / "backups" / "one.tar"
    run = script.start(job, folder)
    try:
        wait_for_rounds(run, folder, 10)
        back_up(target, {FOLDER: folder}, folder / "ledger.db", __version__)
        assert rounds_in(folder) < ROUNDS, "the rounds were over before the job was backed up"
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    done = truthfl("backup", "--out", folder, tmp_path / "backups" / "after.tar")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder)
    restored = truthfl("restore", target, "--out", elsewhere)
    assert restored.returncode == 0, restored.stderr
    assert "the chain, signatures and pay hold" in restored.stdout
    before = rounds_in(elsewhere)
    assert 10 <= before < ROUNDS
    run = script.start(job, elsewhere)
    _, error = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, error
    assert script.settled(elsewhere) == undisturbed
    assert rounds_in(elsewhere) == ROUNDS
    starts = [row for row in script.entries(elsewhere) if row.kind == "start"]
    assert len(starts) == 2  # it went on, and did not begin anew
    assert truthfl("ledger", "check", elsewhere / "ledger.db").returncode == 0


def test_each_backup_of_a_running_job_has_a_checkpoint_that_fits_its_ledger(job, tmp_path):
    """No round is missing between the ledger and the checkpoint, and none is in the ledger that the model lacks."""
    folder = tmp_path / "wild"
    run = script.start(job, folder)
    try:
        wait_for_rounds(run, folder, 1)
        made = 0
        while run.poll() is None and rounds_in(folder) < ROUNDS and made < 4:
            back_up(tmp_path / f"{made}.tar", {FOLDER: folder}, folder / "ledger.db", __version__)
            made += 1
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    assert made > 1
    for number in range(made):
        place = tmp_path / str(number)
        assert truthfl("restore", tmp_path / f"{number}.tar", "--out", place).returncode == 0
        written = {int(row.key) for row in script.entries(place) if row.kind == "round"}
        (file,) = (one for one in (place / "checkpoints").iterdir() if one.suffix != ".limits")
        checkpoint = read_checkpoint(file)
        pending = {int(item.key) for item in checkpoint.items if item.kind == "round"}
        assert written | pending == set(range(1, checkpoint.rounds + 1))


def test_what_is_in_it_and_that_it_comes_back(served, tmp_path):
    folder, keys = served
    (folder / "a link").symlink_to(keys)
    target, back, keys_back = tmp_path / "one.tar", tmp_path / "back", tmp_path / "keys back"
    with open_ledger(folder / "ledger.db", KEY) as ledger:  # a server has it open, and rows are in its journal
        ledger.append("cats", "enrolment", "Ada", {"name": "Ada"})
        done = truthfl("backup", "--out", folder, "--keys", keys, target)
        assert done.returncode == 0, done.stderr
        ledger.append("cats", "enrolment", "Ben", {"name": "Ben"})
    assert target.stat().st_mode & 0o077 == 0
    with tarfile.open(target) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("manifest.json"))
        digests = {name: sha256(tar.extractfile(name).read()).hexdigest() for name in names[:-1]}
    assert names[-1] == "manifest.json"
    assert set(names[:-1]) == {
        *(
            f"folder/{name}"
            for name in ("ledger.db", "jobs/cats/secrets.json", "agreement-keys/cats", "models/cats.npy")
        ),
        *("keys/operator", "keys/operator.pub", "keys/.gitignore"),
    }
    assert {name: digest for name, (digest, _) in manifest["files"].items()} == digests
    done = truthfl("restore", target, "--out", back, "--keys", keys_back)
    assert done.returncode == 0, done.stderr
    with open_for_reading(back / "ledger.db") as ledger:
        assert [row.key for row in ledger.entries()] == ["job", "Ada"]
    assert (keys_back / "operator").read_bytes() == (keys / "operator").read_bytes()
    assert all(path.stat().st_mode & 0o077 == 0 for path in [back, keys_back, *back.rglob("*"), *keys_back.rglob("*")])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_ledger_in_postgresql_is_left_to_pg_dump(served, tmp_path):
    folder, _ = served
    (folder / "ledger.db").unlink()
    keep_ledger_address(folder, "postgresql://me:secret@127.0.0.1/truthfl")
    done = truthfl("backup", "--out", folder, tmp_path / "one.tar")
    assert done.returncode == 0, done.stderr
    assert "copy it with pg_dump" in done.stdout
    assert b"secret@" not in (tmp_path / "one.tar").read_bytes()
    done = truthfl("restore", tmp_path / "one.tar", "--out", tmp_path / "back")
    assert "restore its copy of the same moment" in done.stdout
    assert (tmp_path / "back" / "jobs" / "cats" / "secrets.json").exists()
    with lock_folder(folder):
        said = refused("backup", "--out", folder, tmp_path / "two.tar")
    assert "end it, then copy the database with pg_dump" in said
    assert "secret" not in said


def test_backups_that_cannot_be_made(served, tmp_path):
    folder, keys = served
    missing, target = tmp_path / "missing", tmp_path / "one.tar"
    assert f"{missing} is no folder" in refused("backup", "--out", missing, target)
    assert f"{missing} is no folder" in refused("backup", "--out", folder, "--keys", missing, target)
    assert "which is backed up; name a file elsewhere" in refused("backup", "--out", folder, folder / "one.tar")
    assert "there is no ledger" in refused("backup", "--out", keys, target)
    target.write_text("precious")
    assert "exists already, and is not replaced" in refused("backup", "--out", folder, target)
    assert target.read_text() == "precious"
    assert "cannot be written: Not a directory" in refused("backup", "--out", folder, target / "x.tar", code=3)
    (folder / "ledger.db").write_text("no ledger " * 100)
    assert "it is no SQLite file" in refused("backup", "--out", folder, tmp_path / "two.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys", "one.tar", "served"]


def changed(source, target, change):
    """A copy of a backup in which `change` was called with each member and its content; None leaves it out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = old.extractfile(member).read()
            made = change(member, content)
            if made is not None:
                member.size = len(made) if member.isreg() else 0
                new.addfile(member, io.BytesIO(made))
    return target


def to(known_as, **values):
    def change(member, content):
        if member.name == known_as:
            for field, value in values.items():
                setattr(member, field, value)
        return content

    return change


def test_backups_that_are_not_restored(served, tmp_path):
    folder, keys = served
    target, back = tmp_path / "one.tar", tmp_path / "back"
    assert truthfl("backup", "--out", folder, "--keys", keys, target).returncode == 0
    places = ["--out", back, "--keys", tmp_path / "keys back"]
    secret = "folder/jobs/cats/secrets.json"
    cases = {
        "changed": lambda member, content: b"other" if member.name == secret else content,
        "left out": lambda member, content: None if member.name == secret else content,
        "without manifest": lambda member, content: None if member.name == "manifest.json" else content,
        "outside": to(secret, name="folder/../../outside"),
        "absolute": to(secret, name=str(tmp_path / "outside")),
        "elsewhere": to(secret, name="outside"),
        "link": to(secret, type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "hard link": to(secret, type=tarfile.LNKTYPE, linkname="folder/ledger.db"),
        "device": to(secret, type=tarfile.CHRTYPE),
        "twice": to(secret, name="folder/ledger.db"),
    }
    for what, change in cases.items():
        file = changed(target, tmp_path / f"{what}.tar", change)
        said = refused("restore", file, *places)
        told = {"changed": "is not the file that was backed up", "left out": "other files than its manifest lists"}
        told |= {"without manifest": "only a part of one", "twice": "only a part of one"}
        assert told.get(what, "has a member that no backup has") in said, what
        assert not back.exists()
        assert not (tmp_path / "outside").exists()
    (tmp_path / "short.tar").write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    assert "only a part of one" in refused("restore", tmp_path / "short.tar", *places)
    (tmp_path / "text.tar").write_text("no tar " * 500)
    assert "is no backup" in refused("restore", tmp_path / "text.tar", *places)
    assert "there is no file" in refused("restore", tmp_path / "missing.tar", *places)
    assert "say with --keys where" in refused("restore", target, "--out", back)
    assert "has no participants in it" in refused("restore", target, *places, "--participants", tmp_path / "people")
    assert "is not empty, and nothing in it is replaced" in refused("restore", target, "--out", folder, *places[2:])
    assert "is not empty, and nothing in it is replaced" in refused("restore", target, *places[:2], "--keys", keys)
    assert not back.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_ledger_that_was_changed_in_the_backup_is_not_restored(served, tmp_path):
    """Whoever changes it can write a new manifest; the ledger's own chain still tells."""
    folder, _ = served
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE entries SET payload = '{\"job\":7}'")
        connection.commit()
    assert truthfl("backup", "--out", folder, tmp_path / "one.tar").returncode == 0
    said = refused("restore", tmp_path / "one.tar", "--out", tmp_path / "back")
    assert "does not hold" in said
    assert not (tmp_path / "back").exists()
