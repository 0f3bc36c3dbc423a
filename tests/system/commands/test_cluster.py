"""Studies on a Ray cluster: the same bits as here, though a node ends in mid-run; what is said where there is none."""

import importlib.util
import platform
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import truthfl
from helpers.commands import told
from helpers.ray_cluster import AT_LOOPBACK, LOOPBACK, two_nodes
from truthfl.cli.app import app
from truthfl.errors import ServiceError
from truthfl.learning.data.federations import Data, ModelChoice
from truthfl.studies.cells import Cell, FederationSpec
from truthfl.studies.cluster import broker as connecting
from truthfl.studies.cluster.broker import ClusterAddress, cluster_address, refusal, running_cluster
from truthfl.studies.cluster.node import facts, unfit_reason
from truthfl.studies.cluster.workers import RayWorkers, planned_by
from truthfl.studies.work import Store, WorkItem, do_all

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install 'truthfl[cluster]'")
PLACE = FederationSpec(Data(source="digits", pilot_samples=600, test_samples=200), ModelChoice("softmax"), (60,) * 4)
LONG = Cell(PLACE, 2000, 0.5, 10, every=1000)


@pytest.mark.parametrize(
    ("on", "meant"),
    [
        ("ray", ClusterAddress()),
        ("ray://head:10001", ClusterAddress("head:10001", client=True)),
        ("ray://10.0.0.7", ClusterAddress("10.0.0.7:10001", client=True)),
        ("head.example.org:6379", ClusterAddress("head.example.org:6379")),
        ("ray://[::1]:7", ClusterAddress("[::1]:7", client=True)),
    ],
)
def test_clusters_that_are_named(on, meant):
    assert cluster_address(on) == meant


@pytest.mark.parametrize(
    "on", ["rey", "", "ray:", "ray://", "ray://head:", "head:0", "head:65536", "http://head:1", "a b:1"]
)
def test_what_names_no_cluster(on):
    assert "must be ray for a cluster on this machine" in told(cluster_address, on)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install 'truthfl[cluster]'" in told(RayWorkers, "ray")


def test_ray_is_imported_by_none_of_our_modules():
    code = (
        "import sys, truthfl.cli.plan, truthfl.cli.verify, truthfl.cli.reproduce, truthfl.simulate, "
        "truthfl.studies.verify.job_verification, truthfl.studies.cluster.workers; sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_address_where_nobody_is(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"  # nobody listens
        assert "is not reached (Connection refused)" in told(
            connecting.connect, cluster_address(place), kind=ServiceError
        )
        taken.listen()
        monkeypatch.setattr(connecting, "SECONDS", 0.2)
        for on in (place, f"ray://{place}"):
            assert "is no Ray cluster" in told(connecting.connect, cluster_address(on), kind=ServiceError)


def test_a_cluster_that_runs_here_is_joined_if_it_answers(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert running_cluster() is None
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # it has ended
    assert running_cluster() is None
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert running_cluster() == ClusterAddress("head:10001", client=True)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert running_cluster() is None


def test_nodes_with_other_versions():
    here = facts()
    assert unfit_reason(here, here, "n7") == ""
    assert here["Python"] == ".".join(platform.python_version().split(".")[:2])
    for name, word in (("Python", "Python"), ("truthfl", "truthfl"), ("NumPy", "NumPy"), ("source", "source files")):
        said = unfit_reason(here, here | {name: "0.0.1"}, "n7")
        assert word in said
        assert "n7" in said
        assert said.endswith(".")
    assert "TRUTHFL_KERNEL=plain" in unfit_reason(here | {"kernel": "avx2"}, here | {"kernel": "plain"}, "n7")


@needs_ray
def test_what_ray_says_of_other_versions_becomes_a_sentence():
    found = subprocess.run([sys.executable, "-c", OTHER_VERSION], capture_output=True, text=True, check=True).stdout
    assert "1.0.0" in found
    said = str(refusal(cluster_address("head:6379"), found, "2.55.1"))
    assert said.startswith("the Ray cluster at head:6379 has Ray 1.0.0 and Python 3.0.1, this machine Ray 2.55.1")
    assert "\n" not in said


OTHER_VERSION = """
from ray._private.utils import check_version_info
try:
    check_version_info({"ray_version": "1.0.0", "python_version": "3.0.1"}, "here")
except Exception as error:
    print(error)
"""


@needs_ray
def test_a_study_on_two_nodes_of_which_one_ends(tmp_path, monkeypatch):
    """One cluster for all of it, since starting one is the most of its time."""
    for name, value in AT_LOOPBACK.items():
        monkeypatch.setenv(name, value)
    alone = {task.address: result for task, result in done_here(tmp_path / "here")}
    with two_nodes() as cluster:
        assert cluster.head.startswith(f"{LOOPBACK}:")
        kept = Store(tmp_path / "kept")
        with RayWorkers(cluster.head) as workers:
            assert_the_end_of_a_node_and_an_interruption_lose_nothing(workers, cluster, kept)
        with RayWorkers(f"ray://127.0.0.1:{cluster.client_port}") as workers:
            assert_the_rest_is_done_and_all_is_the_same(workers, kept, alone)
            assert_files_travel(workers, tmp_path)
            assert_trainings_of_a_plan_are_the_same(workers, Store(tmp_path / "plan"))


def long_tasks():
    return LONG.tasks(range(80))


def done_here(folder):
    return zip(long_tasks(), do_all(long_tasks(), Store(folder), workers=1), strict=True)


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def assert_the_end_of_a_node_and_an_interruption_lose_nothing(workers, cluster, kept):
    def progress(done, _all):
        if done == 1:
            cluster.end_a_node()
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do_all(long_tasks(), kept, workers=workers, progress=progress)
    assert workers.repeated >= 1
    assert sum(kept.get(task) is not None for task in long_tasks()) == 6


def assert_the_rest_is_done_and_all_is_the_same(workers, kept, alone):
    told_of = []
    results = do_all(long_tasks(), kept, workers=workers, progress=lambda *p: told_of.append(p))
    assert told_of == [(6, 8), (7, 8), (8, 8)]
    assert all(same(alone[task.address], result) for task, result in zip(long_tasks(), results, strict=True))


def assert_files_travel(workers, folder):
    rng, path = np.random.default_rng(0), folder / "own.npz"
    np.savez(path, images=rng.integers(0, 256, (400, 6, 6), dtype=np.uint8), labels=rng.integers(0, 3, 400))
    own = replace(PLACE, data=Data(source=str(path), pilot_samples=100, test_samples=50), sizes=(30, 30))
    tasks = Cell(own, 5, 0.1, 10).tasks([0, 1])
    here, there = (do_all(tasks, Store(folder / name), workers=by) for name, by in (("h", 1), ("t", workers)))
    assert all(map(same, here, there))
    federation = tasks[0].settings["federation"]
    larger_pilot = federation | {"data": federation["data"] | {"pilot_samples": 900}}
    too_many = WorkItem(tasks[0].work, {**tasks[0].settings, "federation": larger_pilot})
    assert str(path) in told(do_all, [too_many], Store(folder / "t"), workers=workers)


def assert_trainings_of_a_plan_are_the_same(workers, store):
    from truthfl.contracts.setting import Strategies, Training
    from truthfl.learning.data.federations import build_federation
    from truthfl.learning.training.train import train

    built = build_federation(PLACE.data, PLACE.model, PLACE.sizes, Training(6, 1, 0.3), 1.0)
    arguments = (built.federated, Strategies.truthful([10.0] * 4), range(5))
    here = train(*arguments, evaluate_on={"test": built.test})
    with planned_by(workers, store):
        there = train(*arguments, evaluate_on={"test": built.test})
    assert np.array_equal(here.params, there.params)
    assert np.array_equal(here.evaluations["test"].loss, there.evaluations["test"].loss)
    assert len(list(Path(store.folder).iterdir())) == 5


@needs_ray
def test_a_command_says_in_one_sentence_that_a_cluster_is_not_reached(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        on = f"ray://127.0.0.1:{taken.getsockname()[1]}"
        words = [sys.executable, "-m", "truthfl", "plan", "--on", on, "--out", str(tmp_path / "out")]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(f"truthfl: the Ray cluster at {on} is not reached")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["verify"], ["reproduce"], ["plan"], ["study", "size"], ["verify", "--workers", "2"]]
)
def test_the_commands_take_it(words, tmp_path):
    done = CliRunner().invoke(app, [*words, "--on", "rey", "--out", str(tmp_path / "out")])
    wanted = "--workers is a number of processes" if "--workers" in words else "on is 'rey'"
    assert wanted in str(done.exception)


def test_a_job_without_data_has_nothing_to_train(tmp_path):
    constants = Path(truthfl.__file__).parent / "examples" / "ten_clients.toml"
    for command in ("plan", "verify"):
        done = CliRunner().invoke(app, [command, str(constants), "--on", "ray", "--out", str(tmp_path)])
        assert "--on is for a job on data" in str(done.exception)
