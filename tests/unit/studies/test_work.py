"""Tasks: the same work has one address, is done once, survives interruption and broken files, and fails clearly."""

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.errors import ServiceError
from truthfl.learning.data.federations import Data, ModelChoice
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.studies.cells import Cell, CellResult, FederationSpec
from truthfl.studies.cluster.node import ArrayCall
from truthfl.studies.work import Store, WorkError, WorkItem, do_all, source_digest

PLACE = FederationSpec(Data(source="digits", pilot_samples=600, test_samples=200), ModelChoice("softmax"), (60,) * 4)
ON_A_TABLE = replace(PLACE, task=TaskChoice("tables"))
NAMES = st.text("abcde", min_size=1, max_size=4)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def calls(monkeypatch):
    """Work that any task can name: it notes what it was called with."""
    noted = []
    module = ModuleType("truthfl.noted_work")

    def square(number):
        noted.append(number)
        if number == 13:
            raise ZeroDivisionError("thirteen")
        return {"square": np.array([number**2])}

    module.square = square
    monkeypatch.setitem(sys.modules, "truthfl.noted_work", module)
    return noted


def squares(*numbers):
    return [WorkItem("noted_work:square", {"number": n}) for n in numbers]


@given(st.dictionaries(NAMES, PLAIN, max_size=4))
def test_an_address_does_not_depend_on_the_order_of_settings(settings):
    turned = dict(reversed(settings.items()))
    assert WorkItem("a:b", settings).address == WorkItem("a:b", turned).address
    assert WorkItem("a:b", settings).address != WorkItem("a:c", settings).address
    assert WorkItem("a:b", settings | {"more": 1}).address != WorkItem("a:b", settings | {"more": 2}).address


def test_results_of_other_code_are_not_taken_for_those_of_this_code(tmp_path, monkeypatch, calls):
    package, store = tmp_path / "truthfl", Store(tmp_path / "kept")
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr("truthfl.__file__", str(package / "__init__.py"))
    for number, kernel in enumerate(("x = 1;", "x = 2;", "x = 1;")):
        (package / "kernel.c").write_text(kernel)
        source_digest.cache_clear()
        do_all(squares(3), store, workers=1)
        assert len(calls) == min(number + 1, 2)
    calls_here = ArrayCall("a:b", b"", b"", {}).address
    monkeypatch.undo()
    source_digest.cache_clear()
    assert ArrayCall("a:b", b"", b"", {}).address != calls_here


def test_work_is_done_once_and_given_in_order(tmp_path, calls):
    store = Store(tmp_path / "kept")
    told_of = []
    tasks = squares(3, 2, 3)
    results = do_all(tasks, store, workers=1, progress=lambda *p: told_of.append(p))
    assert [int(r["square"][0]) for r in results] == [9, 4, 9]
    assert calls == [3, 2]
    assert told_of == [(0, 2), (1, 2), (2, 2)]
    do_all(squares(2, 5), store, workers=1)
    assert calls == [3, 2, 5]


def test_what_was_done_before_an_interruption_is_there_after_it(tmp_path, calls):
    store = Store(tmp_path)

    def interrupt(done, _all):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do_all(squares(1, 2, 3, 4), store, workers=1, progress=interrupt)
    assert calls == [1, 2]
    do_all(squares(1, 2, 3, 4), store, workers=1)
    assert calls == [1, 2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but no more", b"numbers", None])
def test_a_broken_file_is_work_to_be_done(tmp_path, calls, content):
    store = Store(tmp_path)
    (task,) = squares(6)
    do_all([task], store, workers=1)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    assert store.get(task) is None
    assert int(do_all([task], store, workers=1)[0]["square"][0]) == 36
    assert calls == [6, 6]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_failing_task_says_which_and_how_and_keeps_the_others(tmp_path, calls):
    store = Store(tmp_path)
    with pytest.raises(WorkError, match=r"noted_work:square failed \(ZeroDivisionError: thirteen\).*13"):
        do_all(squares(1, 13, 2), store, workers=1)
    do_all(squares(1), store, workers=1)
    assert calls == [1, 13]


@pytest.mark.usefixtures("calls")
def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in told(do_all, squares(1), Store(tmp_path / "file"), workers=1, kind=ServiceError)


def cell(**varied):
    return Cell(PLACE, 6, 0.5, 10, every=3, **varied)


def test_one_process_and_two_give_the_same_bits(tmp_path):
    on_a_table = replace(cell(), federation=ON_A_TABLE).tasks([0])
    tasks = [*cell().tasks(range(12)), *cell(report_scale=2.0).tasks([0, 1]), *on_a_table]
    assert len(tasks) == 4
    one, two = do_all(tasks, Store(tmp_path / "1"), workers=1), do_all(tasks, Store(tmp_path / "2"), workers=2)
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        assert all((a[name] == b[name]).all() for name in a)
    seen = CellResult.of(one[:2])
    assert seen.train_loss.shape == (12, 2)
    assert seen.rounds.tolist() == [3, 6]


def test_errors_in_other_processes_arrive_as_they_are(tmp_path):
    good, bad = cell().tasks([0])[0], cell(report_scale=2.0).tasks([0])[0]
    federation = bad.settings["federation"]
    nowhere = federation | {"data": federation["data"] | {"source": "nowhere"}}
    wrong_data = WorkItem(bad.work, {**bad.settings, "federation": nowhere})
    assert "nowhere" in told(do_all, [good, wrong_data], Store(tmp_path), workers=2)
    unknown_setting = WorkItem(bad.work, {**bad.settings, "colour": "red"})
    with pytest.raises(WorkError, match="colour"):
        do_all([cell().tasks([1])[0], unknown_setting], Store(tmp_path), workers=2)


def test_more_seeds_leave_earlier_tasks_as_they_are():
    few, many = cell().tasks(range(20)), cell().tasks(range(30))
    assert [task.address for task in many[:2]] == [task.address for task in few]


def test_work_on_another_task_has_another_address():
    assert replace(cell(), federation=ON_A_TABLE).tasks([0])[0].address != cell().tasks([0])[0].address


def test_changed_data_are_another_task(tmp_path):
    file = tmp_path / "own.npz"
    file.write_bytes(b"one")
    task = WorkItem("studies.cells:train_cell", {"federation": {"data": {"source": str(file)}}})
    before = task.address
    assert task.address == before
    file.write_bytes(b"three")
    assert task.address != before
