"""Jobs on tables and custom tasks, jobs that describe their classes, and their participants' files."""

from __future__ import annotations

import csv
from io import BytesIO

import numpy as np
from PIL import Image
from sklearn.datasets import load_wine

from helpers.participants import Ada, draw_pictures
from truthfl.federation.deployed.node import client_app
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant import node_settings
from truthfl.federation.participant.node_settings import ACCEPT_ALL, Settings
from truthfl.federation.protocol.offers import kept_instructions
from truthfl.federation.simulated.participants import InProcessGrid
from truthfl.job import read_classes
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.samples.sources import open_samples

TABLE_JOB = """
[task]
use = "tables"

[data]
source = "{source}"
pilot_samples = 200
test_samples = 150

[model]
kind = "softmax"

[training]
rounds = 6
step_size = 2.0

[server]
loss_value = 4000.0
test_samples = 500
enrol_seconds = 0.05

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = 40
labeling_cost = 40
sample_cost = 0.05

[privacy]
secure_aggregation = false
"""
CITIES = ("Bergen", "Paris")
QUICK = PilotDesign(seeds=8, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


def rows(count, seed):
    """Rows with people's age and city, and whether they say yes: mostly old people from Bergen do."""
    draws = np.random.default_rng(seed)
    age, city = draws.integers(20, 80, count), draws.integers(0, 2, count)
    yes = age + 20 * city + draws.normal(0, 8, count) > 60
    return [(int(a), CITIES[c], "yes" if y else "no") for a, c, y in zip(age, city, yes, strict=True)]


def write_rows(path, header, lines):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def table_job_file(folder):
    source = write_rows(folder / "pilot.csv", ("age", "city", "label"), rows(700, 1))
    path = folder / "job.toml"
    path.write_text(TABLE_JOB.format(source=source))
    return path


def settings_of(folder, name, data, task="tables"):
    """A participant's settings as `truthfl join --accept` makes them, with a new key."""
    home = folder / name
    kept_key(home / "key")
    return Settings(name, str(data), str(home), str(home / "key"), ACCEPT_ALL, task=task)


def grid_of_settings(settings):
    """A grid whose nodes are participants with these settings, by node id, as a deployed app makes them."""
    forget_participants()
    return InProcessGrid(client_app, {node: one.node_config() for node, one in settings.items()})


def forget_participants():
    """Handle the next message as in a new process."""
    node_settings.participant_of.cache_clear()
    node_settings._task_data.cache_clear()


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


CLASSES = """
[classes]
examples = "examples"
instructions = "Label the digit.\\nIf there are two, the larger one."

[[classes.class]]
name = "7"
description = "With or without a bar. <b>Not</b> a one."
"""


def picture_bytes(width=20, height=20, kind="PNG", noise=False):
    """A picture file of this size: one colour, or noise, which compresses badly."""
    rng = np.random.default_rng(width)
    pixels = (
        rng.integers(0, 256, (height, width, 3), dtype=np.uint8) if noise else np.full((height, width, 3), 90, "uint8")
    )
    target = BytesIO()
    Image.fromarray(pixels).save(target, kind)
    return target.getvalue()


def example_folder(folder):
    """A folder of examples: for the 7 two pictures, for the 1 a large photo and a text."""
    seven, one = folder / "examples" / "7", folder / "examples" / "1"
    seven.mkdir(parents=True)
    one.mkdir()
    (seven / "a.png").write_bytes(picture_bytes())
    (seven / "b.png").write_bytes(picture_bytes(24, 30))
    (one / "photo.jpg").write_bytes(picture_bytes(1200, 800, "JPEG", noise=True))
    (one / "words.txt").write_bytes(b"A stroke.\r\n\tOr <i>two</i>.\n")
    return folder / "examples"


def instructed_ada(folder, samples):
    """Ada with pictures and an offer for this many of them, whose classes are described."""
    example_folder(folder)
    (folder / "classes.toml").write_text(CLASSES)
    ada = Ada(folder / "ada")
    given = kept_instructions(read_classes(folder / "classes.toml"), ada.home)
    ada.offer = ada.gets_offer(samples=samples, instructions=given)
    ada.samples = open_samples(draw_pictures(folder / "data", samples))
    return ada
