"""The same seed gives the same plan, model and pay as it always has, bit for bit.

Floating-point sums depend on the machine's vector instructions and on the BLAS library, so the bits are compared where
those are the recorded ones, and to a hundredth elsewhere. What was recorded stands in `recorded_results.json`.
"""

import json
import os
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import truthfl
from truthfl.learning.training.compute import kernel

SOURCE = Path(truthfl.__file__).parent / "examples"

RECORDED_WITH = ("2.4", "Haswell", "avx512")
ONE_THREAD = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # the order of sums depends on the number of threads

SOFTMAX = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 12

[server]
loss_value = 4000.0
test_samples = 2000

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = [120, 120, 150, 100]
labeling_cost = [120, 120, 150, 100]
sample_cost = 0.05
behaviour = ["truthful", "exaggerator", "sloppy labeler", "half-hearted labeler"]

[privacy]
secure_aggregation = false
"""
JOBS = {name: (SOURCE / f"{name}.toml").read_text(encoding="utf-8") for name in ("mnist", "lceme", "cnn")}
JOBS["softmax"] = SOFTMAX
RECORDED = json.loads((Path(__file__).parent / "recorded_results.json").read_text(encoding="utf-8"))


def arithmetic():
    """What the last bits of a sum depend on: NumPy's version, BLAS's code path, the kernel's instruction set."""
    blas = next((one["architecture"] for one in threadpool_info() if one["user_api"] == "blas"), "none")
    built = kernel()
    return ".".join(np.__version__.split(".")[:2]), blas, "none" if built is None else built.instruction_set


def promised(offers):
    """A digest of what a plan decides: pay, work and weight of every client, the rounds, the step."""
    terms = [
        {
            "client": {name: one["client"][name] for name in ("name", "pay", "batch_size", "weight")},
            "job": {name: one["job"][name] for name in ("expected_loss", "step_size", "rounds", "recipe")},
        }
        for one in offers
    ]
    return sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()


def result(folder, name):
    """What a job with seed 3 comes to: digests of its plan and its final model, the test loss, and pay by client."""
    (folder / "job.toml").write_text(JOBS[name], encoding="utf-8")
    command = [sys.executable, "-m", "truthfl", "run", "job.toml", "--seed", "3", "--out", "out"]
    command += ["--contract", "lceme"] if name == "softmax" else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=ONE_THREAD, timeout=300)
    assert done.returncode == 0, done.stderr
    kinds = ("offer", "test", "settlement")
    with sqlite3.connect(folder / "out" / "ledger.db") as book:
        rows = book.execute("SELECT kind, payload FROM entries ORDER BY sequence").fetchall()
    told = {kind: [json.loads(payload) for row, payload in rows if row == kind] for kind in kinds}
    return {
        "plan": promised([one["document"] for one in told["offer"]]),
        "model": told["test"][0]["model"],
        "loss": told["test"][0]["loss"],
        "pay": [one["pay"] for one in told["settlement"]],
    }


@pytest.mark.parametrize("name", JOBS)
def test_the_same_seed_gives_the_same_plan_model_and_pay(tmp_path, name):
    found, recorded = result(tmp_path, name), RECORDED[name]
    if arithmetic() == RECORDED_WITH:
        assert found == recorded
    else:
        assert found["loss"] == pytest.approx(recorded["loss"], rel=0.01)
        assert found["pay"] == pytest.approx(recorded["pay"], rel=0.01, abs=1)
