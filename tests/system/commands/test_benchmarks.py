"""Every benchmark and script can still be started: what they import is there, and they say what they do."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("__init__", "browser"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_starts(name):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
