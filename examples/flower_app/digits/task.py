"""Data, model, training. Nothing here knows of pay."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

CLASSES = tuple("0123456789")
SERVERS_TEST, SERVERS_OWN = 300, 1000


class Softmax:
    """Softmax regression on 8 by 8 pixels."""

    def __init__(self):
        self.weight = np.zeros((64, len(CLASSES)), dtype=np.float32)
        self.bias = np.zeros(len(CLASSES), dtype=np.float32)

    def get_weights(self):
        return [self.weight, self.bias]

    def set_weights(self, weights):
        self.weight, self.bias = (np.array(one) for one in weights)

    def chances(self, features):
        scores = features @ self.weight + self.bias
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def train(model, data, learning_rate, batch_size, local_steps, seed):
    """Some steps of gradient descent, each on a batch drawn for it; the last batch's loss before its step."""
    features, labels = data
    draws = np.random.default_rng(seed)
    for rows in draws.integers(len(labels), size=(local_steps, batch_size)):
        chances, right = model.chances(features[rows]), (np.arange(batch_size), labels[rows])
        loss = cross_entropy(chances[right])
        chances[right] -= 1
        model.weight -= learning_rate / batch_size * (features[rows].T @ chances)
        model.bias -= learning_rate / batch_size * chances.sum(axis=0)
    return loss


def test(model, data):
    """Mean loss and accuracy."""
    features, labels = data
    chances = model.chances(features)
    return cross_entropy(chances[np.arange(len(labels)), labels]), float((chances.argmax(axis=1) == labels).mean())


def cross_entropy(chances):
    return float(-np.log(np.maximum(chances, 1e-12)).mean())


def load_data(partition_id, num_partitions):
    """One client's digits: four fifths to train on, one fifth to evaluate on. Later partitions are larger."""
    features, labels = _shuffled()
    sizes = np.arange(num_partitions) + 3
    ends = SERVERS_OWN + (len(labels) - SERVERS_OWN) * np.cumsum(sizes) // sizes.sum()
    start, end = np.concatenate(([SERVERS_OWN], ends))[partition_id : partition_id + 2]
    cut = start + (end - start) * 4 // 5
    return (features[start:cut], labels[start:cut]), (features[cut:end], labels[cut:end])


def load_servers_data():
    """The server's own digits: some to try things out with, some to test with."""
    features, labels = _shuffled()
    cut, end = SERVERS_OWN - SERVERS_TEST, SERVERS_OWN
    return (features[:cut], labels[:cut]), (features[cut:end], labels[cut:end])


@cache
def _shuffled():
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (features[order] / 16 - 0.3).astype(np.float32), labels[order]
