"""Files with tasks of one's own, and a job that uses one."""

from sklearn.datasets import load_wine

NUMPY_TASK = '''
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truthfl.simulate import ReadSamples, Task


@dataclass(frozen=True)
class Wines(Task):
    """Softmax regression in NumPy on the numbers of a CSV file; the last column is the class."""

    penalty: float = 1e-3

    def read(self, path):
        with path.open() as file:
            columns, *rows = csv.reader(file)
        numbers = np.array([row[:-1] for row in rows], dtype=float)
        return ReadSamples(numbers, tuple(row[-1] for row in rows), tuple(columns[:-1]))

    def size(self, shape):
        return len(self.classes) * (shape[0] + 1)

    def start(self, shape, seed):
        return np.zeros(self.size(shape))

    def scores(self, params, x):
        weights = params.reshape(-1, len(self.classes))
        return x @ weights[:-1] + weights[-1]

    def gradient(self, params, x, labels, weight):
        scores = self.scores(params, x)
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(x)), labels] -= 1
        chances *= weight[:, None]
        return np.concatenate([x.T @ chances, chances.sum(axis=0, keepdims=True)]).ravel()
'''

OWN_STEPS = (
    NUMPY_TASK
    + """
    def local_steps(self, params, x, labels, batches, step_size, penalty):
        local = np.array(params)
        for batch in batches:
            weight = np.full(len(batch), 1 / len(batch), dtype=np.float32)
            local -= step_size * (self.gradient(local, x[batch], labels[batch], weight) + penalty * local)
        return local
"""
)

WINE_JOB = """
[task]
use = "wines.py:Wines"

[data]
source = "{source}"
pilot_samples = 60
test_samples = 40
split = "iid"

[training]
rounds = 10
step_size = 0.5

[server]
loss_value = 4000.0
test_samples = 200

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = 20
labeling_cost = 20
sample_cost = 0.2
"""


def wines_file(folder):
    """The wines of scikit-learn as a CSV file, standardised."""
    wines = load_wine()
    numbers = (wines.data - wines.data.mean(axis=0)) / wines.data.std(axis=0)
    rows = [[f"{value:.6f}" for value in row] for row in numbers]
    lines = [",".join([*row, f"kind {label}"]) for row, label in zip(rows, wines.target, strict=True)]
    path = folder / "wines.csv"
    path.write_text("\n".join([",".join([*(f"x{k}" for k in range(13)), "kind"]), *lines]))
    return path


def own_job_file(folder, text=NUMPY_TASK):
    """The job on wines, with the task's file beside it."""
    (folder / "wines.py").write_text(text)
    path = folder / "job.toml"
    path.write_text(WINE_JOB.format(source=wines_file(folder)))
    return path
