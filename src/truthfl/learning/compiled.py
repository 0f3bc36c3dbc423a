"""The compiled kernel: found, loaded, and called; or not there, which one line says. Looks at `softmax` and `cnn`.

`TRUTHFL_KERNEL=off` turns it off; `TRUTHFL_KERNEL=plain` (or avx2, avx512) asks for an instruction set.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.cnn import ConvolutionalNetwork
from truthfl.learning.model import Images, Labels, Model, Params
from truthfl.learning.softmax import SoftmaxRegression

ARRAYS = ("images", "rows", "labels", "starts", "batch", "share", "available", "bright", "where", "value")


class KernelJob(ctypes.Structure):
    """The same fields, in the same order, as `truthfl_job` in kernel/job.h; `points_to` keeps its arrays alive."""

    points_to: tuple[NDArray[Any], ...]

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ARRAYS),
        ("seed", ctypes.c_uint64),
        ("local_steps", ctypes.c_int64),
        ("step_size", ctypes.c_float),
        ("penalty", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("height", "width", "channels", "classes", "filters")),
    )


@dataclass(frozen=True)
class Kernel:
    """One instruction set's functions."""

    library: ctypes.CDLL
    instruction_set: str

    def call(self, name: str, *arguments: Any) -> int:
        function = getattr(self.library, f"truthfl_{self.instruction_set}_{name}")
        function.restype = ctypes.c_int64 if name == "inner_size" else ctypes.c_int
        result = int(function(*arguments))
        if result < 0:
            raise MemoryError("the kernel could not get the memory it needs")
        return result


@cache
def kernel() -> Kernel | None:
    """The kernel, or None where it is turned off or was not built."""
    wish = os.environ.get("TRUTHFL_KERNEL", "auto")
    if wish == "off":
        return None
    found = sorted(Path(__file__).parent.glob("_kernel*.so"))
    if not found:
        print(
            "truthfl: the compiled kernel is missing (no C compiler when truthfl was installed); "
            "training runs on NumPy, several times slower.",
            file=sys.stderr,
        )
        return None
    library = ctypes.CDLL(str(found[0]))
    library.truthfl_instruction_set.restype = ctypes.c_char_p
    best = library.truthfl_instruction_set().decode()
    return Kernel(library, best if wish == "auto" else wish)


def supports(model: Model) -> bool:
    """Whether the kernel knows this model."""
    return isinstance(model, SoftmaxRegression | ConvolutionalNetwork)


def describe(model: Model) -> KernelJob:
    """The part of a job that is the model's shape."""
    if isinstance(model, ConvolutionalNetwork):
        shape = {
            name: getattr(model, name) for name in ("height", "width", "channels", "classes", "filters", "penalty")
        }
        return KernelJob(**shape)
    assert isinstance(model, SoftmaxRegression)
    return KernelJob(height=1, width=model.pixels, channels=1, classes=model.classes, filters=0, penalty=model.penalty)


def kernel_images(model: Model, images: Images) -> Images:
    """Images as the kernel reads them: channel after channel for the network, as they are for softmax regression."""
    if isinstance(model, ConvolutionalNetwork) and images.shape[3] > 1:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return np.ascontiguousarray(images)


def bright_pixels(model: Model, images: Images) -> tuple[NDArray[Any], ...]:
    """For softmax regression on mostly dark images: where each image's bright pixels start, their positions and values.

    Empty where it does not apply (the kernel then reads whole images).
    """
    if not isinstance(model, SoftmaxRegression) or model.classes > 16 or model.pixels > 2**16:
        return ()
    flat = images.reshape(len(images), -1)
    counts = np.count_nonzero(flat, axis=1)
    if counts.mean() > 0.5 * model.pixels:
        return ()
    where = np.nonzero(flat)[1].astype(np.uint16)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), where, flat[flat > 0]


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Where an array's data are; the caller keeps the array alive."""
    return ctypes.c_void_p(array.ctypes.data)


def addresses(*arrays: NDArray[Any]) -> list[ctypes.c_void_p]:
    """Where each array's data are."""
    return [address(array) for array in arrays]


class CompiledModel:
    """A built-in model's functions, by the kernel. Equal to the model's own up to rounding."""

    def __init__(self, model: Model, with_kernel: Kernel) -> None:
        self.model, self.kernel, self.job = model, with_kernel, describe(model)
        self.inner_size = with_kernel.call("inner_size", ctypes.byref(self.job))

    def pack(self, params: Params) -> Params:
        """Parameters in the kernel's own layout."""
        inner = np.empty(self.inner_size, dtype=np.float32)
        flat = np.ascontiguousarray(params, dtype=np.float32)
        self.kernel.call("pack", ctypes.byref(self.job), address(flat), address(inner))
        return inner

    def unpack(self, inner: Params) -> Params:
        """And back."""
        flat = np.empty(self.model.size, dtype=np.float32)
        self.kernel.call("unpack", ctypes.byref(self.job), address(inner), address(flat))
        return flat

    def weighted_gradient(self, params: Params, images: Images, labels: Labels, weight: Params) -> Params:
        x, y = kernel_images(self.model, images), labels.astype(np.int32)
        w, inner = np.ascontiguousarray(weight, dtype=np.float32), self.pack(params)
        result = np.empty_like(inner)
        where = addresses(inner, x, y, w)
        self.kernel.call("gradient", ctypes.byref(self.job), *where, ctypes.c_int64(len(y)), address(result))
        gradient = self.unpack(result)
        penalty = self.job.penalty
        if penalty:
            gradient += np.float32(penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def evaluate(self, params: Params, images: Images, labels: Labels) -> tuple[float, float]:
        """Mean loss, penalty included, and accuracy."""
        x, y, inner = kernel_images(self.model, images), labels.astype(np.int32), self.pack(params)
        loss, correct = ctypes.c_double(), ctypes.c_int64()
        where = addresses(inner, x, y)
        out = (ctypes.byref(loss), ctypes.byref(correct))
        self.kernel.call("evaluate", ctypes.byref(self.job), *where, ctypes.c_int64(len(y)), *out)
        penalty = 0.5 * self.job.penalty * float(np.square(params.astype(np.float64)).sum())
        return loss.value / len(y) + penalty, correct.value / len(y)
