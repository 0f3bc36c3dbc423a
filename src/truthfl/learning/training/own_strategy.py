"""Combines the reports of a round by a Flower strategy.

The name is "FILE.py:NAME" or "module:NAME": a strategy, or a function without arguments that returns one. Its methods
`configure_train` (whose messages are dropped) and `aggregate_train` are called.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from hashlib import sha256
from threading import Lock, local
from typing import Any

import flwr.serverapp.strategy
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from truthfl.custom_code import digest_of_module, module_of, without_folder
from truthfl.errors import InputError
from truthfl.flower_patches import set_task_identity_if_unset
from truthfl.learning.models.model import Params
from truthfl.learning.training.aggregation import OPTIMIZERS, Combine, ServerOptimizer

LIVE = "live:"  # begins the name of a strategy that is an object of this process
MEANS = ("FedAvg", "FedProx")  # classes whose aggregate is the weighted mean of the models
LEAST_WEIGHT = 1e-9
_LOADED: dict[str, Strategy] = {}
_LOCK, _THREAD = Lock(), local()


def registered(strategy: Strategy) -> str:
    """The name by which this process finds the strategy; the same for all with the same class and settings."""
    values = {name: value for name, value in vars(strategy).items() if isinstance(value, str | int | float | bool)}
    settings = json.dumps(values, sort_keys=True)
    name = f"{LIVE}{type(strategy).__name__} {sha256(settings.encode()).hexdigest()[:12]}"
    _require_usable(strategy)
    _LOADED[name] = deepcopy(strategy)
    return name


def portable(use: str) -> str:
    """The name without the folder of a file, and with the digest of its text, for the job's document."""
    if use.startswith(LIVE):
        return use
    return f"{without_folder(use)} {digest_of_module(module_of(use))}"


def name_of(use: str) -> str:
    """The name of its class, for messages."""
    return type(_loaded(use)).__name__


def is_mean(use: str) -> bool:
    """Whether the strategy only takes the weighted mean."""
    return _is_exactly(_loaded(use), MEANS)


def combiner_of(use: str) -> Combine:
    """Combines the reports of one run: by a copy of the strategy, or faster with the same result."""
    strategy = _loaded(use)
    return ServerOptimizer(strategy) if _is_exactly(strategy, OPTIMIZERS) else StrategyCombiner(strategy)


class StrategyCombiner:
    """Combines reports by a copy of the strategy, which keeps its state from round to round."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = deepcopy(strategy)

    def __call__(
        self, round_: int, common: Params, changes: NDArray[np.float32], weight: NDArray[np.float64]
    ) -> Params:
        """The common model after round `round_`, from 1, by these changes (reports, parameters) and weights.

        If weights do not sum to 1 because reports are missing, the unchanged model gets the rest of the weight. Numbers
        that are not finite stay so, which can happen when step sizes are tried.
        """
        if not len(changes):
            return common
        if not (np.isfinite(common).all() and np.isfinite(changes).all()):
            return np.full_like(common, np.nan)

        models = common + changes
        if abs(missing := 1.0 - math.fsum(weight.tolist())) >= LEAST_WEIGHT:
            models, weight = np.concatenate((models, common[None])), np.append(weight, missing)
        sent = ArrayRecord({"params": Array(common)})
        name = type(self.strategy).__name__
        with _quiet_flower():
            try:
                nodes = _Nodes(max(len(models), getattr(self.strategy, "min_available_nodes", 0)))
                self.strategy.configure_train(round_, sent, ConfigRecord(), nodes)  # type: ignore[arg-type]
                made, _ = self.strategy.aggregate_train(round_, self._replies(models.astype(np.float32), weight))
                arrays = [] if made is None else [array.numpy() for array in made.values()]
            except Exception as error:  # the strategy is custom code
                raise InputError(f"{name} failed in round {round_} ({type(error).__name__}: {error}).") from None
        if len(arrays) != 1 or arrays[0].shape != common.shape:
            got = "no model" if not arrays else f"arrays of the shapes {[array.shape for array in arrays]}"
            raise InputError(f"{name} returned {got} in round {round_}; it must be one of shape {common.shape}.")
        return np.asarray(arrays[0], dtype=np.float32)

    def _replies(self, models: NDArray[np.float32], weight: NDArray[np.float64]) -> Any:
        arrays_key = getattr(self.strategy, "arrayrecord_key", "arrays")
        weight_key = getattr(self.strategy, "weighted_by_key", "num-examples")
        return [
            _Reply(
                RecordDict(
                    {
                        arrays_key: ArrayRecord({"params": Array(np.ascontiguousarray(model))}),
                        "metrics": MetricRecord({weight_key: float(share)}),
                    }
                ),
                node,
            )
            for node, (model, share) in enumerate(zip(models, weight, strict=True), 1)
        ]


class _Nodes:
    """Stands for a grid: only the ids of this many nodes; messages to them are not sent."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_node_ids(self) -> Sequence[int]:
        return range(1, self.count + 1)


class _Reply:
    """The parts of a reply that strategies read."""

    def __init__(self, content: Any, node: int) -> None:
        self.content = content
        self.metadata = _Metadata(node)

    def has_error(self) -> bool:
        return False

    def has_content(self) -> bool:
        return True


class _Metadata:
    def __init__(self, node: int) -> None:
        self.src_node_id = node


def _is_exactly(strategy: Strategy, names: Sequence[str]) -> bool:
    """Whether it belongs to one of Flower's classes with these names, not to a derived class."""

    return type(strategy) in [getattr(flwr.serverapp.strategy, name) for name in names]


def _loaded(use: str) -> Strategy:
    with _LOCK:
        if use not in _LOADED:
            if use.startswith(LIVE):
                raise InputError(
                    f"the strategy {use.removeprefix(LIVE)} is an object of another process; name it in the job, as "
                    'aggregation = "FILE.py:NAME".'
                )
            _LOADED[use] = _load(use)
        return _LOADED[use]


def _load(use: str) -> Strategy:
    shown, _, name = without_folder(use).rpartition(":")
    found = getattr(module_of(use), name, None)
    if found is None:
        raise InputError(f"{shown} has no {name}.")
    with _quiet_flower():
        if callable(found) and not isinstance(found, Strategy):
            try:
                found = found()
            except Exception as error:  # custom code
                raise InputError(f"{name} of {shown} failed ({type(error).__name__}: {error}).") from None
    if not isinstance(found, Strategy):
        raise InputError(f"{name} of {shown} is no Flower strategy; it must be one, or a function that returns one.")
    _require_usable(found)
    return found


def _require_usable(strategy: Strategy) -> None:
    fraction = getattr(strategy, "fraction_train", 1.0)
    if fraction != 1.0:
        raise InputError(
            f"fraction_train is {fraction:g}; a contract says how often each is asked: set [clients] participation."
        )


@contextmanager
def _quiet_flower() -> Iterator[None]:
    """Quiets Flower, which logs every aggregation. Sets an id; without one, only its own processes make messages."""

    set_task_identity_if_unset()
    logging.getLogger("flwr").addFilter(_is_heard)  # a filter that is already there is not added again
    _THREAD.is_quiet = True
    try:
        yield
    finally:
        _THREAD.is_quiet = False


def _is_heard(_: logging.LogRecord) -> bool:
    return not getattr(_THREAD, "is_quiet", False)
