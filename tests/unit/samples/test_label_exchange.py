"""Labels out and in again: Label Studio's JSON and CSV, whatever the files are called by then."""

import csv
import errno
import json
import os
from contextlib import closing

import pytest

from helpers.commands import told
from helpers.participants import draw_pictures
from truthfl.errors import ServiceError
from truthfl.samples.label_exchange import export_labels, import_labels
from truthfl.samples.label_store import Decision, LabelState, LabelStore
from truthfl.samples.sources import open_samples

CLASSES = ("cat", "dog", "a, b")


@pytest.fixture
def stores():
    opened = []

    def make(path):
        opened.append(LabelStore(path / "labels.db"))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def worked(store, ids):
    for number, (sample, label) in enumerate(zip(ids, ("cat", "dog", "a, b"), strict=False)):
        store.decide(Decision(f"nonce-{number}", sample, "label", label))
    store.decide(Decision("nonce-flag", ids[1], "flag"))
    store.decide(Decision("nonce-skip", ids[3], "skip"))
    store.decide(Decision("another-flag", ids[4], "flag"))
    return store


def without_numbers(found):
    """What stands where; not by which decision."""
    return {sample: (one.label, one.skipped is not None, one.flagged) for sample, one in found.items()}


@pytest.mark.parametrize("ending", ["json", "csv"])
@pytest.mark.parametrize("kind", ["folder", "text", "row"])
def test_there_and_back(tmp_path, stores, ending, kind):
    if kind == "folder":
        source = open_samples(draw_pictures(tmp_path / "data", 5))
    else:
        header = {"text": "text", "row": "words"}[kind]
        (tmp_path / "t.csv").write_text(f'{header}\none\ntwo\n"three, four"\nfive\nfive\n')
        source = open_samples(tmp_path / "t.csv")
    store = worked(stores(tmp_path / "a"), source.ids)
    file = tmp_path / "out" / f"labels.{ending}"
    assert export_labels(file, source, store) == 3
    fresh = stores(tmp_path / "b")
    assert import_labels(file, source, fresh, CLASSES) == 3
    assert without_numbers(fresh.states()) == {
        source.ids[0]: ("cat", False, False),
        source.ids[1]: ("dog", False, True),
        source.ids[2]: ("a, b", False, False),
        source.ids[3]: (None, True, False),
        source.ids[4]: (None, False, True),
    }
    for one in (fresh, store):
        before = one.states()
        assert import_labels(file, source, one, CLASSES) == 0
        assert one.states() == before


def test_a_table_of_labels_is_safe_to_open_in_a_spreadsheet(tmp_path, stores):
    """The operator names the classes, and who sends pictures names the files."""
    classes = ("=HYPERLINK(0)", "+1+1", "-1-1", "@SUM(A1)", "\uff1d1+1", "'=x", "'quoted", "-5", "plain")
    data = draw_pictures(tmp_path / "data", len(classes))
    (data / "00000.png").rename(data / "=cmd.png")
    (data / "00001.png").rename(data / "\t=cmd.png")
    source, store = open_samples(data), stores(tmp_path / "a")
    for number, (sample, name) in enumerate(zip(source.ids, classes, strict=True)):
        store.decide(Decision(f"nonce-{number}", sample, "label", name))
    file = tmp_path / "labels.csv"
    export_labels(file, source, store)
    with file.open(newline="") as text:
        cells = [cell for row in csv.reader(text) for cell in row]
    assert [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d", "\t"))] == []
    assert "'=HYPERLINK(0)" in cells
    assert "'quoted" in cells
    fresh = stores(tmp_path / "b")
    assert import_labels(file, source, fresh, classes) == len(classes)
    assert without_numbers(fresh.states()) == without_numbers(store.states())


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_a_label_never_goes_to_another_sample_of_the_same_name(tmp_path, stores, ending):
    """Rows, lines and paths may mean other samples by now; ids do not."""
    (tmp_path / "t.csv").write_text("text\none\ntwo\nthree\nfour\nfive\n")
    source = open_samples(tmp_path / "t.csv")
    file = tmp_path / f"labels.{ending}"
    export_labels(file, source, worked(stores(tmp_path / "a"), source.ids))
    (tmp_path / "t.csv").write_text("text\nother\ntwo\nthree\nfour\nfive\n")
    changed, fresh = open_samples(tmp_path / "t.csv"), stores(tmp_path / "b")
    assert "does not have" in told(import_labels, file, changed, fresh, CLASSES)
    assert fresh.states() == {}


def test_label_studios_json_has_its_form(tmp_path, stores):
    source = open_samples(draw_pictures(tmp_path / "data", 5))
    export_labels(tmp_path / "labels.json", source, worked(stores(tmp_path), source.ids))
    tasks = json.loads((tmp_path / "labels.json").read_text())
    assert tasks[1] == {
        "id": 2,
        "data": {"image": "00001.png", "truthfl_id": source.ids[1]},
        "annotations": [
            {
                "result": [
                    {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["dog"]}}
                ],
                "was_cancelled": False,
            }
        ],
        "meta": {"flagged": True},
    }
    assert tasks[3]["annotations"] == [{"result": [], "was_cancelled": True}]
    assert tasks[4]["annotations"] == []


def a_task(image, label, **more):
    result = [{"from_name": "c", "to_name": "i", "type": "choices", "value": {"choices": [label]}}]
    return {
        "id": 7,
        "data": {"image": image},
        "annotations": [{"id": 1, "result": result, "was_cancelled": False}],
    } | more


@pytest.mark.parametrize(
    "address",
    [
        "x/00001.png",
        "/home/somebody/data/x/00001.png",
        "/data/local-files/?d=photos/x/00001.png",
        "/data/upload/3/1a2b3c4d-00001.png",
        "https://example.org/y/x/00001.png",
        "C:\\photos\\x\\00001.png",
    ],
)
def test_labels_made_in_label_studio_find_their_picture(tmp_path, stores, address):
    source = open_samples(draw_pictures(tmp_path / "data" / "x", 3).parent)
    (tmp_path / "theirs.json").write_text(json.dumps([a_task(address, "dog")]))
    store = stores(tmp_path)
    assert import_labels(tmp_path / "theirs.json", source, store, CLASSES) == 1
    assert store.states() == {source.ids[1]: LabelState("dog")}


def test_label_studios_csv(tmp_path, stores):
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with (tmp_path / "theirs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["annotation_id", "image", "choice", "id", "lead_time"])
        writer.writerow([1, "/data/upload/1/abcdef12-00002.png", "cat", 3, 1.5])
    store = stores(tmp_path)
    assert import_labels(tmp_path / "theirs.csv", source, store, CLASSES) == 1
    assert store.states() == {source.ids[2]: LabelState("cat")}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.txt", "", "neither .json"),
        ("x.json", "{", "not valid JSON"),
        ("x.json", "{}", "no list of tasks"),
        ("x.json", "[1]", "has no data"),
        ("x.json", json.dumps([a_task("00000.png", "bird")]), "task 1 of"),
        ("x.json", json.dumps([a_task("nobody.png", "cat")]), "does not have"),
        ("x.json", json.dumps([a_task("same.png", "cat")]), "any of 2 pictures"),
        ("x.json", json.dumps([a_task("00000.png", "cat"), a_task("00000.png", "dog")]), "a second time"),
        ("x.json", json.dumps([a_task("00000.png", "cat", annotations=[{"result": 3}])]), "of another form"),
        ("x.csv", "a,b\n1,2\n", "must be a header"),
        ("x.csv", "name,label\n00000.png,bird\n", "line 2 of"),
        ("x.csv", "name,label\n00000.png,cat\n00001.png,bird\n", "line 3 of"),
    ],
)
def test_bad_files_are_refused_whole(tmp_path, stores, name, content, sentence):
    data = draw_pictures(tmp_path / "data", 2)
    for number, folder in enumerate("ab"):
        (data / folder).mkdir()
        (data / f"0000{number}.png").rename(data / folder / "same.png")
    draw_pictures(data, 2)
    (tmp_path / name).write_text(content)
    store = stores(tmp_path)
    assert sentence in told(import_labels, tmp_path / name, open_samples(data), store, CLASSES)
    assert store.states() == {}


def test_a_missing_file_and_a_place_that_cannot_be_written(tmp_path, stores):
    source = open_samples(draw_pictures(tmp_path / "data", 1))
    store = stores(tmp_path)
    assert "cannot be read" in told(import_labels, tmp_path / "none.csv", source, store, CLASSES)
    (tmp_path / "file").write_text("")
    assert "cannot be written" in told(export_labels, tmp_path / "file" / "x.csv", source, store, kind=ServiceError)


def test_an_export_that_fails_leaves_the_one_before(tmp_path, stores, monkeypatch):
    source, store = open_samples(draw_pictures(tmp_path / "data", 1)), stores(tmp_path)
    export_labels(tmp_path / "x.csv", source, store)
    before = (tmp_path / "x.csv").read_text()
    monkeypatch.setattr(os, "replace", full_disk)
    assert "No space left" in told(export_labels, tmp_path / "x.csv", source, store, kind=ServiceError)
    assert (tmp_path / "x.csv").read_text() == before


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_export_of_many_is_closed_properly(tmp_path):
    with closing(LabelStore(tmp_path / "labels.db")) as store:
        source = open_samples(draw_pictures(tmp_path / "data", 3))
        assert export_labels(tmp_path / "x.csv", source, store) == 0
    assert [path.name for path in tmp_path.glob("*.csv")] == ["x.csv"]
