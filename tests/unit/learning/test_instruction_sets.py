"""All instruction sets compute the same: the processor's own, and those of others under an emulator where one is there.

`scripts/exercise_kernel.c` writes the results of all functions of the kernel for odd shapes. x86-64's plain kernel is
the reference: it has no instruction that multiplies and adds with one rounding. Without these (`-ffp-contract=off`)
ARM's NEON must give the same bits, as it has the same lanes; with them, and with more lanes, sums round differently.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from truthfl.learning.training import compute as compiled

ROOT = Path(__file__).parents[3]
KERNEL = ROOT / "src/truthfl/learning/training/kernel"
FLAGS = ["-O3", "-std=gnu11", "-Wno-psabi", "-pthread", f"-I{KERNEL}"]  # those of setup.py
COMPILER = os.environ.get("CC", "cc")
ARM_COMPILER = "aarch64-linux-gnu-gcc"
ARM_EMULATORS = ["qemu-aarch64", "qemu-aarch64-static"]
EMULATORS = {"avx2": [["sde64", "--"], ["qemu-x86_64", "-cpu", "max"]], "avx512": [["sde64", "--"]]}
NOT_THIS_SET = 3  # the status of scripts/exercise_kernel.c
ROUNDING = 2e-6

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the reference is the plain kernel of x86-64"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"there is no C compiler ({COMPILER}) here"),
    pytest.mark.skipif(compiled.kernel() is None, reason="the compiled kernel was not built"),
]


def built(program, compiler, *parts):
    source = ROOT / "scripts/exercise_kernel.c"
    command = [compiler, *FLAGS, "-o", program, source, *parts, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return program


def results(program, instruction_set, *emulator):
    """All results of the program, or None if the machine that it runs on has no such instruction set."""
    file = program.with_suffix(f".{instruction_set}")
    done = subprocess.run([*emulator, program, instruction_set, file], capture_output=True, text=True)
    assert done.returncode in (0, NOT_THIS_SET), done.stderr[-2000:]
    return None if done.returncode else np.fromfile(file, dtype=np.float32)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The program, with the kernel as it is installed."""
    library = Path(compiled.kernel().library._name)
    folder = tmp_path_factory.mktemp("own")
    return built(folder / "exercise", COMPILER, library, f"-Wl,-rpath,{library.parent}")


@pytest.fixture(scope="module")
def reference(own):
    return results(own, "plain")


def assert_equal_up_to_rounding(found, reference):
    assert found.shape == reference.shape
    assert (np.abs(found - reference) / np.maximum(np.abs(reference), 1.0)).max() <= ROUNDING


@pytest.mark.parametrize("instruction_set", EMULATORS)
def test_wider_registers_compute_the_same(own, reference, instruction_set):
    found = results(own, instruction_set)
    for emulator in EMULATORS[instruction_set]:
        if found is None and shutil.which(emulator[0]):
            found = results(own, instruction_set, *emulator)
    if found is None:
        names = " or ".join(emulator[0] for emulator in EMULATORS[instruction_set])
        pytest.skip(f"this processor has no {instruction_set}, and no emulator that has it is here ({names})")
    assert_equal_up_to_rounding(found, reference)


@pytest.mark.parametrize("contraction", ["off", "fast"])
def test_neon_computes_the_same(tmp_path, reference, contraction):
    emulator = next((name for name in ARM_EMULATORS if shutil.which(name)), None)
    if emulator is None or shutil.which(ARM_COMPILER) is None:
        pytest.skip(f"there is no {ARM_COMPILER} or no {ARM_EMULATORS[0]} here")
    sources = [KERNEL / name for name in ("plain.c", "choose.c")]
    program = built(tmp_path / "exercise", ARM_COMPILER, "-static", f"-ffp-contract={contraction}", *sources)
    found = results(program, "plain", emulator)
    if contraction == "off":
        assert found.tobytes() == reference.tobytes()
    else:
        assert_equal_up_to_rounding(found, reference)


def test_neon_multiplies_and_adds_four_numbers_at_once(tmp_path):
    if shutil.which(ARM_COMPILER) is None:
        pytest.skip(f"there is no {ARM_COMPILER} here")
    listing = tmp_path / "plain.s"
    subprocess.run([ARM_COMPILER, *FLAGS, "-S", "-o", listing, KERNEL / "plain.c"], check=True)
    with_four = [line for line in listing.read_text().splitlines() if "fmla" in line and ".4s" in line]
    with_one = [line for line in listing.read_text().splitlines() if "fmadd" in line]
    assert len(with_four) > 10 * len(with_one)
