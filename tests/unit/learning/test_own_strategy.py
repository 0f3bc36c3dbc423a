"""A Flower strategy as the way in which reports are combined: its results, and what cannot be used."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedMedian, FedProx, FedYogi

from helpers.auditions import ALLOWED, audition_job, audition_job_file
from helpers.commands import told
from truthfl.errors import InputError
from truthfl.federation.protocol.server import with_strategy
from truthfl.job import read_job
from truthfl.learning.training.aggregation import ServerOptimizer, new_combiner
from truthfl.learning.training.own_strategy import StrategyCombiner, registered
from truthfl.studies.cells import FederationSpec, federation_of
from truthfl.studies.verify.training import losses_without

STRATEGIES = """
from flwr.serverapp.strategy import FedAdam, FedAvg

adam = FedAdam(eta=0.05)
number, half = 3, FedAvg(fraction_train=0.5)

def average():
    return FedAvg()

def broken():
    raise ValueError("no")

class Silent(FedAvg):
    def aggregate_train(self, server_round, replies):
        return None, None
"""


def named(folder, name):
    """The audition job with this strategy, from a file beside it."""
    (folder / "strategies.py").write_text(STRATEGIES)
    job = read_job(audition_job_file(folder, ("[server]\n", f'[server]\naggregation = "{name}"\n')))
    return replace(job, server=replace(job.server, most_pay=ALLOWED))


def test_an_average_by_flower_is_the_mean_of_the_contracts_weights():
    """Also where reports are missing, and where who is seldom asked counts more."""
    draws = np.random.default_rng(1)
    common = draws.normal(size=650).astype(np.float32)
    changes = draws.normal(scale=0.1, size=(4, 650)).astype(np.float32)
    for weight in ([0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2], [0.8, 0.6], []):
        reports = changes[: len(weight)], np.array(weight)
        by_flower = StrategyCombiner(FedAvg())(1, common, *reports)
        assert np.abs(by_flower - new_combiner("mean")(1, common, *reports)).max() < 1e-6
    crowd = FedMedian(min_available_nodes=9)  # it does not wait for nine
    assert np.abs(StrategyCombiner(crowd)(1, common, changes[:3], np.ones(3) / 3) - common).max() < 0.5
    assert registered(crowd) != registered(FedMedian())


OPTIMIZERS = [
    FedAvgM(server_momentum=0.9),
    FedAvgM(server_learning_rate=0.5),
    FedAdam(eta=0.05),
    FedAdagrad(),
    FedYogi(),
]


@pytest.mark.parametrize("strategy", OPTIMIZERS, ids=lambda strategy: type(strategy).__name__)
def test_optimizers_take_the_steps_that_flowers_own_take(strategy):
    """Five rounds; in the second one report is missing."""
    draws, weight = np.random.default_rng(2), np.array([0.5, 0.3, 0.2])
    fast, flowers = new_combiner(registered(strategy)), StrategyCombiner(strategy)
    assert isinstance(fast, ServerOptimizer)
    models = [draws.normal(size=650).astype(np.float32)] * 2
    for round_ in range(1, 6):
        changes = draws.normal(scale=0.1, size=(3 - (round_ == 2), 650)).astype(np.float32)
        models = [
            combine(round_, model, changes, weight[: len(changes)])
            for combine, model in zip((fast, flowers), models, strict=True)
        ]
        assert np.abs(models[0] - models[1]).max() < 1e-5


def test_a_job_with_an_average_is_the_job_with_the_mean(tmp_path):
    for job in (
        named(tmp_path, "strategies.py:average"),
        with_strategy(audition_job(tmp_path), FedProx(proximal_mu=0.1)),
    ):
        assert job.aggregation == "mean"
        assert job.simulated_federation().federated.rule.aggregation == "mean"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.py:adam", "missing.py does not exist; it must be the file that defines adam."),
        ("strategies.py:other", "strategies.py has no other."),
        ("strategies.py:number", "number of strategies.py is no Flower strategy; it must be one, or a function that"),
        ("strategies.py:broken", "broken of strategies.py failed (ValueError: no)."),
        ("strategies.py:half", "fraction_train is 0.5; a contract says how often each is asked: set [clients] part"),
        ("no_such_module:adam", "no_such_module cannot be imported (ModuleNotFoundError"),
    ],
)
def test_strategies_that_are_none_get_a_sentence(tmp_path, name, sentence):
    with pytest.raises(InputError, match=r"\[server\] aggregation: ") as error:
        named(tmp_path, name)
    assert sentence in str(error.value)


def test_a_strategy_without_a_model_or_of_another_process_is_told(tmp_path):
    job = named(tmp_path, "strategies.py:Silent")
    common = np.zeros(3, dtype=np.float32)
    combine = new_combiner(job.aggregation)
    assert told(combine, 4, common, np.ones((1, 3), np.float32), np.ones(1)) == (
        "Silent returned no model in round 4; it must be one of shape (3,)."
    )
    assert "is an object of another process" in told(new_combiner, "live:FedAdam 123")
    moving = replace(job, training=replace(job.training, momentum=0.5))
    assert told(moving.server_side) == (
        "momentum is 0.5 and reports are combined by a custom strategy, which keeps its own; momentum must be 0."
    )
    with pytest.raises(InputError, match="of masked reports only the mean can be computed"):
        replace(job, privacy=replace(job.privacy, secure_aggregation=True))


def test_verify_trains_lies_with_the_jobs_way_to_combine_reports(tmp_path):
    """In plain values, as workers get them; a file that was changed in the meantime is told."""
    job = named(tmp_path, "strategies.py:Silent")
    data, model, sizes = job.data, job.trained_model, job.clients.dataset_size
    plain = FederationSpec(data, model, sizes)
    median, own = (FederationSpec(data, model, sizes, aggregation=name) for name in ("median", job.aggregation))
    for spec in (median, own):
        made = federation_of(spec.document())
        assert {made.federated.rule.aggregation, made.pilot.rule.aggregation} == {spec.aggregation}
    training = {"rounds": 2, "local_steps": 1, "step_size": 0.5, "batch_size": [8.0] * 4, "without": [0], "seeds": [1]}
    assert not np.array_equal(
        *(losses_without(federation=spec.document(), **training)["loss"] for spec in (plain, median))
    )
    assert "Silent returned no model in round 1" in told(losses_without, federation=own.document(), **training)
    changed = own.document() | {"aggregation": own.document()["aggregation"] | {"source": "other"}}
    assert told(federation_of, changed).endswith("was changed in the meantime; start again.")
