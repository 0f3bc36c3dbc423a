"""`truthfl label` as people use it: its address, its files, its sentences."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from helpers.commands import truthfl
from helpers.participants import Ada, draw_pictures
from truthfl.ledger.signing import write_key
from truthfl.samples.handmade_labels import labels_of
from truthfl.samples.label_store import Decision, LabelStore
from truthfl.samples.sample import NAMES
from truthfl.samples.sources import open_samples


def run(*arguments, cwd=None):
    return truthfl("label", *arguments, cwd=cwd)


@pytest.fixture
def data(tmp_path):
    return draw_pictures(tmp_path / "data", 3)


def test_it_serves_a_page_until_it_is_stopped(tmp_path, data):
    (data / "broken.png").write_bytes(b"no")
    command = [sys.executable, "-m", "truthfl", "label", "--data", data, "--home", tmp_path / "home", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://127\.0\.0\.1:\d+/\S+/\?token=\S+", lines[1]).group()
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            assert "<title>Label" in client.get(url).text
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert lines[0].startswith("3 pictures from ")
    assert out.strip() == "Stopped. All decisions are kept."
    assert err == f"truthfl: passed over: broken.png is no {NAMES} picture, whatever its name says.\n"
    assert process.returncode == 0
    assert not (tmp_path / "home" / "labels.db-wal").exists()  # it was closed properly
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0  # for Ada's eyes alone


def test_export_and_import(tmp_path, data):
    home = tmp_path / "home"
    store = LabelStore(home / "labels.db")
    ids = open_samples(data).ids
    store.decide(Decision("a-nonce", ids[1], "label", "dog"))
    store.close()
    both = ("--data", data, "--classes", "cat,dog")
    done = run(*both, "--home", home, "--export", tmp_path / "out.json")
    assert done.stdout == f"1 labels of 3 samples written to {tmp_path / 'out.json'}.\n"
    done = run(*both, "--home", tmp_path / "other", "--import", tmp_path / "out.json", "--export", tmp_path / "out.csv")
    assert done.stdout.startswith("1 labels imported from ")
    assert f"00001.png,{ids[1]},dog,," in (tmp_path / "out.csv").read_text()
    assert labels_of(tmp_path / "other" / "labels.db", [ids[1]], ("cat", "dog")).tolist() == [1]


def test_rows_of_a_table_are_labeled_exported_and_taken_in(tmp_path):
    (tmp_path / "rows.csv").write_text("age,city\n31,Paris\n45,Bergen\n")
    source = open_samples(tmp_path / "rows.csv")
    with closing(LabelStore(tmp_path / "home" / "labels.db")) as store:
        store.decide(Decision("a-nonce", source.ids[1], "label", "yes"))
    rows = ("--data", tmp_path / "rows.csv", "--task", "tables", "--classes", "no,yes")
    done = run(*rows, "--home", tmp_path / "home", "--export", tmp_path / "out.json")
    assert done.stdout == f"1 labels of 2 samples written to {tmp_path / 'out.json'}.\n"
    tasks = json.loads((tmp_path / "out.json").read_text())
    assert tasks[1]["data"]["text"] == "age: 45\ncity: Bergen"
    del tasks[1]["data"]["truthfl_id"]  # it is found by what is shown, too
    (tmp_path / "out.json").write_text(json.dumps(tasks))
    done = run(*rows, "--home", tmp_path / "other", "--import", tmp_path / "out.json")
    assert done.stdout.startswith("1 labels imported from ")
    assert labels_of(tmp_path / "other" / "labels.db", source.ids[1:], ("no", "yes")).tolist() == [1]


def test_an_offers_classes_are_the_ones_that_count(tmp_path, data):
    ada = Ada(tmp_path)
    ada.gets_offer(classes=("cat", "dog"))
    (tmp_path / "labels.csv").write_text("name,label\n00000.png,7\n")
    done = run("--data", data, "--home", ada.home, "--classes", "7,8", "--import", tmp_path / "labels.csv")
    assert done.returncode == 2
    assert done.stderr.endswith("has the label '7'; it must be one of cat, dog.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--task", "sounds"], "task is 'sounds'; it must be pictures, tables, texts"),
        (["--classes", "one"], "two or more different names"),
        (["--classes", "a,a"], "two or more different names"),
        (["--key", "nokey"], "nokey cannot be read"),
        (["--export", "labels.xml"], "neither .json"),
        (["--import", "nofile.csv"], "cannot be read"),
    ],
)
def test_bad_arguments_leave_one_sentence(tmp_path, data, arguments, sentence):
    given = arguments if "--data" in arguments else ["--data", data, *arguments]
    done = run(*given, "--no-browser", cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_key_of_another_kind(tmp_path, data):
    write_key(Ada(tmp_path).key, tmp_path / "mine")
    Path(tmp_path / "mine").write_text("no key")
    assert "is no private key" in run("--data", data, "--key", tmp_path / "mine", cwd=tmp_path).stderr
