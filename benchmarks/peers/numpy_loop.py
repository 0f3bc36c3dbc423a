"""A plain NumPy loop: client by client, the convolution as one product of all 5 × 5 windows with the filters."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.peers.workload import CLASSES, CYCLE, SIDE, STEP_SIZE

WIDE = SIDE - 4


def run(work, gate) -> None:
    gate.imported()
    (images, labels), rows, common = work.floats(), work.rows(), work.initial()
    images = images[:, 0]
    ends = np.cumsum([work.filters * 25, work.filters, CLASSES * work.filters * WIDE**2 // 4])
    going, t = gate.open(), 0
    while going:
        total = np.zeros_like(common)
        for client_rows in rows[t % CYCLE]:
            local = common.copy()
            for batch in client_rows:
                local -= np.float32(STEP_SIZE) * gradient(np.split(local, ends), images[batch], labels[batch])
            total += local
        common, t = total / np.float32(work.clients), t + 1
        going = gate.round_done(lambda final=common: final)


def gradient(parts, x, y):
    """The gradient of the mean cross-entropy of one batch; flat, in PyTorch's order."""
    weights, biases, dense, dense_biases = parts
    n, filters = len(x), len(biases)
    windows = sliding_window_view(x, (5, 5), axis=(1, 2)).reshape(n * WIDE**2, 25)
    z = np.maximum(windows @ weights.reshape(filters, 25).T + biases, 0.0)
    z = z.reshape(n, WIDE // 2, 2, WIDE // 2, 2, filters)
    pooled = z.max(axis=(2, 4))
    units = pooled.transpose(0, 3, 1, 2).reshape(n, -1)
    scores = units @ dense.reshape(CLASSES, -1).T + dense_biases
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    likely[np.arange(n), y] -= 1.0
    likely /= n
    back = (likely @ dense.reshape(CLASSES, -1)).reshape(n, filters, WIDE // 2, WIDE // 2).transpose(0, 2, 3, 1)
    to_z = ((z == pooled[:, :, None, :, None]) & (z > 0.0)) * back[:, :, None, :, None]
    to_z = to_z.reshape(n * WIDE**2, filters)
    to_weights, to_dense = to_z.T @ windows, likely.T @ units
    return np.concatenate([to_weights.ravel(), to_z.sum(axis=0), to_dense.ravel(), likely.sum(axis=0)])
