"""`truthfl status` and `truthfl console` as commands: what they print, how wide, and what they say of bad folders."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

from helpers.commanded_jobs import ConsoleJob
from helpers.commands import begun
from helpers.commands import truthfl as command
from helpers.databases import KEY, opening
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.cli.status import status_lines, status_table
from truthfl.federation.operator.job_watch import job_watch
from truthfl.federation.operator.kept_jobs import keep_ledger_address
from truthfl.ledger.book import open_ledger


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return ConsoleJob.finished(tmp_path_factory)


def test_a_table_within_a_hundred_columns(done):
    told = command("status", "--out", done.folder)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert f"Job {done.name}: over since" in lines[0]
    assert re.search(r"Ben +stopped +\d+/\d+ +2\.\d{4} ", told.stdout)
    assert re.search(r"Ada +settled +\d+/\d+ +0\.\d{4} +12/12 ", told.stdout)
    assert "The job is over." in lines
    assert re.search(r"Settled [\d,]+ \w+: due [\d,]+\.", told.stdout)


def test_many_and_long_names_stay_within_a_hundred_columns(tmp_path):
    from rich.console import Console

    names = ["Ada " * 40, *(f"hospital-{number}" for number in range(60))]
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append("job", "job", "job", opening(job={"clients": {"name": names}}))
        reason = {"stage": "enrolment", "round": None, "client": None, "node": "1", "reason": "r" * 300}
        for number in range(9):
            book.append("job", "rejection", str(number), reason)
    with job_watch(tmp_path) as watched:
        status = watched.read()
    screen = Console(width=100, file=io.StringIO(), record=True)
    screen.print(status_table(status), *status_lines(status), sep="\n")
    text = screen.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "… 21 more" in text
    assert "… and 4 more." in text


def test_json_is_the_whole_status(done):
    told = json.loads(command("status", "--out", done.folder, "--json").stdout)
    assert told["job"] == done.name
    assert [one["name"] for one in told["participants"]] == ["Ada", "Ben", "Cleo", "Dora"]
    assert len(told["rounds"]) == 12


def test_metrics_once(done):
    told = command("status", "--out", done.folder, "--metrics")
    assert "truthfl_rounds_total 12.0\n" in told.stdout


def shown_in(log, words):
    """What this expression finds in what a command says, as soon as it is there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := re.search(words, log.read_text(encoding="utf-8")):
            return found.group()
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))


def test_watched_until_it_is_interrupted(done, tmp_path):
    log, errors = tmp_path / "log", tmp_path / "errors"
    process = begun("status", "--out", done.folder, "--watch", log=log, errors=errors)
    try:
        shown_in(log, "Settled")
    finally:
        process.send_signal(signal.SIGINT)
    assert (process.wait(30), errors.read_text(encoding="utf-8")) == (0, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "nowhere"], "nowhere is not there; name the folder of truthfl serve or truthfl run with --out."),
        (["--out", "."], "has no job yet"),
        (["--out", "file"], "file is not a folder"),
        (["--out", ".", "--json", "--watch"], "--json, --watch and --metrics exclude each other"),
    ],
)
def test_bad_folders_in_a_sentence(tmp_path, words, told):
    (tmp_path / "file").write_text("")
    ended = command("status", *words, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("truthfl: ")
    assert told in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", ["status", "console"])
def test_another_account_gets_a_sentence(done, name):
    done.folder.chmod(0o700)
    code = f"""
import os, sys
from truthfl.cli import app, console, status
from truthfl.cli.participant import label
from truthfl.console import application, metrics
from truthfl.federation.operator import job_watch, live_status
os.setuid(65534)
sys.argv = ["truthfl", {name!r}, "--out", {str(done.folder)!r}]
app.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd="/")
    assert ended.returncode == 3
    assert ended.stderr == f"truthfl: only its owner can read {done.folder}; run this under the operator's account.\n"


def test_a_password_in_the_address_is_not_told(tmp_path):
    keep_ledger_address(tmp_path, "postgresql://ada:hunter2@127.0.0.1:1/none")
    for name in ("status", "console"):
        ended = command(name, "--out", tmp_path)
        assert ended.returncode == 3
        assert "hunter2" not in ended.stdout + ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_the_page_of_a_finished_job(done, tmp_path):
    log = tmp_path / "log"
    process = begun("console", "--out", done.folder, "--no-browser", log=log, errors=tmp_path / "errors")
    try:
        url = shown_in(log, r"http://\S+(?=\s)")
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            assert client.get(url).status_code == 200
            status = client.get(f"{url.split('?')[0]}api/status").json()["status"]
            assert (status["job"], status["can_act"]) == (done.name, True)
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert log.read_text(encoding="utf-8").endswith("Closed.\n")
