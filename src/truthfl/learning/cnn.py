"""The paper's network: one convolution with 5 × 5 filters, ReLU, 2 × 2 max-pooling, dense softmax. NumPy, by hand.

Each pooled unit sees a 6 × 6 patch, in which the filter can sit in four places. So the convolution is one matrix
product of all patches, two pixels apart, with the filters in their four places, and pooling is the maximum of four
slices. In a tie the upper place wins, then the left. Looks at `model` and `draws`. Parameters, in PyTorch's order:
filters (filters, channels, 5, 5), biases (filters), dense (classes, units), biases (classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.model import Images, Labels, Params, log_likely, residuals

Floats = NDArray[np.float32]
FILTER = 5
PLACES = ((0, 0), (1, 0), (0, 1), (1, 1))  # upper left, lower left, upper right, lower right
BLOCK = 50  # images whose patches fit the cache


@dataclass(frozen=True)
class ConvolutionalNetwork:
    """For images of this height, width and number of channels."""

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
        """Uniform within ±1/√(inputs of the unit), biases too."""
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

    def loss(self, params: Params, images: Images, labels: Labels) -> float:
        likely = np.concatenate([log_likely(s) for s in self._scores_by_block(params, images)])
        entropy = -float(np.mean(likely[np.arange(len(labels)), labels], dtype=np.float64))
        return entropy + 0.5 * self.penalty * float(np.square(params.astype(np.float64)).sum())

    def accuracy(self, params: Params, images: Images, labels: Labels) -> float:
        best = np.concatenate([s.argmax(axis=1) for s in self._scores_by_block(params, images)])
        return float(np.mean(best == labels))

    def weighted_gradient(self, params: Params, images: Images, labels: Labels, weight: Params) -> Params:
        gradient = np.zeros(self.size, dtype=np.float32)
        placed = self._placed(params)
        for s in range(0, len(images), BLOCK):
            here = slice(s, s + BLOCK)
            self._add_gradient(gradient, params, placed, images[here], labels[here], weight[here])
        if self.penalty:
            gradient += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def _placed(self, params: Params) -> Floats:
        """The filters in their four places of a 6 × 6 patch: (4, filters, channels · 36)."""
        filters = self.parts(params)[0]
        placed = np.zeros((4, self.filters, self.channels, FILTER + 1, FILTER + 1), dtype=np.float32)
        for place, (row, column) in enumerate(PLACES):
            placed[place, :, :, row : row + FILTER, column : column + FILTER] = filters
        return placed.reshape(4, self.filters, -1)

    def _patches(self, images: Images) -> Floats:
        """(images · pooled units, channels · 36), pixels in [0, 1]."""
        x = np.ascontiguousarray(images.transpose(0, 3, 1, 2)) * np.float32(1.0 / 255.0)
        n, (rows, columns), side = len(x), self.pooled, FILTER + 1
        one, plane, down, right = x.strides
        shape = (n, rows, columns, self.channels, side, side)
        windows = as_strided(x, shape, (one, 2 * down, 2 * right, plane, down, right))
        return windows.reshape(n * rows * columns, -1)

    def _convolve(self, placed: Floats, patches: Floats) -> Floats:
        """(4, filters, images · pooled units)."""
        result: Floats = placed.reshape(4 * self.filters, -1) @ patches.T
        return result.reshape(4, self.filters, -1)

    def _units(self, params: Params, pooled: Floats, count: int) -> Floats:
        """After bias and ReLU, one row per image."""
        active: Floats = np.maximum(pooled + self.parts(params)[1][:, None], 0.0)
        by_image: Floats = active.reshape(self.filters, count, -1).transpose(1, 0, 2).reshape(count, -1)
        return by_image

    def _scores_by_block(self, params: Params, images: Images) -> list[Floats]:
        placed = self._placed(params)
        _, _, dense, dense_biases = self.parts(params)
        scores = []
        for s in range(0, len(images), BLOCK):
            block = images[s : s + BLOCK]
            pooled = self._convolve(placed, self._patches(block)).max(axis=0)
            scores.append(self._units(params, pooled, len(block)) @ dense.T + dense_biases)
        return scores

    def _add_gradient(
        self, gradient: Params, params: Params, placed: Floats, images: Images, labels: Labels, weight: Params
    ) -> None:
        count = len(images)
        _, _, dense, dense_biases = self.parts(params)
        to_filters, to_biases, to_dense, to_dense_biases = self.parts(gradient)
        patches = self._patches(images)
        z = self._convolve(placed, patches)
        left, right = np.maximum(z[0], z[1]), np.maximum(z[2], z[3])
        pooled = np.maximum(left, right)
        units = self._units(params, pooled, count)

        derivative = residuals(units @ dense.T + dense_biases, labels, weight)
        to_dense += derivative.T @ units
        to_dense_biases += derivative.sum(axis=0)
        back = derivative @ dense
        back *= units > 0.0
        by_filter = back.reshape(count, self.filters, -1).transpose(1, 0, 2).reshape(self.filters, -1)
        to_biases += by_filter.sum(axis=1)

        on_left = left >= right
        upper = np.where(on_left, z[0] >= z[1], z[2] >= z[3])
        chosen = np.empty_like(z)
        for place, here in enumerate((on_left & upper, on_left & ~upper, ~on_left & upper, ~on_left & ~upper)):
            np.multiply(by_filter, here, out=chosen[place])
        by_place = (chosen.reshape(4 * self.filters, -1) @ patches).reshape(placed.shape)
        by_place = by_place.reshape(4, self.filters, self.channels, FILTER + 1, FILTER + 1)
        for place, (row, column) in enumerate(PLACES):
            to_filters += by_place[place, :, :, row : row + FILTER, column : column + FILTER]
