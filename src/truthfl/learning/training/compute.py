"""Where trainings are computed: by the compiled kernel, in threads of this process, or in other processes.

The environment variable TRUTHFL_KERNEL is `off` (use NumPy) or an instruction set (`plain`, `avx2`, `avx512`). Sums are
then the same for any number of cores.

`train`, `honest_runs` and `losses_of_groups` use this module.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.model import Features, Labels, Model, Params
from truthfl.learning.models.softmax import SoftmaxRegression

ARRAYS = ("images", "rows", "labels", "starts", "batch", "share", "available", "bright", "where", "value")


class KernelJob(ctypes.Structure):
    """The struct `truthfl_job` of kernel/job.h: same fields, same order. `points_to` keeps the arrays alive."""

    points_to: tuple[NDArray[Any], ...]

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ARRAYS),
        ("seed", ctypes.c_uint64),
        ("local_steps", ctypes.c_int64),
        ("step_size", ctypes.c_float),
        ("penalty", ctypes.c_float),
        ("momentum", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("height", "width", "channels", "classes", "filters")),
    )


@dataclass(frozen=True)
class Kernel:
    """The functions of the shared library for one instruction set."""

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
    """The kernel; None if it is turned off, or (with a message on standard error) if it was not built."""
    requested = os.environ.get("TRUTHFL_KERNEL", "auto")
    if requested == "off":
        return None
    libraries = sorted(Path(__file__).parent.glob("_kernel*.so"))
    if not libraries:
        print(
            "truthfl: the compiled kernel is missing (no C compiler when truthfl was installed); "
            "training runs on NumPy, several times slower.",
            file=sys.stderr,
        )
        return None
    library = ctypes.CDLL(str(libraries[0]))
    library.truthfl_instruction_set.restype = ctypes.c_char_p
    best = library.truthfl_instruction_set().decode()
    return Kernel(library, best if requested == "auto" else requested)


def supports(model: Model, features: Features) -> bool:
    """Whether the kernel implements this model on features of this type; it needs bytes."""
    return isinstance(model, SoftmaxRegression | ConvolutionalNetwork) and features.dtype == np.uint8


def describe(model: Model) -> KernelJob:
    """A kernel job with the fields of the model's shape filled in."""
    if isinstance(model, ConvolutionalNetwork):
        shape = {
            name: getattr(model, name) for name in ("height", "width", "channels", "classes", "filters", "penalty")
        }
        return KernelJob(**shape)
    assert isinstance(model, SoftmaxRegression)
    return KernelJob(height=1, width=model.pixels, channels=1, classes=model.classes, filters=0, penalty=model.penalty)


def kernel_images(model: Model, features: Features) -> Features:
    """Images in the kernel's layout: channels first for the network, unchanged for softmax regression."""
    if isinstance(model, ConvolutionalNetwork) and features.shape[3] > 1:
        return np.ascontiguousarray(features.transpose(0, 3, 1, 2))
    return np.ascontiguousarray(features)


def bright_pixels(model: Model, features: Features) -> tuple[NDArray[Any], ...]:
    """Sparse pixels for softmax regression on mostly dark images: start of each image, positions and values.

    Empty for other models and brighter images; the kernel then reads whole images.
    """
    if not isinstance(model, SoftmaxRegression) or model.pixels > 2**16:
        return ()
    flat = features.reshape(-1)
    bright = np.flatnonzero(flat != 0)
    if len(bright) > 0.5 * len(flat):
        return ()
    first = model.pixels * np.arange(len(features) + 1)
    starts = np.searchsorted(bright, first)
    where = (bright - np.repeat(first[:-1], np.diff(starts))).astype(np.uint16)
    return starts.astype(np.int64), where, flat[bright]


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """The address of an array's data; the caller keeps the array alive."""
    return ctypes.c_void_p(array.ctypes.data)


def addresses(*arrays: NDArray[Any]) -> list[ctypes.c_void_p]:
    """The address of each array's data."""
    return [address(array) for array in arrays]


class Layout:
    """The kernel's layout of a model's parameters, which depends on whether the job has bright pixels."""

    def __init__(self, model: Model, with_kernel: Kernel, bright: tuple[NDArray[Any], ...] = ()) -> None:
        self.size, self.kernel, self.job = model.size, with_kernel, describe(model)
        if bright:
            self.job.bright, self.job.points_to = bright[0].ctypes.data, bright
        self.inner_size = with_kernel.call("inner_size", ctypes.byref(self.job))

    def pack(self, params: Params) -> Params:
        """Flat parameters converted to the kernel's layout."""
        inner = np.empty(self.inner_size, dtype=np.float32)
        flat = np.ascontiguousarray(params, dtype=np.float32)
        self.kernel.call("pack", ctypes.byref(self.job), address(flat), address(inner))
        return inner

    def unpack(self, inner: Params) -> Params:
        """Parameters in the kernel's layout converted to flat ones."""
        flat = np.empty(self.size, dtype=np.float32)
        self.kernel.call("unpack", ctypes.byref(self.job), address(inner), address(flat))
        return flat


class CompiledModel:
    """A built-in model's functions computed by the kernel; equal to the model's own up to rounding."""

    def __init__(self, model: Model, with_kernel: Kernel) -> None:
        self.model, self.kernel, self.layout = model, with_kernel, Layout(model, with_kernel)
        self.job = self.layout.job

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        x, y = kernel_images(self.model, features), labels.astype(np.int32)
        w, inner = np.ascontiguousarray(weight, dtype=np.float32), self.layout.pack(params)
        result = np.empty_like(inner)
        pointers = addresses(inner, x, y, w)
        self.kernel.call("gradient", ctypes.byref(self.job), *pointers, ctypes.c_int64(len(y)), address(result))
        gradient = self.layout.unpack(result)
        penalty = self.job.penalty
        if penalty:
            gradient += np.float32(penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def evaluate(self, params: Params, features: Features, labels: Labels) -> tuple[float, float]:
        """Mean loss, penalty included, and accuracy."""
        x, y, inner = kernel_images(self.model, features), labels.astype(np.int32), self.layout.pack(params)
        loss, correct = ctypes.c_double(), ctypes.c_int64()
        pointers = addresses(inner, x, y)
        out = (ctypes.byref(loss), ctypes.byref(correct))
        self.kernel.call("evaluate", ctypes.byref(self.job), *pointers, ctypes.c_int64(len(y)), *out)
        penalty = 0.5 * self.job.penalty * float(np.square(params.astype(np.float64)).sum())
        return loss.value / len(y) + penalty, correct.value / len(y)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limits the BLAS libraries that were loaded when this was first called; those with one thread are left alone."""
    several = [(library, count) for library in _libraries() if (count := library.get_num_threads()) != 1]
    for library, _ in several:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in several:
            library.set_num_threads(count)


@contextmanager
def training_threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads to train in, with one BLAS thread each; in them, and here, NumPy does not warn of what diverges.

    NumPy keeps for each thread what it warns of.
    """
    silence = partial(np.seterr, over="ignore", invalid="ignore")
    with np.errstate(), one_blas_thread(), ThreadPoolExecutor(workers, initializer=silence) as pool:
        silence()
        yield pool


@cache
def _libraries() -> list[Any]:
    """Looks through all loaded libraries, which takes milliseconds."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


Elsewhere = Callable[[str, object, Sequence[object]], list[Mapping[str, NDArray[Any]]]]
"""From "module:function", the shared argument and each call's own argument: function(common, own) for each call."""

MOST_THREADS = 64
MOST_BLOCKS = 64  # the runs of one call are divided into at most this many


@dataclass(frozen=True)
class Computing:
    """Who computes trainings that state no number of threads: `other`, or this process with at most so many."""

    other: Elsewhere | None = None
    most_threads: int = MOST_THREADS


_computing: ContextVar[Computing | None] = ContextVar("computing", default=None)


@contextmanager
def computed_by(other: Elsewhere | None = None, *, most_threads: int = MOST_THREADS) -> Iterator[None]:
    """Use `Computing` for trainings that state no number of threads; this does not hold in threads started inside."""
    before = _computing.set(Computing(other, most_threads))
    try:
        yield
    finally:
        _computing.reset(before)


def _now() -> Computing:
    return _computing.get() or Computing()


def elsewhere(threads: int | None) -> Elsewhere | None:
    """Who else computes a training with this number of threads; None: this process, as always if it is stated."""
    return None if threads is not None else _now().other


def usual_threads() -> int:
    """The number of threads of a training that states none."""
    return min(os.cpu_count() or 1, _now().most_threads)
