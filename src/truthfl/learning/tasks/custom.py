"""Custom tasks: checked, and with their errors put into one sentence."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import number, whole_number
from truthfl.custom_code import class_named, digest_of_module, failure
from truthfl.errors import InputError
from truthfl.learning.data.class_sets import SEPARATOR, joined, joined_from, require_no_separator
from truthfl.learning.data.samples import LabeledSamples, read_only
from truthfl.learning.models.model import Features, Labels, Model, Params, mean_loss, predicted_classes, share_correct
from truthfl.learning.tasks.task import COMPUTING, OWN_STEPS, ReadSamples, Task


@dataclass(frozen=True)
class _Loaded:
    made: type[Task]
    source: str


_LOADED: dict[str, _Loaded] = {}  # by "FILE.py:Class" or "module:Class"
_LOCK = threading.RLock()  # a file may load another task


def own_task_class(use: str) -> type[Task]:
    """The class named by "FILE.py:Class" or "module:Class"; `InputError` if it is no task.

    Any other error in its methods becomes an `InputError` that names the method.
    """
    return _loaded(use).made


def source_digest(use: str) -> str:
    """The SHA-256 digest of the text of the file that defines the class, with line ends as on Linux."""
    return _loaded(use).source


def _loaded(use: str) -> _Loaded:
    with _LOCK:
        if use not in _LOADED:
            _LOADED[use] = _load(use)
        return _LOADED[use]


def _load(use: str) -> _Loaded:
    made: type[Task] = class_named(use, Task, "task")
    _require_methods(made)
    return _Loaded(guarded(made), digest_of_module(sys.modules[made.__module__]))


def _require_methods(made: type[Task]) -> None:
    given = [name for name in COMPUTING if callable(getattr(made, name, None))]
    if given and len(given) < len(COMPUTING) and made.model is Task.model:
        lacking = [name for name in COMPUTING if name not in given]
        raise InputError(
            f"{made.__name__} has {', '.join(given)} and lacks {', '.join(lacking)}; a custom model is all four "
            "of size, start, scores and gradient, or made by the method model."
        )
    if callable(getattr(made, OWN_STEPS, None)) and not given and made.model is Task.model:
        raise InputError(f"{made.__name__} has {OWN_STEPS} and no model of its own; it must have one, by model.")


CALLED = ("read", "operator_samples", "fit", "features", "shown", "model", "write", "document", OWN_STEPS, *COMPUTING)
MODEL_METHODS = ("init", "scores", "loss", "accuracy", "predict", "weighted_gradient")


def guarded(made: type[Task]) -> type[Task]:
    """A subclass of the same name whose methods raise only `InputError`, and whose results are checked.

    A class that has fields of its own and is not declared as a dataclass becomes one.
    """
    if "__dataclass_fields__" not in vars(made):
        made = dataclass(frozen=True)(made)
    methods = {name: _in_words(made, name) for name in CALLED if callable(getattr(made, name, None))}
    if made.model is Task.model and not all(name in methods for name in COMPUTING):
        del methods["model"]  # `Task.has_own_model` looks for it
    checks: dict[str, Callable[[Task, Any, Any], Any]] = {
        "read": _checked_read,
        "operator_samples": _checked_read,
        "features": _checked_features,
        "fit": _checked_fit,
        "model": _CheckedModel(),
        "document": _checked_document,
    }
    methods |= {name: _with_check(methods[name], check) for name, check in checks.items() if name in methods}
    of_document = made.of_document.__func__  # type: ignore[attr-defined]

    def read_document(cls: type[Task], document: Mapping[str, Any]) -> Task:
        try:
            task: Task = of_document(cls, document)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{made.__name__} cannot be made ({failure(error)}).") from None
        return task

    names = {"__module__": made.__module__, "__qualname__": made.__qualname__, "__doc__": made.__doc__}
    return type(made.__name__, (made,), {**names, **methods, "of_document": classmethod(read_document)})


def _in_words(made: type[Task], name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(made, name)

    @wraps(method)
    def call(self: Task, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{made.__name__}.{name} failed ({failure(error)}).") from error

    return call


def _with_check(method: Callable[..., Any], check: Callable[[Task, Any, Any], Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Task, *arguments: Any) -> Any:
        return check(self, method(self, *arguments), arguments)

    return call


def _checked_read(task: Task, read: Any, _: Any) -> ReadSamples:
    name = type(task).__name__
    if not isinstance(read, ReadSamples):
        raise InputError(f"{name}.read gave {type(read).__name__}; it must be ReadSamples.")
    try:
        raw = np.asarray(read.raw)
    except ValueError:
        raise InputError(f"{name}.read gave samples of different lengths; raw must be an array.") from None
    if raw.ndim == 0 or not len(raw):
        raise InputError(f"{name}.read found no samples.")
    labels = None if read.labels is None else tuple(_checked_label(task, label) for label in read.labels)
    if labels is not None and len(labels) != len(raw):
        raise InputError(f"{name}.read gave {len(raw)} samples and {len(labels)} labels; it must be one per sample.")
    return replace(read, raw=raw, labels=labels)


def _checked_label(task: Task, label: Any) -> str:
    """A label as text; several classes, which may be a list, are joined as in `class_sets`."""
    name = type(task).__name__
    if isinstance(label, list | tuple | set | frozenset):
        if not task.several_labels:
            raise InputError(
                f"{name}.read gave several labels of a sample; [task] several_labels must be true for that."
            )
        if not label:
            raise InputError(f"{name}.read gave a sample without any label; each must have at least one.")
        require_no_separator(map(str, label))
        return joined(map(str, label))
    return joined_from(str(label), SEPARATOR, f"{name}.read") if task.several_labels else str(label)


def _checked_features(task: Task, given: Any, arguments: Any) -> Features:
    name, count = type(task).__name__, len(arguments[0])
    features = np.asarray(given)
    if features.dtype.kind not in "fiub":
        raise InputError(f"{name}'s features have type {features.dtype}; they must be numbers.")
    if features.dtype != np.uint8:
        features = features.astype(np.float32, copy=False)
    if features.ndim < 2 or len(features) != count or features.size == 0:
        raise InputError(f"{name}'s features have shape {features.shape}; it must be ({count}, …): one row per sample.")
    finite = np.isfinite(features.reshape(count, -1)).all(axis=1)
    if not finite.all():
        raise InputError(f"{name}'s features are not finite, at sample {int(np.flatnonzero(~finite)[0])}.")
    return np.ascontiguousarray(features)


def _checked_fit(task: Task, fitted: Any, _: Any) -> Task:
    name = type(task).__name__
    if not isinstance(fitted, type(task)):
        raise InputError(f"{name}.fit gave {type(fitted).__name__}; it must be a {name}.")
    if not fitted.classes:
        raise InputError(f"{name}.fit set no classes; without classes in [task] it must.")
    return fitted


def _checked_document(task: Task, document: Any, _: Any) -> dict[str, Any]:
    values: dict[str, Any] = document
    for name, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise InputError(
                f"{type(task).__name__}'s field {name} is no JSON value; fields are texts, finite numbers, true or "
                "false, and tuples of these."
            ) from None
    return values


class _CheckedModel:
    """Checks a model returned by `Task.model`; the first of each shape is made twice, and both must start alike."""

    def __init__(self) -> None:
        self.known: set[tuple[int, ...]] = set()

    def __call__(self, task: Task, model: Any, arguments: Any) -> Model | None:
        if model is None:
            return None
        name, shape = type(task).__name__, tuple(arguments[0])
        lacking = [one for one in MODEL_METHODS if not callable(getattr(model, one, None))]
        if lacking:
            raise InputError(
                f"{name}.model gave {type(model).__name__}, which lacks {', '.join(lacking)}; from_torch, from_jax and "
                "from_sklearn make models."
            )
        if shape not in self.known:
            self.known.add(shape)
            again = task.model(shape)
            if again is None or not np.array_equal(model.init(0), again.init(0)):
                self.known.discard(shape)
                raise InputError(f"{name}'s model starts differently each time; from_torch needs seeded=True.")
        made: Model = model
        return made


Floats = NDArray[np.float32]
BLOCK = 4096  # samples per call
CHECKED, DIRECTIONS, STEP = 256, 8, 0.05  # of the check of gradients: samples, directions, their length
LARGEST_ERROR = 0.3  # of slopes by the gradient, as a share of the slopes of the loss


@dataclass(frozen=True)
class TaskModel:
    """The model whose scores and gradients the task computes, with (penalty/2)‖w‖² added.

    task     has the methods size, start, scores and gradient
    shape    of one sample's features
    penalty  factor of the L2 penalty, which the task's own gradient leaves out
    """

    task: Task
    shape: tuple[int, ...]
    penalty: float = 0.0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        number(f"{self._name}'s penalty", self.penalty, at_least=0.0)
        object.__setattr__(self, "size", whole_number(f"{self._name}'s size", self._own.size(self.shape), at_least=1))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.task.classes)

    def init(self, seed: int) -> Params:
        start = self._flat(self._own.start(self.shape, seed), "start")
        if not np.isfinite(start).all():
            raise InputError(f"{self._name}'s start is not finite, at parameter {_first_not(np.isfinite(start))}.")
        return start

    def scores(self, params: Params, features: Features) -> Floats:
        return np.concatenate(list(self._blocks_of_scores(params, features)))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return mean_loss(list(self._blocks_of_scores(params, features)), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(list(self._blocks_of_scores(params, features)), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(list(self._blocks_of_scores(params, features)))

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        total = np.zeros(self.size, dtype=np.float32)
        for block in _blocks(len(features)):
            x = inputs(features[block])
            total += self._flat(self._own.gradient(read_only(params), x, labels[block], weight[block]), "gradient")
        if self.penalty:
            total += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return total

    @property
    def _own(self) -> Any:
        return self.task

    @property
    def _name(self) -> str:
        return type(self.task).__name__

    def _blocks_of_scores(self, params: Params, features: Features) -> Iterator[Floats]:
        for block in _blocks(len(features)):
            x = inputs(features[block])
            scores, expected = np.asarray(self._own.scores(read_only(params), x)), (len(x), self.classes)
            if scores.shape != expected:
                raise InputError(
                    f"{self._name}'s scores have shape {scores.shape}; it must be {expected}: one row per sample, one "
                    "column per class."
                )
            yield _numbers(scores, f"{self._name}'s scores")

    def _flat(self, given: Any, what: str) -> Params:
        flat = np.asarray(given)
        if flat.size != self.size:
            raise InputError(f"{self._name}'s {what} has {flat.size} numbers; the model has {self.size}.")
        return _numbers(flat, f"{self._name}'s {what}").reshape(-1)


def inputs(features: Features) -> Floats:
    """The features as float32; bytes become numbers in [0, 1]."""
    if features.dtype == np.uint8:
        return features * np.float32(1.0 / 255.0)
    return features.astype(np.float32, copy=False)


def require_trainable(model: Model, samples: LabeledSamples, name: str) -> None:
    """Raise `InputError` unless scores at the start are finite, and the gradient is the gradient of the loss.

    name  of the task whose model it is
    """
    features, labels, start = samples.features[:CHECKED], samples.labels[:CHECKED], model.init(0)
    if start.shape != (model.size,):
        raise InputError(f"{name}'s start has shape {start.shape}; the model has {model.size} parameters.")
    scores = model.scores(start, features)
    if scores.shape != (len(features), len(samples.classes)):
        raise InputError(
            f"{name}'s scores have shape {scores.shape}; it must be {(len(features), len(samples.classes))}: one row "
            "per sample, one column per class."
        )
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        raise InputError(f"{name}'s scores are not finite at the start, at sample {_first_not(finite)}.")
    weight = np.full(len(labels), 1.0 / len(labels), dtype=np.float32)
    gradient = model.weighted_gradient(start, features, labels, weight)
    if not np.isfinite(gradient).all():
        place = _first_not(np.isfinite(gradient))
        raise InputError(f"{name}'s gradient is not finite at the start, at parameter {place}.")
    drawn = np.random.default_rng(0).normal(size=(DIRECTIONS, model.size))
    directions = (STEP / np.linalg.norm(drawn, axis=1, keepdims=True) * drawn).astype(np.float32)
    rises = [
        0.5 * (model.loss(start + one, features, labels) - model.loss(start - one, features, labels))
        for one in directions
    ]
    told = directions @ gradient
    measured, error = np.linalg.norm(rises), np.linalg.norm(told - rises)
    if max(float(measured), float(np.linalg.norm(told))) > 1e-6 and error > LARGEST_ERROR * measured:
        raise InputError(
            f"{name}'s gradient is not that of the loss of its scores: in {DIRECTIONS} small steps it predicts changes "
            f"of the loss that are wrong by {100 * error / max(float(measured), 1e-12):.0f}%. It must be the sum over "
            "samples of weight times the gradient of the cross-entropy."
        )


def _first_not(right: NDArray[np.bool_] | np.bool_) -> int:
    return int(np.argmin(right))


def _numbers(array: NDArray[Any], what: str) -> Floats:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} have type {array.dtype}; they must be numbers.")
    return array.astype(np.float32, copy=False)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


class OwnSteps:
    """A model with the losses and gradients of another one, but trained by `task.local_steps`."""

    def __init__(self, model: Model, task: Task, penalty: float | None = None) -> None:
        self.model, self.task = model, task
        self.penalty = float(getattr(model, "penalty", 0.0)) if penalty is None else penalty
        self.size, self.init = model.size, model.init
        self.scores, self.predict, self.accuracy = model.scores, model.predict, model.accuracy
        self.weighted_gradient, self.loss = model.weighted_gradient, model.loss

    def with_penalty(self, penalty: float) -> OwnSteps:
        """The same model with another penalty in training."""
        return OwnSteps(self.model, self.task, penalty)

    def local_steps(
        self, params: Params, features: Features, labels: Labels, batches: Sequence[NDArray[np.int64]], step_size: float
    ) -> Params:
        """The parameters after one step on each of these batches, positions of samples, from `params`."""
        own: Any = self.task
        x, start = inputs(features), read_only(params)
        trained = np.asarray(own.local_steps(start, x, labels, batches, step_size, self.penalty))
        if trained.size != self.size or trained.dtype.kind != "f":
            raise InputError(
                f"{type(own).__name__}'s local_steps gave {trained.size} values of type {trained.dtype}; it must give "
                f"the model's {self.size} parameters."
            )
        return trained.reshape(-1).astype(np.float32, copy=True)
