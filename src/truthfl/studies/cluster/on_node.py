"""Computes a task on a node, if that has the same versions as the machine that asks."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import truthfl
from truthfl.errors import TruthflError
from truthfl.learning.compiled import kernel
from truthfl.learning.elsewhere import limit_threads
from truthfl.studies.cluster.parcel import opened
from truthfl.studies.work import WorkError, source_digest

SOURCE, KERNEL = "source", "kernel"
LESSER = {"avx512": ("avx2", "plain", "off"), "avx2": ("plain", "off"), "plain": ("off",)}  # instruction sets


def do_on_node(
    expected: Mapping[str, str], call: bytes, digests: tuple[str, ...], arrays: tuple[Any, ...]
) -> tuple[str, Any]:
    """See `call_on_node`; an empty call asks only whether this node can compute tasks."""
    _use_kernel(expected[KERNEL])
    unfit = unfit_reason(expected, facts(), socket.gethostname())
    if unfit or not call:
        return ("unfit", unfit) if unfit else ("done", {})
    limit_threads(1)  # one task, one core
    names: dict[str, str] = {}
    try:
        task, names = opened(call, dict(zip(digests, arrays, strict=True)))
        return "done", dict(task.do())
    except (TruthflError, WorkError) as error:
        return "error", _renamed(error, names)


def facts() -> dict[str, str]:
    """What must be the same on all machines, so that results are."""
    versions = {name: version(name.lower()) for name in ("NumPy", "SciPy")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "Python": python,
        "truthfl": truthfl.__version__,
        SOURCE: source_digest(),
        **versions,
        KERNEL: _kernel_name(),
    }


def unfit_reason(expected: Mapping[str, str], own: Mapping[str, str], host: str) -> str:
    """Why a node with these facts cannot compute for a machine with those that are expected; "" if it can."""
    for name, here in expected.items():
        there = own[name]
        if there == here:
            continue
        if name == SOURCE:
            return f"the truthfl {own['truthfl']} on the node {host} is not the one here: its source files are others."
        if name == KERNEL:
            return (
                f"the node {host} trains with {there} instructions and this machine with {here}, which differ in "
                f"the last digits; set TRUTHFL_KERNEL={there} here and call again."
            )
        return f"the node {host} has {name} {there} and this machine {here}; they must be the same on all of them."
    return ""


def _kernel_name() -> str:
    found = kernel()
    return "off" if found is None else found.instruction_set


def _use_kernel(wanted: str) -> None:
    """Train with these instructions, if the processor knows them."""
    if wanted in LESSER.get(_kernel_name(), ()):
        os.environ["TRUTHFL_KERNEL"] = wanted
        kernel.cache_clear()


def _renamed(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error with the names that files have on the machine that asks."""
    if error.args and isinstance(error.args[0], str):
        text = error.args[0]
        for here, there in names.items():
            text = text.replace(here, there)
        error.args = (text, *error.args[1:])
    return error
