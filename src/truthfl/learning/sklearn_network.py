"""A network of dense layers as scikit-learn's `MLPClassifier` has them, as a `Model`.

Parameters: of each layer the weights (inputs, units), in row order, then the biases (units).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.model import Features, Labels, Params, mean_loss, predicted_classes, residuals, share_correct

Floats = NDArray[np.float32]
BLOCK = 4096
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
    """Dense layers; the loss is the cross-entropy of the softmax of the last one, plus (penalty/2)‖w‖².

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
        return [self._outputs(params, features[s : s + BLOCK])[-1] for s in range(0, len(features), BLOCK)]
