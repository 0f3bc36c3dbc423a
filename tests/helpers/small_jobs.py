"""Jobs on data that are done in a second or two; plans and searches that are made once; small trainings.

A module that imports `known_plans` has them. What a plan and a search are made from is the key, to the last digit, so
that nothing is taken for something else; what they give is changed by nobody.
"""

from __future__ import annotations

import io
import pickle
from types import FunctionType

import numpy as np
import pytest

from truthfl import Training
from truthfl.federation.protocol import planned_offers
from truthfl.job import jobs
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.profile import Profile

SMALL_JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 30

[server]
loss_value = 4000.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = [120, 120, 150, 90]
labeling_cost = [120, 120, 150, 90]
sample_cost = 0.05
behaviour = ["truthful", "free rider", "truthful", "small batch"]
"""

TEN_CLIENTS = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 15

[server]
loss_value = 8000.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
dataset_size = [60, 70, 80, 60, 70, 80, 60, 70, 80, 90]
labeling_cost = 30
sample_cost = 0.05
"""


UNMASKED = "\n[privacy]\nsecure_aggregation = false\n"  # so that single reports can be looked at


def small_job_file(folder, old="", new=""):
    """The job as a file, with reports that the server sees one by one, and something in it changed."""
    assert old in SMALL_JOB
    path = folder / "job.toml"
    path.write_text((SMALL_JOB.replace(old, new) if old else SMALL_JOB) + UNMASKED)
    return path


def ten_client_job_file(folder, more=""):
    """The job of ten clients as a file, with more fields of the clients."""
    path = folder / "job.toml"
    path.write_text(f"{TEN_CLIENTS}{more}\n")
    return path


KNOWN = {}


@pytest.fixture(scope="module", autouse=True)
def known_plans():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "make_plan", made_once(jobs.make_plan))
        patch.setattr(planned_offers, "search_on_pilot", made_once(planned_offers.search_on_pilot))
        yield


def made_once(make):
    """The same function, which remembers; of what cannot be written in bytes, it does not."""

    def known(*arguments, **named):
        try:
            key = in_bytes((make.__qualname__, arguments, sorted(named.items())))
        except (pickle.PicklingError, AttributeError, TypeError):
            return make(*arguments, **named)
        if key not in KNOWN:
            KNOWN[key] = make(*arguments, **named)
        return KNOWN[key]

    return known


def in_bytes(what):
    written = io.BytesIO()
    Exact(written).dump(what)
    return written.getvalue()


class Exact(pickle.Pickler):
    """Writes functions within functions, too: by their code and what they refer to."""

    def reducer_override(self, it):
        if not isinstance(it, FunctionType) or "<" not in it.__qualname__:
            return NotImplemented
        cells = [cell.cell_contents for cell in it.__closure__ or ()]
        return tuple, ((it.__module__, it.__qualname__, it.__code__.co_code, it.__defaults__, cells),)


DIGITS = small_digits()


MODELS = [SoftmaxRegression(64, 10, 0.01), ConvolutionalNetwork(8, 8, 1, 4, 10)]


def dishonest_federation(model, local_steps, participation=1.0, names=None):
    """One client of each behaviour, data of different sizes."""
    names = list(BEHAVIOURS) if names is None else names
    partition = paper_partition(DIGITS.labels, 40 + 7 * np.arange(len(names)), seed=3)
    federated = Federated(model, DIGITS, partition, Training(6, local_steps, 0.3), participation=participation)
    return federated, Profile(names, 20)
