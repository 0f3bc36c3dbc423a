"""The same seed gives the same model and pay as it always has, bit for bit.

The digests are of jobs without masks; that of softmax regression, and its loss, was written down anew when the kernel
began to add over the pixels of whole images in another order. Floating-point sums depend on the machine's vector
instructions and on the BLAS library, so the bits are compared where those are the recorded ones, and to a hundredth
elsewhere.
"""

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from truthfl.learning.compiled import kernel

RECORDED_WITH = ("2.4", "SkylakeX", "avx512")

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
CNN = """
[data]
source = "digits"
split = "dirichlet"
pilot_samples = 500
test_samples = 300

[model]
kind = "cnn"
filters = 4

[training]
rounds = 6
local_steps = 2
step_size = 0.3

[server]
loss_value = 9000.0
minor_units = 100
test_samples = 1000

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = [100, 80, 90]
labeling_cost = [20, 25, 30]
sample_cost = 0.02
behaviour = ["truthful", "small batch", "free rider"]

[privacy]
secure_aggregation = false
"""

# job, seed, digest of the final model, test loss, pay in minor units
RECORDED = [
    (
        SOFTMAX,
        3,
        "8d3df423b9e34480815ccf46eecfd36484688dd1afdfc975a5cc6679b5c2fe8b",
        0.9382668134520079,
        [503, 512, 542, 488],
    ),
    (
        CNN,
        3,
        "f622db8df4d9d681a6cd7b7af4465a2ebcd3d87adcd6bb841f548890f853bd8d",
        2.310526838834803,
        [62324, 63116, 0],
    ),
]


def arithmetic():
    """What the last bits of a sum depend on: NumPy's version, BLAS's code path, the kernel's instruction set."""
    blas = next((one["architecture"] for one in threadpool_info() if one["user_api"] == "blas"), "none")
    built = kernel()
    return ".".join(np.__version__.split(".")[:2]), blas, "none" if built is None else built.instruction_set


def truthfl(folder, *arguments):
    command = [sys.executable, "-m", "truthfl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


@pytest.mark.parametrize(("job", "seed", "model", "loss", "pay"), RECORDED, ids=["softmax", "cnn"])
def test_the_same_seed_gives_the_same_model_and_pay_as_version_0_1(tmp_path, job, seed, model, loss, pay):
    (tmp_path / "job.toml").write_text(job)
    done = truthfl(tmp_path, "run", "job.toml", "--contract", "lceme", "--seed", seed, "--out", "out")
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "out" / "ledger.db") as book:
        rows = book.execute("SELECT kind, payload FROM entries WHERE kind IN ('test', 'settlement') ORDER BY sequence")
        told = [(kind, json.loads(payload)) for kind, payload in rows]
    tested = next(document for kind, document in told if kind == "test")
    paid = [document["pay"] for kind, document in told if kind == "settlement"]
    if arithmetic() == RECORDED_WITH:
        assert (tested["model"], tested["loss"], paid) == (model, loss, pay)
    else:
        assert tested["loss"] == pytest.approx(loss, rel=0.01)
        assert paid == pytest.approx(pay, rel=0.01, abs=1)
