"""The paper's network in NumPy: one convolution with 5 × 5 filters, ReLU, 2 × 2 max-pooling, dense softmax.

A pooled unit depends on a 6 × 6 patch, in which a 5 × 5 filter has four positions. So the convolution is one matrix
product of all patches (stride 2) with the filters at the four positions, and pooling is the maximum of four slices. In
a tie the gradient goes to the upper position, then to the left one. Parameters, in PyTorch's order: filters (filters,
channels, 5, 5), biases (filters), dense (classes, units), biases (classes).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
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
from truthfl.learning.training.draws import Purpose, generator

Floats = NDArray[np.float32]
FILTER = 5
POSITIONS = ((0, 0), (1, 0), (0, 1), (1, 1))  # upper left, lower left, upper right, lower right
BLOCK = 150  # features per block: larger blocks would not fit the cache, smaller ones mean more NumPy calls


@dataclass(frozen=True)
class ConvolutionalNetwork:
    """The network for images of this height, width and number of channels; `penalty` is the factor of ‖w‖²/2."""

    height: int
    width: int
    channels: int
    filters: int
    classes: int
    penalty: float = 0.0

    def __post_init__(self) -> None:
        if min(self.height, self.width) < FILTER + 1:
            raise InputError(
                f"images are {self.height} × {self.width} pixels; the network needs at least "
                f"{FILTER + 1} × {FILTER + 1}."
            )

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width after pooling; an odd last row or column is left out."""
        return (self.height - FILTER + 1) // 2, (self.width - FILTER + 1) // 2

    @property
    def units(self) -> int:
        return self.filters * self.pooled[0] * self.pooled[1]

    @property
    def size(self) -> int:
        return self.filters * (self.channels * FILTER**2 + 1) + self.classes * (self.units + 1)

    def init(self, seed: int) -> Params:
        """Weights and biases uniform within ±1/√(number of inputs of the unit)."""
        drawn = generator(seed, Purpose.INIT).uniform(-1.0, 1.0, self.size).astype(np.float32)
        filters, biases, dense, dense_biases = self.parts(drawn)
        for part, inputs in (
            (filters, self.channels * FILTER**2),
            (biases, self.channels * FILTER**2),
            (dense, self.units),
            (dense_biases, self.units),
        ):
            part *= np.float32(inputs**-0.5)
        return drawn

    def parts(self, params: Params) -> tuple[Floats, Floats, Floats, Floats]:
        """Views of filters, biases, dense weights and their biases."""
        ends = np.cumsum([self.filters * self.channels * FILTER**2, self.filters, self.classes * self.units])
        filters, biases, dense, dense_biases = np.split(params, ends)
        return (
            filters.reshape(self.filters, self.channels, FILTER, FILTER),
            biases,
            dense.reshape(self.classes, self.units),
            dense_biases,
        )

    def scores(self, params: Params, features: Features) -> Floats:
        return np.concatenate(self._scores_by_block(params, features))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return mean_loss(self._scores_by_block(params, features), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(self._scores_by_block(params, features), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(self._scores_by_block(params, features))

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        gradient = np.zeros(self.size, dtype=np.float32)
        placed = self._placed(params)
        for s in range(0, len(features), BLOCK):
            block = slice(s, s + BLOCK)
            self._add_gradient(gradient, params, placed, features[block], labels[block], weight[block])
        if self.penalty:
            gradient += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def gradient_lengths(self, params: Params, features: Features, labels: Labels) -> Params:
        """The length of the gradient of each sample's cross-entropy, without the penalty."""
        placed = self._placed(params)
        blocks = [slice(s, s + BLOCK) for s in range(0, len(features), BLOCK)]
        return np.concatenate([self._block_lengths(params, placed, features[block], labels[block]) for block in blocks])

    def _block_lengths(self, params: Params, placed: Floats, features: Features, labels: Labels) -> Params:
        count, weight = len(features), np.ones(len(features), dtype=np.float32)
        b = self._forward(params, placed, features)
        derivative = residuals(self._scores(params, b), labels, weight)
        square = np.square(derivative).sum(axis=1) * (np.square(b.units).sum(axis=0) + np.float32(1.0))
        to_biases = self._backward(params, b, derivative).reshape(self.filters, -1, count).sum(axis=1)
        square += np.square(to_biases).sum(axis=0)
        patches = np.ascontiguousarray(b.patches.reshape(len(b.patches), -1, count).transpose(2, 1, 0))
        back = np.ascontiguousarray(b.z.reshape(len(placed), -1, count).transpose(2, 0, 1))
        by_position = back @ patches
        by_position = by_position.reshape(count, 4, self.filters, self.channels, FILTER + 1, FILTER + 1)
        to_filters = np.zeros((count, self.filters, self.channels, FILTER, FILTER), dtype=np.float32)
        for position, (row, column) in enumerate(POSITIONS):
            to_filters += by_position[:, position, :, :, row : row + FILTER, column : column + FILTER]
        return np.asarray(np.sqrt(square + np.square(to_filters).reshape(count, -1).sum(axis=1)))

    def _placed(self, params: Params) -> Floats:
        """The filters at their four positions in a 6 × 6 patch: (4 · filters, channels · 36)."""
        filters = self.parts(params)[0]
        placed = np.zeros((4, self.filters, self.channels, FILTER + 1, FILTER + 1), dtype=np.float32)
        for position, (row, column) in enumerate(POSITIONS):
            placed[position, :, :, row : row + FILTER, column : column + FILTER] = filters
        return placed.reshape(4 * self.filters, -1)

    def _forward(self, params: Params, placed: Floats, features: Features) -> _Buffers:
        """This thread's buffers, with the activations of a block of images."""
        b = _buffers(self, len(features))
        np.multiply(features.transpose(3, 1, 2, 0), np.float32(1.0 / 255.0), out=b.x)
        np.copyto(b.windows, b.patch_view)
        np.matmul(placed, b.patches, out=b.z.reshape(len(placed), -1))
        np.maximum(b.z[:, 0], b.z[:, 1], out=b.sides)
        np.maximum(b.sides[0], b.sides[1], out=b.active)
        b.active += self.parts(params)[1][:, None]
        np.maximum(b.active, 0.0, out=b.active)
        return b

    def _scores(self, params: Params, b: _Buffers) -> Floats:
        _, _, dense, dense_biases = self.parts(params)
        scores: Floats = (dense @ b.units).T + dense_biases
        return scores

    def _scores_by_block(self, params: Params, features: Features) -> list[Floats]:
        placed = self._placed(params)
        starts = range(0, len(features), BLOCK)
        return [self._scores(params, self._forward(params, placed, features[s : s + BLOCK])) for s in starts]

    def _add_gradient(
        self, gradient: Params, params: Params, placed: Floats, features: Features, labels: Labels, weight: Params
    ) -> None:
        to_filters, to_biases, to_dense, to_dense_biases = self.parts(gradient)
        b = self._forward(params, placed, features)
        derivative = residuals(self._scores(params, b), labels, weight)
        to_dense += derivative.T @ b.units.T
        to_dense_biases += derivative.sum(axis=0)
        to_biases += self._backward(params, b, derivative).sum(axis=1)
        by_position = (b.patches @ b.z.reshape(len(placed), -1).T).T.reshape(
            4, self.filters, self.channels, FILTER + 1, FILTER + 1
        )
        for position, (row, column) in enumerate(POSITIONS):
            to_filters += by_position[position, :, :, row : row + FILTER, column : column + FILTER]

    def _backward(self, params: Params, b: _Buffers, derivative: Floats) -> Floats:
        """The derivative by the active units, which replaces them; by the four positions before pooling in `b.z`."""
        np.greater(b.active, 0.0, out=b.flags[0])
        np.matmul(self.parts(params)[2].T, derivative.T, out=b.units)
        back = b.active  # the same memory as b.units
        back *= b.flags[0]
        np.greater_equal(b.sides[0], b.sides[1], out=b.flags[0])
        np.multiply(back, b.flags[0], out=b.sides[0])
        np.subtract(back, b.sides[0], out=b.sides[1])
        np.greater_equal(b.z[:, 0], b.z[:, 1], out=b.flags)
        np.multiply(b.sides, b.flags, out=b.z[:, 0])
        np.subtract(b.sides, b.z[:, 0], out=b.z[:, 1])
        return back


class _Buffers:
    """The arrays for one block of images. They are allocated once per thread and reused, so they stay in the cache.

    The image is the last axis of all arrays. So contiguous runs are long, and units are in the order of the parameters.
    """

    def __init__(self, model: ConvolutionalNetwork, count: int) -> None:
        rows, columns = model.pooled
        side, patch_count = FILTER + 1, rows * columns * count
        self.x = np.empty((model.channels, model.height, model.width, count), dtype=np.float32)
        plane, down, right, image = self.x.strides
        shape = (model.channels, side, side, rows, columns, count)
        self.patch_view = as_strided(self.x, shape, (plane, down, right, 2 * down, 2 * right, image))
        self.windows = np.empty(shape, dtype=np.float32)
        self.patches = self.windows.reshape(-1, patch_count)
        self.z = np.empty((2, 2, model.filters, patch_count), dtype=np.float32)  # left and right; upper and lower
        self.sides = np.empty((2, model.filters, patch_count), dtype=np.float32)
        self.active = np.empty((model.filters, patch_count), dtype=np.float32)
        self.units = self.active.reshape(-1, count)
        self.flags = np.empty((2, model.filters, patch_count), dtype=bool)


_thread = threading.local()


def _buffers(model: ConvolutionalNetwork, count: int) -> _Buffers:
    """This thread's buffers for `count` images; the last two sizes are kept (full blocks and the last, smaller one)."""
    kept: dict[tuple[ConvolutionalNetwork, int], _Buffers] = getattr(_thread, "kept", {})
    if (model, count) not in kept:
        kept = dict(list(kept.items())[-1:])
        kept[model, count] = _Buffers(model, count)
        _thread.kept = kept
    return kept[model, count]
