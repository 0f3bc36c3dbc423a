"""The guide to a custom task: its files are the example's, and its commands go from keys to a receipt."""

import csv
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.commands import free_port
from truthfl.job import read_job
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view

ROOT = Path(__file__).parents[3]
GUIDE, EXAMPLE = ROOT / "docs" / "own_task.md", ROOT / "examples" / "own_task"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 240
GUIDE_PORT, ROUNDS = "8443", 3
BY_HAND = "Cleo"
IN_ONE_PROCESS = ("plan", "verify", "run")


def blocks(page, language):
    return [text for found, text in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


def commands(page):
    return re.findall(r"^\$ (.*)$", "\n".join(blocks(page, "console")), flags=re.MULTILINE)


def test_the_guide_shows_the_example():
    in_numpy, in_torch, _, _ = blocks(GUIDE, "python")
    assert in_numpy == (EXAMPLE / "tumour_numpy.py").read_text(encoding="utf-8")
    assert in_torch == (EXAMPLE / "tumour_torch.py").read_text(encoding="utf-8")
    assert blocks(GUIDE, "toml")[1] == (EXAMPLE / "job.toml").read_text(encoding="utf-8")
    assert commands(GUIDE) == commands(EXAMPLE / "README.md")
    assert len(in_torch.partition("class ")[2].splitlines()) <= 15


def test_a_table_needs_no_code(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(blocks(GUIDE, "toml")[0], encoding="utf-8")
    assert read_job(path).server_side().task.classes == ("benign", "malignant")


@pytest.mark.parametrize(("number", "library"), [(0, "numpy"), (1, "torch"), (2, "jax"), (3, "sklearn")])
def test_each_class_of_the_guide_is_a_task_that_can_be_trained(number, library, tmp_path):
    pytest.importorskip(library)
    (tmp_path / "tumour.py").write_text(blocks(GUIDE, "python")[number], encoding="utf-8")
    job = (EXAMPLE / "torch_job.toml").read_text(encoding="utf-8").replace("tumour_torch.py", "tumour.py")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    side = read_job(tmp_path / "job.toml").server_side()  # scores and gradients are checked there
    assert side.pilot.model.size > 0


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_the_examples_commands_in_one_process(name, tmp_path):
    (command,) = (line for line in commands(EXAMPLE / "README.md") if line.startswith(f"truthfl {name} "))
    told = truthfl(prepared(tmp_path), *shlex.split(command)[1:])
    assert {"plan": "Ada", "verify": "audition", "run": "Ledger: tried/ledger.db"}[name] in told


def test_the_example_in_pytorch(tmp_path):
    pytest.importorskip("torch")
    folder = shutil.copytree(EXAMPLE, tmp_path / "here")
    truthfl(folder, "run", "torch_job.toml", "--out", "tried")


def truthfl(folder, *words):
    command = [sys.executable, "-m", "truthfl", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def start(folder, words, name):
    command = [sys.executable, "-m", "truthfl", *words]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def log(folder, name):
    return (folder / f"{name}.log").read_text(encoding="utf-8")


def wait_for(folder, name, words, process):
    end = time.monotonic() + SECONDS
    while words not in log(folder, name):
        assert process.poll() is None, log(folder, name)
        assert time.monotonic() < end, log(folder, name)
        time.sleep(0.1)


def stop(started):
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in started:
        process.wait(60)


def prepared(tmp_path):
    """The example's folder with a job of few rounds."""
    folder = shutil.copytree(EXAMPLE, tmp_path / "here")
    job = (folder / "job.toml").read_text(encoding="utf-8")
    assert "rounds = 20" in job
    (folder / "job.toml").write_text(job.replace("rounds = 20", f"rounds = {ROUNDS}"), encoding="utf-8")
    return folder


def label_by_hand(folder, words):
    """Open the page, and close it; then take in labels from a file, as they would be made on the page."""
    page = start(folder, [*words, "--no-browser"], "label")
    try:
        wait_for(folder, "label", "http://", page)
    finally:
        stop([page])
    truthfl(folder, *words, "--export", "labels.csv")
    with (folder / "shares" / f"{BY_HAND}.csv").open(newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    with (folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": label} for row, label in zip(rows, labels, strict=True))
    assert "benign" not in (folder / "rows.csv").read_text(encoding="utf-8")
    truthfl(folder, *words, "--import", "labels.csv")


def test_the_commands_from_keys_to_receipts(tmp_path):
    folder, port, started, joins, said = prepared(tmp_path), str(free_port()), {}, [], []
    try:
        for command in commands(GUIDE):
            words = [word.replace(GUIDE_PORT, port) for word in shlex.split(command)]
            if words[0] != "truthfl":
                subprocess.run(command, shell=True, cwd=folder, check=True)
            elif words[1] == "label":
                label_by_hand(folder, words[1:])
            elif words[1] == "serve":
                started["serve"] = start(folder, words[1:], "serve")
                wait_for(folder, "serve", "waiting for 3 clients", started["serve"])
            elif words[1] == "join":
                name = words[words.index("--name") + 1]
                started[name] = start(folder, words[1:], name)
                joins.append(name)
            elif words[1] not in IN_ONE_PROCESS:
                for name, process in started.items():  # what comes after the job
                    assert process.wait(SECONDS) == 0, log(folder, name) + log(folder, "serve")
                said.append(truthfl(folder, *words[1:]))
    finally:
        stop(started.values())
    assert joins == ["Ada", "Ben", "Cleo"]
    assert all("It holds." in log(folder, name) for name in joins)
    with open_for_reading(folder / "served" / "ledger.db") as book:
        rows = book.entries()
    assert check(rows) is None
    found = job_view(rows[0].job, rows)
    assert found.delivered == dict.fromkeys(joins, ROUNDS)
    assert found.job.document["job"]["task"]["use"] == "tumour_numpy.py:Tumour"
    assert (folder / "payout.csv").read_text(encoding="utf-8").count("\n") == 4
    assert any("was recomputed" in one for one in said)
