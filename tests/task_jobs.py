"""A small job on a table, and its participants' files: rows with a number and a category, two classes."""

import csv

import numpy as np

from truthfl.federation.deployed.node_app import client_app
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant import node_settings
from truthfl.federation.participant.node_settings import ACCEPT_ALL, Settings
from truthfl.federation.simulated.participants import InProcessGrid
from truthfl.learning.pilot.runs import PilotDesign

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
    """Rows with the age and the city of somebody, and whether she says yes: the old of Bergen, mostly."""
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
    """A participant's settings as `truthfl join --accept` makes them; her key is made."""
    home = folder / name
    kept_key(home / "key")
    return Settings(name, str(data), str(home), str(home / "key"), ACCEPT_ALL, task=task)


def grid_of_settings(settings):
    """A grid whose nodes are participants with these settings, by node id, as a deployed app makes them."""
    forget_participants()
    return InProcessGrid(client_app, {node: one.node_config() for node, one in settings.items()})


def forget_participants():
    """As if the next message were handled in a new process."""
    node_settings.participant_of.cache_clear()
    node_settings._task_data.cache_clear()
