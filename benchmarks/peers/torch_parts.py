"""Common parts of the PyTorch contenders: the network with the initial parameters, and the data as tensors."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.peers.workload import CLASSES, SIDE, THREADS


class Network(nn.Module):
    """The paper's network."""

    def __init__(self, work) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, work.filters, 5)
        self.dense = nn.Linear(work.filters * ((SIDE - 4) // 2) ** 2, CLASSES)
        with torch.no_grad():
            nn.utils.vector_to_parameters(torch.from_numpy(work.initial()), self.parameters())

    def forward(self, x):
        active = torch.relu(self.convolution(x))
        return self.dense(torch.flatten(torch.max_pool2d(active, 2), 1))

    def flat(self):
        return nn.utils.parameters_to_vector(self.parameters()).detach().numpy().copy()


def tensors(work):
    """Images, labels, and the rows of each step."""
    torch.set_num_threads(THREADS)
    images, labels = work.floats()
    return torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(work.rows())
