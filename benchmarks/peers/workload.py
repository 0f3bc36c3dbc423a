"""The work of all contenders: each client's images, batches, and initial parameters.

There are 60,000 random images of 28 × 28 pixels, split evenly, and the one-layer network. Batches have 50 images per
client and step; `truthfl.learning.training.draws` draws them, so that contenders with given batches all use the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl import Strategies, Training
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledImages
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.training.draws import Purpose, below, bits, key
from truthfl.learning.training.train import train

SEED = 1
CLASSES = 10
SIDE = 28
STEP_SIZE = 0.05
CYCLE = 16  # rounds whose batches are drawn beforehand; then they are repeated
THREADS = 2


@dataclass(frozen=True)
class Work:
    """One setting of the benchmark."""

    clients: int
    local_steps: int = 1
    batch: int = 50
    filters: int = 8
    images: int = 60_000

    @property
    def label(self) -> str:
        """Name in tables: the number of clients, and H if it is not 1."""
        return f"{self.clients}" if self.local_steps == 1 else f"{self.clients}, H={self.local_steps}"

    @property
    def each(self) -> int:
        """Number of samples of one client."""
        return self.images // self.clients

    def model(self) -> ConvolutionalNetwork:
        return ConvolutionalNetwork(SIDE, SIDE, 1, filters=self.filters, classes=CLASSES)

    def data(self) -> LabeledImages:
        drawn = np.random.default_rng(0)
        images = drawn.integers(0, 256, (self.images, SIDE, SIDE, 1), dtype=np.uint8)
        return LabeledImages(images, drawn.integers(0, CLASSES, self.images), [str(k) for k in range(CLASSES)])

    def floats(self):
        """(images, labels) for the peers: float32 in [0, 1], (n, 1, 28, 28); not part of the measured time."""
        data = self.data()
        return data.images.transpose(0, 3, 1, 2) * np.float32(1.0 / 255.0), data.labels.copy()

    def rows(self, rounds: int = CYCLE):
        """The images of each step of the first rounds: (rounds, clients, local steps, batch)."""
        t, i, h = np.ogrid[:rounds, : self.clients, : self.local_steps]
        return below(bits(key(SEED, Purpose.BATCH, i, t, h), self.batch), self.each) + (i * self.each)[..., None]

    def initial(self):
        return self.model().init(SEED)

    def federated(self, rounds: int, model=None, data=None) -> Federated:
        partition = Partition(np.arange(self.images), np.arange(self.clients + 1) * self.each)
        training = Training(rounds, self.local_steps, STEP_SIZE)
        return Federated(model or self.model(), data or self.data(), partition, training)

    def trained(self, rounds: int):
        """truthfl's parameters after this number of rounds."""
        federated = self.federated(rounds)
        honest = Strategies.truthful(np.full(self.clients, self.batch))
        return train(federated, honest, SEED, threads=THREADS).params[0]

    def flops(self) -> int:
        """The necessary floating-point operations of one round; a multiply-add counts as two.

        Forward: convolution at 576 positions, dense layer. Backward: only the largest of four pooled positions has a
        gradient, so a quarter of the convolution; the dense layer twice. No gradient by the pixels.
        """
        convolution = 2 * (SIDE - 4) ** 2 * 25 * self.filters
        dense = 2 * (SIDE - 4) ** 2 // 4 * self.filters * CLASSES
        return self.clients * self.local_steps * self.batch * (convolution + convolution // 4 + 3 * dense)
