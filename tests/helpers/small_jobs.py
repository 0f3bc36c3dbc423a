"""Jobs on data that take a second or two; plans and searches that are made once; small trainings.

A module that imports `known_plans` has the plans and searches of all the session's workers, also in the commands of
`helpers.commands`. Their exact inputs are the key, so none is mistaken for another; nobody changes the results.
"""

from __future__ import annotations

import io
import pickle
from contextlib import contextmanager
from hashlib import sha256
from types import CodeType, FunctionType

import numpy as np
import pytest
from scripts.kill_and_resume import SMALL_JOB

from helpers.commands import PLANS
from helpers.databases import KEY
from helpers.shared import built_folder, shared_folder, shared_value
from truthfl import Training
from truthfl.adversary.pilot_lies import search_on_pilot
from truthfl.contracts.planning import make_plan
from truthfl.federation.protocol import planned_offers
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import jobs, read_job
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.signing import write_key

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


UNMASKED = "\n[privacy]\nsecure_aggregation = false\n"  # so that tests can look at single reports


def small_job_file(folder, old="", new=""):
    """The job as a file with changes; the server sees single reports."""
    assert old in SMALL_JOB
    path = folder / "job.toml"
    path.write_text((SMALL_JOB.replace(old, new) if old else SMALL_JOB) + UNMASKED)
    return path


def ten_client_job_file(folder, more=""):
    """The job of ten clients as a file, with more client fields."""
    path = folder / "job.toml"
    path.write_text(f"{TEN_CLIENTS}{more}\n")
    return path


IN_EUROS = 'loss_value = 4000.0\nmargin = 5000.0\nmost_expected_pay = 100\ncurrency = "EUR"\nminor_units = 100'
QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


def finished_job(tmp_path_factory):
    """A folder with `job.toml`, of four rounds, and the operator's folder `out` after it; changed by nobody."""

    def build(folder):
        path = small_job_file(folder, "rounds = 30", "rounds = 4\nstep_size = 0.5")
        path.write_text(path.read_text().replace("loss_value = 4000.0", IN_EUROS))
        write_key(KEY, folder / "out" / "operator")
        run_job(read_job(path), folder / "out", design=QUICK)

    return built_folder(shared_folder(tmp_path_factory), "finished-job", build)


KNOWN = {}


@pytest.fixture(scope="module", autouse=True)
def known_plans(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        shared = shared_folder(tmp_path_factory)
        patch.setenv(PLANS, str(shared))
        remember_plans(shared, patch.setattr)
        yield


def remember_plans(shared, put=setattr):
    """Have plans and searches made once; they are kept in this folder."""
    put(jobs, "make_plan", made_once(make_plan, shared))
    put(planned_offers, "search_on_pilot", made_once(search_on_pilot, shared))


@contextmanager
def plans_made_anew():
    """In this context, plans are always made, even if they are known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PLANS, raising=False)
        patch.setattr(jobs, "make_plan", make_plan)
        patch.setattr(planned_offers, "search_on_pilot", search_on_pilot)
        yield


def made_once(make, shared):
    """The same function with a memory shared by all workers; results that cannot be pickled are made again."""

    def known(*arguments, **named):
        try:
            key = digest_of((make.__qualname__, arguments, sorted(named.items())))
        except (pickle.PicklingError, AttributeError, TypeError, ValueError):
            return make(*arguments, **named)
        if key not in KNOWN:
            KNOWN[key] = shared_value(shared, f"{make.__name__}-{key}", lambda: make(*arguments, **named))
        return KNOWN[key]

    return known


def digest_of(what):
    """A digest of all its bytes; equal parts count as equal, whether or not they are one object."""
    written = io.BytesIO()
    pickler = Exact(written)
    pickler.fast = True
    pickler.dump(what)
    return sha256(written.getbuffer()).hexdigest()


class Exact(pickle.Pickler):
    """Also pickles nested functions, by their code and their references."""

    def reducer_override(self, it):
        if not isinstance(it, FunctionType) or "<" not in it.__qualname__:
            return NotImplemented
        code, cells = it.__code__, [cell.cell_contents for cell in it.__closure__ or ()]
        constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
        own = it.__module__, it.__qualname__, code.co_code, code.co_names, constants, it.__defaults__
        return tuple, ((*own, cells),)


DIGITS = small_digits()


MODELS = [SoftmaxRegression(64, 10, 0.01), ConvolutionalNetwork(8, 8, 1, 4, 10)]


def dishonest_federation(model, local_steps, participation=1.0, names=None):
    """One client of each behaviour, data of different sizes."""
    names = list(BEHAVIOURS) if names is None else names
    partition = paper_partition(DIGITS.labels, 40 + 7 * np.arange(len(names)), seed=3)
    federated = Federated(model, DIGITS, partition, Training(6, local_steps, 0.3), participation=participation)
    return federated, Profile(names, 20)
