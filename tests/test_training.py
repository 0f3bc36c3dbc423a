"""Training: the fast engines against the plain loop; the same seed, the same result, however it is computed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from truthfl import InputError, Strategies, Training
from truthfl.learning import compiled
from truthfl.learning.behaviours import BEHAVIOURS, error_rates, play
from truthfl.learning.cnn import ConvolutionalNetwork
from truthfl.learning.datasets import small_digits
from truthfl.learning.federated import Federated
from truthfl.learning.labels import assigned_labels
from truthfl.learning.partition import iid_partition, paper_partition
from truthfl.learning.plain_training import train_plainly
from truthfl.learning.softmax import SoftmaxRegression
from truthfl.learning.training import train

DIGITS = small_digits()
MODELS = [SoftmaxRegression(64, 10, 0.01), ConvolutionalNetwork(8, 8, 1, 4, 10)]
KERNELS = ["off", "auto", "plain"]


@pytest.fixture(params=KERNELS)
def with_kernel(request, monkeypatch):
    """Each test on NumPy alone, on the kernel as chosen, and on its plainest instruction set."""
    monkeypatch.setenv("TRUTHFL_KERNEL", request.param)
    compiled.kernel.cache_clear()
    if request.param != "off" and compiled.kernel() is None:
        pytest.skip("the compiled kernel is not built here")
    yield request.param
    compiled.kernel.cache_clear()


def dishonest_federation(model, local_steps, participation=1.0):
    """One client of each behaviour, data of different sizes."""
    names = list(BEHAVIOURS)
    partition = paper_partition(DIGITS.labels, 40 + 7 * np.arange(len(names)), seed=3)
    federated = Federated(model, DIGITS, partition, Training(6, local_steps, 0.3), participation=participation)
    played = play(names, np.full(len(names), 20))
    labels = assigned_labels(
        DIGITS.labels,
        partition,
        labeling_effort=played.labeling_effort,
        error_rate=error_rates(names),
        classes=10,
        seed=5,
    )
    return federated, played, labels


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_fast_training_is_the_plain_loop(model, local_steps, participation):
    federated, played, labels = dishonest_federation(model, local_steps, participation)
    plain = train_plainly(federated, played, labels, seed=7)
    fast = train(federated, played, labels, 7).params[0]
    moved = np.abs(plain - model.init(7)).max()
    assert moved > 0.01
    assert np.abs(fast - plain).max() < 1e-5 * max(1.0, moved)


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_same_seed_gives_the_same_bits_alone_or_in_a_batch_on_any_number_of_threads(model, local_steps):
    federated, played, labels = dishonest_federation(model, local_steps)
    alone = train(federated, played, labels, 11, threads=2).params[0]
    for threads, seeds in ((1, [11]), (1, [10, 11, 12]), (2, [10, 11, 12]), (3, [11, 12]), (4, [9, 10, 11])):
        together = train(federated, played, labels, seeds, threads=threads).params[seeds.index(11)]
        assert (together == alone).all()


@pytest.mark.usefixtures("with_kernel")
def test_runs_differ_in_strategies_labels_and_step_sizes():
    federated, played, labels = dishonest_federation(MODELS[0], 1)
    count = len(federated.partition)
    honest = Strategies(1.0, np.full(count, 20.0), 1.0)
    both = Strategies(
        1.0,
        np.stack([played.batch_size, honest.batch_size]),
        np.stack([played.report_scale, honest.report_scale]),
    )
    many = train(federated, both, np.stack([labels, federated.true_labels()]), [7, 7], step_sizes=[0.3, 0.1])
    assert (many.params[0] == train(federated, played, labels, 7, step_sizes=0.3).params[0]).all()
    assert (many.params[1] == train(federated, honest, federated.true_labels(), 7, step_sizes=0.1).params[0]).all()


@pytest.mark.usefixtures("with_kernel")
def test_what_is_watched():
    federated, played, labels = dishonest_federation(MODELS[1], 1)
    train_set, test_set = DIGITS.split_off(300, seed=1)
    seen = train(federated, played, labels, [1, 2], watch={"train": train_set, "test": test_set}, every=4)
    assert seen.rounds.tolist() == [4, 6]
    assert seen.watched["test"].loss.shape == (2, 2)
    final = federated.model.loss(seen.params[1], test_set.images, test_set.labels)
    assert seen.watched["test"].loss[1, -1] == pytest.approx(final, rel=1e-5)
    assert seen.watched["test"].accuracy[1, -1] == pytest.approx(
        federated.model.accuracy(seen.params[1], test_set.images, test_set.labels)
    )


@pytest.mark.usefixtures("with_kernel")
def test_training_learns():
    train_set, test_set = DIGITS.split_off(300, seed=1)
    partition = iid_partition(len(train_set), [140] * 10, seed=2)
    federated = Federated(SoftmaxRegression(64, 10, 1e-3), train_set, partition, Training(150, 1, 0.5))
    honest = Strategies(1.0, np.full(10, 30.0), 1.0)
    seen = train(federated, honest, federated.true_labels(), 1, watch={"test": test_set})
    assert seen.watched["test"].accuracy[0, -1] > 0.9


def test_a_hundred_thousand_clients_fit(with_kernel):
    if with_kernel == "plain":
        pytest.skip("the same code as with the best instruction set")
    partition = iid_partition(len(DIGITS), np.full(100_000, 5), seed=2)
    federated = Federated(SoftmaxRegression(64, 10), DIGITS, partition, Training(2, 1, 0.5))
    few = Strategies(1.0, np.full(100_000, 2.0), 1.0)
    done = train(federated, few, federated.true_labels(), 1)
    assert np.isfinite(done.params).all()
    assert np.abs(done.params).max() > 0


def test_what_cannot_be_trained():
    federated, played, labels = dishonest_federation(MODELS[0], 1)
    with pytest.raises(InputError, match=r"batch_size of client 0 in run 0 is 2\.5; training needs a whole number"):
        train(federated, Strategies(1.0, np.full(len(played.batch_size), 2.5), 1.0), labels, 1)
    with pytest.raises(InputError, match="do not fit 1 runs of 9 clients"):
        train(federated, Strategies(1.0, [3.0, 3.0], 1.0), labels, 1)
    with pytest.raises(InputError, match="do not fit"):
        train(federated, played, labels[:-1], 1)
    with pytest.raises(InputError, match="the partition speaks of sample"):
        Federated(MODELS[0], DIGITS.take(np.arange(10)), federated.partition, federated.training)


def test_without_the_kernel_one_line_says_so(tmp_path):
    """A copy of the package without the compiled file: training works, and standard error has one line."""
    code = (
        "from pathlib import Path; import truthfl.learning.compiled as c;"
        f"c.__file__ = str(Path({str(tmp_path)!r}) / 'compiled.py'); print(c.kernel(), c.kernel())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRUTHFL_KERNEL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "None None\n"
    assert done.stderr.count("\n") == 1
    assert "the compiled kernel is missing" in done.stderr
