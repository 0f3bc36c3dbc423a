"""Trainings computed elsewhere: divided into tasks that are known by their content, with the same bits as here."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.small_jobs import small_job_file
from truthfl.contracts.setting import Strategies, Training
from truthfl.job import read_job
from truthfl.learning.data.federations import Data, ModelChoice, build_federation
from truthfl.learning.people.behaviours import TRUTHFUL, behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.learning.training.compute import computed_by, usual_threads
from truthfl.learning.training.train import train
from truthfl.studies.cells import Cell, FederationSpec
from truthfl.studies.cluster import node_call
from truthfl.studies.cluster.node import LARGE, ArrayCall, Digests, opened, parcel_of, pickled, unpickled
from truthfl.studies.cluster.workers import planned_by
from truthfl.studies.work import Store, Workers

DATA = Data(source="digits", pilot_samples=600, test_samples=200)


class ByParcel(Workers):
    """Computes tasks in this process from what would travel."""

    def __init__(self):
        self.tasks, self.digests = 0, Digests()

    def __exit__(self, *error):
        pass

    def compute(self, missing):
        for address, task in missing.items():
            parcel = parcel_of(task, self.digests)
            copies = {digest: pickle.loads(pickle.dumps(array)) for digest, array in parcel.arrays.items()}
            for copy in copies.values():
                copy.flags.writeable = False  # as Ray's are
            self.tasks += 1
            yield address, opened(parcel.call, copies)[0].do()


@pytest.fixture(scope="module")
def built():
    return build_federation(DATA, ModelChoice("softmax"), (60,) * 4, Training(7, 1, 0.3), 1.0)


def echoes(count):
    assigned = np.full(4, 10)
    kinds = (TRUTHFUL, behaviour("echo"))
    return [Profile.of_kinds(kinds, (np.arange(4) == run % 4).astype(np.int64), assigned) for run in range(count)]


@pytest.mark.parametrize(
    ("strategies", "runs", "options"),
    [
        (Strategies.truthful([10.0] * 4), 5, {}),
        (Strategies.truthful([10.0] * 4), 130, {"every": 3}),
        (Strategies(np.linspace(0, 1, 20).reshape(5, 4), 8.0, 1.0), 5, {"step_sizes": np.linspace(0.1, 0.5, 5)}),
        (Strategies.truthful(5.0), 3, {"step_sizes": 0.2}),
        (echoes(6), 6, {"every": 2}),
        (echoes(1)[0], 3, {"start": np.linspace(-0.1, 0.1, 650)}),
        (echoes(5), 5, {"start": np.linspace(-0.1, 0.1, 5 * 650).reshape(5, 650)}),
    ],
    ids=["one strategy", "many runs", "per run", "one number", "behaviours", "one profile", "own starts"],
)
def test_blocks_of_runs_have_the_bits_of_all_runs(built, tmp_path, strategies, runs, options):
    here = train(built.federated, strategies, range(runs), evaluate_on={"test": built.test}, **options)
    workers = ByParcel()
    with planned_by(workers, Store(tmp_path)):
        there = train(built.federated, strategies, range(runs), evaluate_on={"test": built.test}, **options)
    assert np.array_equal(here.params, there.params)
    assert np.array_equal(here.rounds, there.rounds)
    assert np.array_equal(here.evaluations["test"].loss, there.evaluations["test"].loss)
    assert np.array_equal(here.evaluations["test"].accuracy, there.evaluations["test"].accuracy)
    assert here.refused_reports == there.refused_reports
    assert workers.tasks == min(runs, -(-runs // 3) if runs > 64 else runs)


def test_given_labels_are_divided_too(built, tmp_path):
    labels = np.random.default_rng(0).integers(0, 10, (3, 240))
    arguments = (built.federated, Strategies.truthful([10.0] * 4), range(3))
    here = train(*arguments, labels=labels)
    with planned_by(ByParcel(), Store(tmp_path)):
        assert np.array_equal(train(*arguments, labels=labels).params, here.params)


def test_a_plan_is_the_same_and_its_trainings_are_kept(tmp_path):
    job = read_job(small_job_file(tmp_path, "rounds = 30", "rounds = 6\nstep_size = 0.5")).with_contract("audition")
    workers, store, side = ByParcel(), Store(tmp_path / "tasks"), job.server_side()

    def planned():
        contract = job.plan(side).contract
        return {
            name: np.asarray(term).tolist() for name, term in contract.terms().items()
        }, contract.batch_size.tolist()

    here = planned()
    with planned_by(workers, store):
        there = planned()
        done = workers.tasks
        again = planned()
    assert done > 50
    assert workers.tasks == done
    assert here == there == again


def test_large_arrays_are_named_by_what_they_hold():
    large, small, digests = np.arange(LARGE, dtype=np.uint8), np.arange(3), Digests()
    value = {"large": [large, large], "small": small}
    content, arrays = pickled(value, digests)
    assert list(arrays) == [digests.of(large)]
    assert len(content) < LARGE
    found = unpickled(content, arrays)
    assert found["large"][0] is found["large"][1] is large
    assert (found["small"] == small).all()
    call = ArrayCall("a:b", content, b"", arrays)
    assert call.address == ArrayCall("a:b", pickled(value, digests)[0], b"", arrays).address
    large[0] = 7
    assert call.address != ArrayCall("a:b", pickled(value, digests)[0], b"", arrays).address
    assert digests.of(large) != digests.of(large.reshape(2, -1)) != digests.of(large.view(np.int8))


def test_a_file_that_has_changed_is_read_again(tmp_path):
    file, digests = tmp_path / "rows.txt", Digests()
    contents = []
    for number, text in enumerate(["one", "one", "two"]):
        file.write_text(text)
        os.utime(file, ns=(number // 2, number // 2))
        contents.append(digests.of_file(file))
    assert contents[0][1] is contents[1][1]
    assert contents[0][0] != contents[2][0] == Digests().of_file(file)[0]


def test_a_node_without_truthfl_says_so():
    """Ray sends the function as text; importing its module would need truthfl."""
    text = Path(node_call.__file__).read_text()
    code = f"exec({text!r}); print(call_on_node({{}}, b'', ()))"
    answer = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("('unfit', ")
    assert "truthfl is not installed on the node" in answer


OWN_TASK = """
import numpy as np
from truthfl.simulate import ReadSamples, Task

class Mine(Task):
    def read(self, path):
        numbers = np.loadtxt(path)
        return ReadSamples(numbers, tuple("ab"[int(number > 0)] for number in numbers[:, 0]))
"""


def test_the_files_of_a_task_travel_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    np.savetxt(tmp_path / "rows.txt", np.random.default_rng(0).normal(size=(300, 3)))
    (tmp_path / "mine.py").write_text(OWN_TASK)
    data = Data(source=str(tmp_path / "rows.txt"), pilot_samples=100, test_samples=50)
    own = FederationSpec(data, ModelChoice("softmax"), (30, 30), task=TaskChoice(f"{tmp_path / 'mine.py'}:Mine"))
    (task,) = Cell(own, 5, 0.1, 10).tasks([0, 1])
    here, parcel = task.do(), parcel_of(task, Digests())
    for name in ("rows.txt", "mine.py"):
        (tmp_path / name).unlink()  # a node has none of it
    there, names = opened(parcel.call, parcel.arrays)
    assert {name: array.tobytes() for name, array in there.do().items()} == {
        name: array.tobytes() for name, array in here.items()
    }
    federation = there.settings["federation"]
    used = federation["data"]["source"], federation["task"]["use"].rpartition(":")[0]
    assert [names[path] for path in used] == [str(tmp_path / "rows.txt"), str(tmp_path / "mine.py")]
    assert (tmp_path / "node" / f"truthfl-{os.getuid()}").stat().st_mode & 0o077 == 0


def test_built_in_data_are_at_the_node(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()  # not what is meant
    (tmp_path / "digits" / "notes.txt").write_text("private")
    (task,) = Cell(FederationSpec(DATA, ModelChoice("softmax"), (60,) * 4), 5, 0.1, 10).tasks([0])
    parcel = parcel_of(task, Digests())
    assert not parcel.arrays
    assert opened(parcel.call, {})[0] == task


def test_a_node_has_one_thread_for_a_task():
    assert usual_threads() == min(os.cpu_count(), 64)
    with computed_by(most_threads=1):
        assert usual_threads() == 1
    assert usual_threads() == min(os.cpu_count(), 64)
