"""Small federations and models that trainings are tested on."""

import numpy as np

from truthfl import Training
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.profile import Profile

DIGITS = small_digits()


MODELS = [SoftmaxRegression(64, 10, 0.01), ConvolutionalNetwork(8, 8, 1, 4, 10)]


def dishonest_federation(model, local_steps, participation=1.0, names=None):
    """One client of each behaviour, data of different sizes."""
    names = list(BEHAVIOURS) if names is None else names
    partition = paper_partition(DIGITS.labels, 40 + 7 * np.arange(len(names)), seed=3)
    federated = Federated(model, DIGITS, partition, Training(6, local_steps, 0.3), participation=participation)
    return federated, Profile(names, 20)
