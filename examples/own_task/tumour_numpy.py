"""Tumours by the measures of their cells: a network with one hidden layer, in NumPy alone."""

from dataclasses import dataclass

import numpy as np

from truthfl.simulate import Tables


@dataclass(frozen=True)
class Tumour(Tables):
    """Rows of a table, learned by a network.

    hidden   units of the hidden layer
    penalty  factor of the L2 penalty, which truthfl adds
    """

    hidden: int = 8
    penalty: float = 1e-3

    def size(self, shape):
        return (shape[0] + 1) * self.hidden + (self.hidden + 1) * len(self.classes)

    def start(self, shape, seed):
        params, drawn = np.zeros(self.size(shape)), np.random.default_rng(seed)
        first, _, second, _ = self.parts(params)
        first[:] = drawn.normal(size=first.shape) / np.sqrt(len(first))
        second[:] = drawn.normal(size=second.shape) / np.sqrt(len(second))
        return params

    def scores(self, params, x):
        first, biases, second, more_biases = self.parts(params)
        return np.tanh(x @ first + biases) @ second + more_biases

    def gradient(self, params, x, labels, weight):
        first, biases, second, more_biases = self.parts(params)
        units = np.tanh(x @ first + biases)
        scores = units @ second + more_biases
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(x)), labels] -= 1
        outer = chances * weight[:, None]
        inner = (outer @ second.T) * (1 - units**2)
        parts = (x.T @ inner, inner.sum(axis=0), units.T @ outer, outer.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts])

    def parts(self, params):
        """Weights and biases of the hidden layer, weights and biases of the scores."""
        outputs = len(self.classes)
        columns = (len(params) - outputs * (self.hidden + 1)) // self.hidden - 1
        ends = np.cumsum([columns * self.hidden, self.hidden, self.hidden * outputs])
        first, biases, second, more_biases = np.split(params, ends)
        return first.reshape(columns, -1), biases, second.reshape(self.hidden, outputs), more_biases
