"""Two tabs, many samples at once, imports, other classes: over HTTP and by the command, nothing is lost in silence."""

import os
import pty
import subprocess
import sys
from contextlib import closing

import httpx
import pytest

from helpers.commands import truthfl
from helpers.participants import draw_pictures
from truthfl.page.access import CSRF_HEADER
from truthfl.page.serving import open_page
from truthfl.samples.label_store import Decision, LabelStore
from truthfl.samples.sources import open_samples

CLASSES = ("cat", "dog")


@pytest.fixture
def data(tmp_path):
    return draw_pictures(tmp_path / "data", 4)


@pytest.fixture
def page(tmp_path, data):
    """A client of the page; `said` sends a decision with a new nonce."""
    with (
        open_page(tmp_path / "home", open_samples(data), CLASSES) as opened,
        httpx.Client(base_url=opened.url.split("/?")[0], trust_env=False) as client,
    ):
        client.get(opened.url)
        work = client.get("/api/work").json()
        origin = opened.url[: opened.url.index("/", 8)]
        client.headers.update({"origin": origin, CSRF_HEADER: work["csrf"]})
        nonces = iter(range(100))

        def said(path="decisions", **fields):
            return client.post(
                f"/api/{path}", json={"edition": work["edition"], "nonce": f"nonce-{next(nonces):04}"} | fields
            )

        client.said = said
        yield client


def labels(page):
    return page.get("/api/work").json()["labels"]


def test_the_second_of_two_tabs_is_told(page):
    assert page.said(position=0, action="label", label=0, seen=-1).json()["label"] == 0
    refused = page.said(position=0, action="label", label=1, seen=-1)
    assert refused.status_code == 409
    assert refused.json()["conflict"] == [{"position": 0, "label": 0, "skipped": False, "flagged": False}]
    assert page.said(position=0, action="skip", seen=-1).status_code == 409
    assert labels(page) == [0, -1, -1, -1]
    assert page.said(position=0, action="flag", seen=-1).status_code == 200  # a flag replaces no label
    assert page.said(position=0, action="label", label=1, seen=0).json()["label"] == 1
    assert page.said(position=0, action="label", label=0).status_code == 200  # who says nothing is not asked


def test_many_get_one_label_and_it_is_undone_at_once(page):
    page.said(position=1, action="label", label=0)
    refused = page.said("decisions/bulk", positions=[0, 1], label=1, seen=[-1, -1])
    assert refused.status_code == 409
    assert [one["position"] for one in refused.json()["conflict"]] == [1]
    assert labels(page) == [-1, 0, -1, -1]
    made = page.said("decisions/bulk", positions=[0, 1, 3], label=1, seen=[-1, 0, -1]).json()
    assert (made["action"], made["position"], [one["position"] for one in made["also"]]) == ("label", 0, [1, 3])
    assert labels(page) == [1, 1, -1, 1]
    undone = page.said("undo").json()
    assert [undone["label"], *(one["label"] for one in undone["also"])] == [-1, 0, -1]
    assert labels(page) == [-1, 0, -1, -1]


@pytest.mark.parametrize(
    "fields",
    [
        {"positions": [], "seen": []},
        {"positions": [0, 0], "seen": [-1, -1]},
        {"positions": [0], "seen": []},
        {"positions": [True], "seen": [-1]},
        {"positions": [9], "seen": [-1]},
        {"positions": [0], "seen": [-1], "label": 2},
        {"positions": [[0]], "seen": [-1]},
    ],
)
def test_bad_bulk_requests_store_nothing(page, fields):
    assert page.said("decisions/bulk", **({"label": 0} | fields)).status_code == 422
    assert labels(page) == [-1] * 4


def test_the_page_knows_of_labels_of_other_classes(page, tmp_path, data):
    with closing(LabelStore(tmp_path / "home" / "labels.db")) as store:
        store.decide(Decision("other-nonce", open_samples(data).ids[2], "label", "fox"))
    work = page.get("/api/work").json()
    assert (work["other_classes"], work["labels"]) == ({"fox": [2]}, [-1] * 4)
    assert page.said(position=2, action="label", label=0, seen=-1).status_code == 200  # the page told of it
    page.said("undo")
    assert page.get("/api/work").json()["other_classes"] == {"fox": [2]}


def label_command(*arguments, **more):
    return truthfl("label", "--no-browser", *arguments, **more)


def test_an_import_over_labels_is_asked_for(tmp_path, data):
    home, ids = tmp_path / "home", open_samples(data).ids
    with closing(LabelStore(home / "labels.db")) as store:
        store.decide(Decision("first-nonce", ids[0], "label", "cat"))
    (tmp_path / "new.csv").write_text("name,label\n00000.png,dog\n00001.png,dog\n")
    arguments = ("--data", data, "--home", home, "--classes", "cat,dog", "--import", tmp_path / "new.csv")
    refused = label_command(*arguments)
    assert refused.returncode == 2
    assert "1 of the labels in" in refused.stderr
    assert "nothing was imported. --replace takes the file's." in refused.stderr
    with closing(LabelStore(home / "labels.db")) as store:
        assert {state.label for state in store.states().values()} == {"cat"}
        assert label_command(*arguments, "--replace").stdout.startswith("2 labels imported")
        assert [store.states()[sample].label for sample in ids[:2]] == ["dog", "dog"]
        store.undo("undo-nonce", ids)
        assert [store.states()[sample].label for sample in ids[:2]] == ["cat", None]


def answered(command, answer):
    """Run a command at a terminal, and give this answer when it asks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    os.close(theirs)
    os.write(ours, answer)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    return process.returncode, out


def test_other_classes_in_the_same_home_are_told_and_asked_for(tmp_path, data):
    home = tmp_path / "home"
    with closing(LabelStore(home / "labels.db")) as store:
        store.decide(Decision("first-nonce", open_samples(data).ids[0], "label", "fox"))
    arguments = ("--data", data, "--home", home, "--classes", "cat,dog")
    refused = label_command(*arguments)
    assert refused.returncode == 2
    assert "1 label is of a class that is not among cat, dog: fox. They are kept" in refused.stderr
    assert "--keep-other-classes" in refused.stderr
    command = [sys.executable, "-m", "truthfl", "label", "--no-browser", *map(str, arguments)]
    code, out = answered(command, b"n\n")
    assert code == 0
    assert "Go on with the new classes?" in out
    assert "The page" not in out
    (tmp_path / "new.csv").write_text("name,label\n00000.png,dog\n")
    code, out = answered([*command, "--import", str(tmp_path / "new.csv")], b"y\n")
    assert (code, "1 label differs from the one that you have" in out, "1 labels imported" in out) == (0, True, True)
