"""The kernel under sanitizers, and the package without a compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPILER = os.environ.get("CC", "cc")
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"there is no C compiler ({COMPILER}) here")


@needs_compiler
def test_sanitizers_find_nothing():
    done = subprocess.run(["scripts/sanitize_kernel.sh", COMPILER], cwd=ROOT, capture_output=True, text=True)
    if "cannot find" in done.stderr and "asan" in done.stderr:
        pytest.skip("the compiler has no sanitizers here")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "nothing found" in done.stdout


@pytest.mark.parametrize("compiler", ["/nonexistent/cc", pytest.param(COMPILER, marks=needs_compiler)])
def test_installation_succeeds_with_and_without_a_compiler(tmp_path, compiler):
    source, target = tmp_path / "source", tmp_path / "installed"
    kept = shutil.ignore_patterns(".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, source, ignore=kept)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", target, source]
    done = subprocess.run(
        [sys.executable, *install],
        capture_output=True,
        text=True,
        env={**os.environ, "CC": compiler, "LDSHARED": f"{compiler} -shared"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    built = list((target / "truthfl" / "learning" / "training").glob("_kernel*.so"))
    assert bool(built) == (compiler == COMPILER)
    code = (
        "import numpy as np; from truthfl import Strategies, Training;"
        "from truthfl.learning.data.datasets import small_digits;"
        "from truthfl.learning.data.partition import Federated, iid_partition;"
        "from truthfl.learning.models.softmax import SoftmaxRegression;"
        "from truthfl.learning.training.train import train; d = small_digits();"
        "f = Federated(SoftmaxRegression(64, 10), d, iid_partition(len(d), [50, 50], seed=1), Training(3, 1, 0.5));"
        "print(float(np.abs(train(f, Strategies.truthful([5, 5]), 1).params).max()) > 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(target), "TRUTHFL_KERNEL": "auto"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ran.stdout == "True\n", ran.stderr
    assert ran.stderr.count("the compiled kernel is missing") == (0 if built else 1)
