"""Tumours by the measures of their cells: the network of `tumour_numpy.py` in PyTorch."""

from torch import nn

from truthfl.simulate import Tables, from_torch


class Tumour(Tables):
    """Rows of a table, learned by a module of PyTorch."""

    def model(self, shape):
        net = nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh(), nn.Linear(8, len(self.classes)))
        return from_torch(net, shape, seeded=True, penalty=1e-3)
