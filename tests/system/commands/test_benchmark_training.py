"""The training benchmark runs, with whatever is installed, and says what it is asked to. Its speeds are not tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHOW = "import json, sys; from benchmarks.peers.tables import show; show(*json.load(sys.stdin))"


@pytest.fixture(scope="module")
def result():
    command = [sys.executable, "-m", "benchmarks.training", "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_has_all_parts(result):
    parts = {"rounds", "ratio_to_fastest_peer", "numpy_ratio_to_fastest_peer", "softmax", "peak_fraction"}
    assert parts | {"exponents", "absent"} <= set(result)
    assert set(result["exponents"]) == {"clients", "batch", "runs", "filters"}
    assert set(result["numpy_ratio_to_fastest_peer"]) == {"10", "100", "10, H=5"}
    assert all(ratio > 0 for ratio in result["numpy_ratio_to_fastest_peer"].values())
    assert result["softmax"]["ratio"] > 0


def test_everybody_takes_part_or_is_said_to_be_absent(result):
    seen = {row["contender"] for row in result["rounds"]}
    assert {"truthfl, NumPy", "plain NumPy loop"} <= seen
    everybody = {"truthfl, kernel", "plain PyTorch loop", "FedLab", "pfl-research", "FedJAX", "Flower simulation"}
    assert everybody <= seen | set(result["absent"])
    assert all(row["best_ms"] <= row["median_ms"] for row in result["rounds"])


def test_all_who_use_the_same_batches_get_the_same_parameters(result):
    distances = [d for row in result["rounds"] if (d := row["distance_from_truthfl"]) is not None]
    assert distances
    assert max(distances) < 1e-3
    assert result["softmax"]["distance_from_loop"] < 1e-3


def test_the_tables_fit_and_name_the_absent(result):
    given = json.dumps([result, list({row["contender"]: None for row in result["rounds"]})])
    command = [sys.executable, "-c", SHOW]
    printed = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=True).stdout
    assert max(map(len, printed.splitlines())) <= 100
    unbroken = " ".join(printed.split())
    assert all(name in unbroken for name in result["absent"])
