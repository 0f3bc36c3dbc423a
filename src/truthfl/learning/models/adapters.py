"""Models from PyTorch modules, JAX functions and estimators of scikit-learn.

Parameters: for each layer the weights (inputs, units), in row order, then the biases (units).

The libraries are imported when an adapter is called. Samples are passed as float32; bytes become numbers in [0, 1].
The module or function returns scores, one row per sample and one column per class. The loss is the cross-entropy of
their softmax plus (penalty/2)‖w‖².
"""

from __future__ import annotations

import copy
import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.models.model import (
    Features,
    Labels,
    Params,
    mean_loss,
    predicted_classes,
    residuals,
    share_correct,
)
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.training.draws import Purpose, generator

Floats = NDArray[np.float32]
NETWORK_BLOCK = 4096
Function = Callable[[Floats], Floats]


def _logistic(z: Floats) -> Floats:
    result: Floats = 0.5 * (1.0 + np.tanh(0.5 * z))
    return result


def _rectified(z: Floats) -> Floats:
    return np.maximum(z, np.float32(0.0))


ACTIVATIONS: dict[str, tuple[Function, Function]] = {  # the function, and its derivative by its result
    "identity": (lambda z: z, np.ones_like),
    "logistic": (_logistic, lambda a: a * (1.0 - a)),
    "tanh": (np.tanh, lambda a: 1.0 - a * a),
    "relu": (_rectified, lambda a: (a > 0).astype(np.float32)),
}


@dataclass(frozen=True)
class SklearnNetwork:
    """Dense layers. The loss is the cross-entropy of the last layer's softmax, plus (penalty/2)‖w‖².

    units       inputs, units of each hidden layer, classes
    activation  of the hidden layers: "identity", "logistic", "tanh" or "relu"
    """

    units: tuple[int, ...]
    activation: str = "relu"
    penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise InputError(f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}.")
        if min(self.units) < 1:
            raise InputError(f"the layers have {self.units} units; each must have at least 1.")

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.units[-1]

    @property
    def size(self) -> int:
        return sum((inputs + 1) * units for inputs, units in zip(self.units, self.units[1:], strict=False))

    def init(self, seed: int) -> Params:
        """Weights and biases uniform within Glorot's bounds, as scikit-learn draws them."""
        drawn = generator(seed, Purpose.INIT).uniform(-1.0, 1.0, self.size).astype(np.float32)
        factor = 2.0 if self.activation == "logistic" else 6.0
        for weights, biases in self._layers(drawn):
            bound = np.float32((factor / sum(weights.shape)) ** 0.5)
            weights *= bound
            biases *= bound
        return drawn

    def scores(self, params: Params, features: Features) -> Floats:
        return np.concatenate(self._scores_by_block(params, features))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return mean_loss(self._scores_by_block(params, features), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(self._scores_by_block(params, features), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(self._scores_by_block(params, features))

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        outputs = self._outputs(params, features)
        derivative = residuals(outputs[-1], labels, weight)
        gradient = np.empty(self.size, dtype=np.float32)
        layers, slots = list(self._layers(params)), list(self._layers(gradient))
        slope = ACTIVATIONS[self.activation][1]
        for k in range(len(layers) - 1, -1, -1):
            np.matmul(outputs[k].T, derivative, out=slots[k][0])
            slots[k][1][:] = derivative.sum(axis=0)
            if k:
                derivative = (derivative @ layers[k][0].T) * slope(outputs[k])
        if self.penalty:
            gradient += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def _layers(self, flat: Params) -> Iterator[tuple[Floats, Floats]]:
        """Views of the weights and biases of each layer."""
        first = 0
        for inputs, units in zip(self.units, self.units[1:], strict=False):
            middle, end = first + inputs * units, first + (inputs + 1) * units
            yield flat[first:middle].reshape(inputs, units), flat[middle:end]
            first = end

    def _outputs(self, params: Params, features: Features) -> list[Floats]:
        """The inputs, the output of each hidden layer, and the scores."""
        rows = features.reshape(len(features), -1)
        x = rows * np.float32(1.0 / 255.0) if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)
        outputs: list[Floats] = [x]
        for k, (weights, biases) in enumerate(self._layers(params)):
            z = outputs[-1] @ weights + biases
            outputs.append(z if k == len(self.units) - 2 else ACTIVATIONS[self.activation][0](z))
        return outputs

    def _scores_by_block(self, params: Params, features: Features) -> list[Floats]:
        return [
            self._outputs(params, features[s : s + NETWORK_BLOCK])[-1] for s in range(0, len(features), NETWORK_BLOCK)
        ]


BLOCK = 512  # samples per block; bounds memory
PICTURE_DIMENSIONS = 4  # (samples, height, width, channels)


def from_torch(module: Any, shape: Sequence[int], *, seeded: bool = False, penalty: float = 0.0) -> TorchModel:
    """A model from a `torch.nn.Module` that takes samples and returns scores (n, classes).

    `shape` is the shape of one sample's features. For pictures it is (height, width, channels), and the module gets
    (n, channels, height, width), as PyTorch's layers expect. All other samples are passed unchanged. The flat
    parameters are the parameters in `module.named_parameters()` that require gradients, in this order, each in row
    order. The others stay constant. `init` returns the module's current parameters or, with `seeded`, draws new ones by
    every layer's `reset_parameters`. The module itself is not changed: training uses copies of it, on the CPU and in
    evaluation mode (no dropout, stored batch statistics). So the loss depends only on parameters and sample.
    """
    torch = _library("torch", "PyTorch")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"module is of type {type(module).__name__}; it must be a torch.nn.Module.")
    adapted = TorchModel(torch, module, seeded, penalty)
    adapted.check_shape(shape)
    return adapted


def from_jax(apply: Callable[[Any, Any], Any], initial: Any, shape: Sequence[int], *, penalty: float = 0.0) -> JaxModel:
    """A model from a JAX function `apply(parameters, x)` of samples (n, *shape).

    `apply` returns scores. `initial` is a tree of initial parameters (dictionaries, lists, … of arrays), or a function
    from the seed to such a tree. The flat parameters are the leaves in JAX's order (in a dictionary: by sorted keys),
    each in row order. `apply` is compiled once per block size. To keep the number of sizes small, blocks are padded to
    the next power of two with samples of zeros and weight 0.
    """
    jax = _library("jax", "JAX")
    if not callable(apply):
        raise InputError(f"apply is of type {type(apply).__name__}; it must be a function of parameters and samples.")
    adapted = JaxModel(jax, apply, initial, penalty)
    adapted.check_shape(shape)
    return adapted


def from_sklearn(
    estimator: Any, shape: Sequence[int], classes: int, *, penalty: float | None = None
) -> SoftmaxRegression | SklearnNetwork:
    """A model like this estimator of scikit-learn. The estimator is not fitted: federated rounds fit the model.

    A `LogisticRegression`, or an `SGDClassifier` with log_loss, becomes a `SoftmaxRegression`. An `MLPClassifier`
    becomes a network with its hidden layers and activation. With two classes, both have a score.
    penalty  by default alpha of an `SGDClassifier`, else 1e-3: C and an MLP's alpha are measured by numbers of samples
    """
    name, features = type(estimator).__name__, prod(int(length) for length in shape)
    if not type(estimator).__module__.startswith("sklearn."):
        raise InputError(f"estimator is of type {name}; it must be an estimator of scikit-learn.")
    if name == "LogisticRegression":
        return SoftmaxRegression(features, classes, 1e-3 if penalty is None else penalty)
    if name == "SGDClassifier" and estimator.loss == "log_loss":
        return SoftmaxRegression(features, classes, float(estimator.alpha) if penalty is None else penalty)
    if name == "MLPClassifier":
        hidden = estimator.hidden_layer_sizes
        units = (features, *np.atleast_1d(np.asarray(hidden, dtype=np.int64)).tolist(), classes)
        return SklearnNetwork(units, estimator.activation, 1e-3 if penalty is None else penalty)
    raise InputError(
        "from_sklearn knows LogisticRegression, SGDClassifier with log_loss and MLPClassifier; "
        + (
            f"the loss of this SGDClassifier is {estimator.loss}."
            if name == "SGDClassifier"
            else f"{name} is none of them: it has no parameters that can be averaged."
        )
    )


class AdaptedModel(ABC):
    """Base class that evaluates in blocks of samples; a subclass computes scores and gradients of one block."""

    penalty: float
    size: int

    @abstractmethod
    def init(self, seed: int) -> Params: ...
    @abstractmethod
    def _scores(self, params: Params, features: Features) -> Floats: ...
    @abstractmethod
    def _gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params: ...

    def scores(self, params: Params, features: Features) -> Floats:
        return np.concatenate(self._all_scores(params, features))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        self._check(labels)
        return mean_loss(self._all_scores(params, features), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(self._all_scores(params, features), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(self._all_scores(params, features))

    def _all_scores(self, params: Params, features: Features) -> list[Floats]:
        return [self._scores(params, features[block]) for block in _blocks(len(features))]

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        self._check(labels)
        gradient = np.zeros(self.size, dtype=np.float32)
        for block in _blocks(len(features)):
            gradient += self._gradient(params, features[block], labels[block], weight[block])
        if self.penalty:
            gradient += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def with_penalty(self, penalty: float) -> Self:
        """The same model with another penalty."""
        changed = copy.copy(self)
        changed.penalty = penalty
        return changed

    def check_shape(self, shape: Sequence[int]) -> None:
        """Evaluate two samples of zeros and set `classes`; raise `InputError` if the model does not accept them."""
        lengths = tuple(shape)
        if not lengths or not all(isinstance(length, int | np.integer) and length > 0 for length in lengths):
            raise InputError(f"shape is {shape!r}; it must be the lengths of one sample's features, such as (30,).")
        examples = np.zeros((2, *lengths), dtype=np.float32)
        try:
            scores = self._scores(self.init(0), examples)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise InputError(f"the model does not accept samples of shape {lengths}: {first}.") from error
        if scores.ndim != 2 or len(scores) != len(examples):
            raise InputError(
                f"for {len(examples)} samples the model returns an array of shape {scores.shape}; it must return "
                "scores, one row per sample and one column per class."
            )
        self.classes = scores.shape[1]

    def _check(self, labels: Labels) -> None:
        """Raise `InputError` for a label outside the classes. JAX would silently use the last class instead."""
        if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < self.classes):
            wrong = int(labels.max()) if int(labels.max()) >= self.classes else int(labels.min())
            raise InputError(f"there is a label {wrong}; the model's scores are for classes 0 to {self.classes - 1}.")


class TorchModel(AdaptedModel):
    """See `from_torch`. Every thread has its own copy of the module, because parameters are written into it."""

    def __init__(self, torch: Any, module: Any, seeded: bool, penalty: float) -> None:
        self.torch, self.seeded, self.penalty = torch, seeded, penalty
        self.module = copy.deepcopy(module).cpu().eval()
        for name, parameter in self.module.named_parameters():
            if parameter.dtype != torch.float32:
                raise InputError(f"parameter {name} has type {parameter.dtype}; all must be torch.float32.")
        self.size = sum(p.numel() for p in self._trained(self.module))
        if self.size == 0:
            raise InputError("module has no parameters that require gradients; there is nothing to train.")
        self._threads = threading.local()

    def init(self, seed: int) -> Params:
        if not self.seeded:
            return self._flat(self._trained(self.module))
        fresh = copy.deepcopy(self.module)
        with self.torch.random.fork_rng(devices=[]):
            self.torch.manual_seed(seed % 2**63)
            for name, layer in fresh.named_modules():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
                elif next(layer.parameters(recurse=False), None) is not None:
                    where = f"layer {name}" if name else "the module"
                    raise InputError(f"{where} has parameters and no reset_parameters(); adapt it with seeded=False.")
        return self._flat(self._trained(fresh))

    def _scores(self, params: Params, features: Features) -> Floats:
        module, _ = self._module_with(params)
        with self.torch.no_grad():
            return np.asarray(module(self._inputs(features)).numpy())

    def _gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        module, parameters = self._module_with(params)
        scores = module(self._inputs(features))
        losses = self.torch.nn.functional.cross_entropy(scores, self.torch.tensor(labels), reduction="none")
        total = losses @ self.torch.tensor(weight)
        return self._flat(self.torch.autograd.grad(total, parameters, materialize_grads=True))

    def _module_with(self, params: Params) -> tuple[Any, list[Any]]:
        """This thread's copy of the module with these parameters, and the list of its trained parameters."""
        if not hasattr(self._threads, "module"):
            self._threads.module = copy.deepcopy(self.module)
        module = self._threads.module
        parameters = self._trained(module)
        flat = self.torch.tensor(params)
        with self.torch.no_grad():
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.copy_(part.view_as(parameter))
        return module, parameters

    def _inputs(self, features: Features) -> Any:
        numbers = _numbers(features)
        if features.ndim == PICTURE_DIMENSIONS:
            numbers = np.ascontiguousarray(numbers.transpose(0, 3, 1, 2))
        return self.torch.tensor(numbers)

    def _trained(self, module: Any) -> list[Any]:
        return [p for p in module.parameters() if p.requires_grad]

    def _flat(self, parts: Any) -> Params:
        return np.asarray(self.torch.cat([part.detach().reshape(-1) for part in parts]).numpy(), dtype=np.float32)


class JaxModel(AdaptedModel):
    """See `from_jax`."""

    def __init__(self, jax: Any, apply: Callable[[Any, Any], Any], initial: Any, penalty: float) -> None:
        self.penalty = penalty
        self._ravel: Callable[[Any], tuple[Any, Any]] = importlib.import_module("jax.flatten_util").ravel_pytree
        self._initial = initial if callable(initial) else lambda _: initial
        first, tree = self._ravel(self._initial(0))
        if first.dtype != np.float32 or first.size == 0:
            raise InputError(f"initial has {first.size} parameters of type {first.dtype}; they must be float32.")
        self.size = int(first.size)

        def scores(flat: Any, features: Any) -> Any:
            return apply(tree(flat), _numbers(features))

        def weighted_loss(flat: Any, features: Any, labels: Any, weight: Any) -> Any:
            log_probabilities = jax.nn.log_softmax(scores(flat, features))
            chosen = jax.numpy.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]
            return -(chosen * weight).sum()

        self._compiled_scores, self._compiled_gradient = jax.jit(scores), jax.jit(jax.grad(weighted_loss))

    def init(self, seed: int) -> Params:
        return np.array(self._ravel(self._initial(seed))[0], dtype=np.float32)

    def _scores(self, params: Params, features: Features) -> Floats:
        return np.asarray(self._compiled_scores(params, _padded(features)))[: len(features)]

    def _gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        label_numbers = _padded(labels.astype(np.int32))
        return np.array(self._compiled_gradient(params, _padded(features), label_numbers, _padded(weight)))


def _library(name: str, title: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{title} is not installed; to adapt one of its models, install the package {name}.") from None


def _numbers(features: Any) -> Any:
    """The features as float32; bytes become numbers in [0, 1]."""
    numbers = features.astype(np.float32)
    return numbers * np.float32(1.0 / 255.0) if features.dtype == np.uint8 else numbers


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def _padded(array: NDArray[Any]) -> NDArray[Any]:
    """The array padded with zeros so that the number of rows is a power of two."""
    rows = 1 << (len(array) - 1).bit_length()
    if rows == len(array):
        return array
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), dtype=array.dtype)])
