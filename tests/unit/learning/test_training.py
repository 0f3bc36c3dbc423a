"""Training: the fast engines against the plain loop; the same seed, the same result, however it is computed."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from helpers.small_jobs import DIGITS, MODELS, dishonest_federation
from truthfl import InputError, Strategies, Training
from truthfl.learning.data.partition import Federated, Partition, iid_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import Behaviour, Unlabeled
from truthfl.learning.people.behaviours import BEHAVIOURS
from truthfl.learning.people.labels import assigned_labels
from truthfl.learning.people.profile import Profile
from truthfl.learning.training import compute as compiled
from truthfl.learning.training.local_training import takes_part
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train

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


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_fast_training_is_the_plain_loop(model, local_steps, participation):
    federated, profile = dishonest_federation(model, local_steps, participation)
    plain = train_plainly(federated, profile, seed=7)
    fast = train(federated, profile, 7).params[0]
    moved = np.abs(plain - model.init(7)).max()
    assert moved > 0.01
    assert np.abs(fast - plain).max() < 1e-5 * max(1.0, moved)


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("names", [None, ["truthful", "exaggerator", "small batch"]], ids=["all", "no special ones"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_fast_training_with_momentum_from_a_given_model_is_the_plain_loop(model, names, local_steps, participation):
    """In pieces as well as at once, on one thread or several."""
    still, profile = dishonest_federation(model, local_steps, participation, names)
    federated = replace(still, training=replace(still.training, momentum=0.5))
    start = train(still, profile, 3).params[0]
    plain = train_plainly(federated, profile, seed=7, start=start)
    fast = train(federated, profile, 7, start=start, threads=1).params[0]
    assert np.abs(fast - plain).max() < 1e-5 * max(1.0, np.abs(plain - start).max())
    assert np.abs(fast - train(still, profile, 7, start=start).params[0]).max() > 1e-3
    assert np.abs(fast - train(federated, profile, 7).params[0]).max() > 1e-3
    for options in ({"every": 1}, {"every": 4, "threads": 2}):
        assert (train(federated, profile, 7, start=start, **options).params[0] == fast).all()


@pytest.mark.usefixtures("with_kernel")
def test_momentum_adds_a_share_of_the_last_change():
    """A heavy ball: each round's reports are those of a run without momentum from the same model."""
    federated, _ = dishonest_federation(MODELS[0], 1, names=["truthful"])
    honest = Strategies.truthful([20.0])
    models = [federated.model.init(7)]
    for rounds in (1, 2, 3):
        training = Training(rounds, 1, 0.3, momentum=0.9)
        models.append(train(replace(federated, training=training), honest, 7).params[0])
    first = train(replace(federated, training=Training(1, 1, 0.3)), honest, 7).params[0]
    assert np.abs(models[1] - first).max() < 1e-7
    both = train(replace(federated, training=Training(2, 1, 0.3)), honest, 7).params[0]
    np.testing.assert_allclose(models[2] - models[1], both - first + 0.9 * (models[1] - models[0]), atol=1e-6)


def test_runs_start_from_their_own_models():
    federated, profile = dishonest_federation(MODELS[0], 1, names=["truthful", "echo"])
    starts = np.stack([federated.model.init(1), train(federated, profile, 1).params[0]])
    many = train(federated, profile, [7, 8], start=starts).params
    for run, seed in enumerate((7, 8)):
        assert (many[run] == train(federated, profile, seed, start=starts[run]).params[0]).all()
    with pytest.raises(InputError, match=r"start has shape \(3, 650\); it must be \(650,\), or \(2, 650\)"):
        train(federated, profile, [7, 8], start=np.zeros((3, 650)))


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_every_behaviour_trains_alike_in_the_plain_loop_and_fast(name):
    """Alone among honest clients, so that others do not hide what the client does."""
    federated, profile = dishonest_federation(MODELS[0], 2, [1.0, 0.7, 1.0], ["truthful", name, "truthful"])
    fast, plain = train(federated, profile, 7).params[0], train_plainly(federated, profile, 7)
    assert np.abs(fast - plain).max() < 1e-6
    honest = train(federated, Profile(["truthful"] * 3, 20), 7).params[0]
    assert (np.abs(fast - honest).max() > 1e-4) == (name != "truthful")


def mixed(unlabeled=Unlabeled.DRAWN, effort=0.4, last=None, **traits):
    """A custom behaviour that does several things at once."""
    honest = {"labels_honestly": False, "computes_honestly": False, "reports_honestly": False}
    traits = {"labeling_effort": effort, "unlabeled": unlabeled, "last_report_scale": last} | traits
    return Behaviour("mixed", "Does several things.", **honest, **traits)


MIXED = {
    "own model, small batch": mixed(Unlabeled.OWN_MODEL, batch_share=0.2),
    "own model, errors, rising": mixed(Unlabeled.OWN_MODEL, error_rate=0.3, last=3.0),
    "nearest, scaled": mixed(Unlabeled.NEAREST, report_scale=0.5),
    "nearest, errors, falling": mixed(Unlabeled.NEAREST, error_rate=0.3, last=0.0),
    "drawn, falling": mixed(last=0.0),
    "predicted, falling": mixed(Unlabeled.PREDICTED, last=0.0),
    "left out, falling": mixed(Unlabeled.LEFT_OUT, last=0.1, report_scale=2.0),
    "drawn, rising from 0": mixed(report_scale=0.0, last=1.0),
}


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("own", MIXED.values(), ids=list(MIXED))
def test_behaviours_that_do_several_things_train_alike_in_the_plain_loop_and_fast(own, local_steps):
    federated, profile = dishonest_federation(MODELS[0], local_steps, [1.0, 0.7, 1.0], ["truthful", own, "truthful"])
    fast, plain = train(federated, profile, 7).params[0], train_plainly(federated, profile, 7)
    assert np.abs(fast - plain).max() < 1e-6
    for other in ({"last_report_scale": None}, {"unlabeled": Unlabeled.DRAWN}, {"error_rate": 0.0}):
        changed = train(federated, Profile(["truthful", replace(own, **other), "truthful"], 20), 7).params[0]
        assert (np.abs(fast - changed).max() > 1e-5) == (replace(own, **other) != own)


@pytest.mark.usefixtures("with_kernel")
def test_scales_that_change_train_the_same_on_any_number_of_threads_and_for_each_run_alone():
    federated, profile = dishonest_federation(MODELS[1], 2, 0.8, [*MIXED.values(), "truthful", "echo"])
    alone = train(federated, profile, 11, threads=1, every=2).params[0]
    for threads, seeds in ((2, [11]), (1, [10, 11, 12]), (2, [10, 11, 12])):
        together = train(federated, profile, seeds, threads=threads).params[seeds.index(11)]
        assert (together == alone).all()


@pytest.mark.usefixtures("with_kernel")
def test_rounds_with_scale_0_are_refused_reports():
    names = ["truthful", mixed(last=0.0), mixed(report_scale=0.0, last=1.0), "fading reporter", "echo"]
    nothing = mixed(report_scale=0.0, last=0.0)
    federated, profile = dishonest_federation(MODELS[0], 1, names=[*names, nothing])
    assert train(federated, profile, 7).refused_reports == ({1: 1, 2: 1, 3: 0, 4: 1},)
    assert profile.reports_nothing.tolist() == [False] * 5 + [True]
    sometimes = Federated(MODELS[0], DIGITS, federated.partition, federated.training, participation=0.5)
    seeds = range(8)
    for seed, empty in zip(seeds, train(sometimes, profile, list(seeds)).refused_reports, strict=True):
        assert empty[1] == takes_part(seed, 1, 5, 0.5)
        assert empty[2] == takes_part(seed, 2, 0, 0.5)
    once = Federated(MODELS[0], DIGITS, federated.partition, Training(1, 1, 0.3))
    assert train(once, profile, 7).refused_reports == ({1: 0, 2: 1, 3: 0, 4: 1},)


def honest_but_for_noise(received, noise, honest):
    """What a user might write: needs the honest report, and all models of the last four rounds."""
    assert len(received) <= 4
    return honest() + np.float32(0.01) * noise.standard_normal(len(received[-1])).astype(np.float32) * len(received)


def own_behaviour(fabricate=honest_but_for_noise, **traits):
    traits = {"labeling_effort": 0.3, "unlabeled": Unlabeled.LEFT_OUT, "remembers": 3} | traits
    honest = {"labels_honestly": False, "computes_honestly": True, "reports_honestly": False}
    return Behaviour("my own", "Adds noise.", **honest, fabricate=fabricate, **traits)


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("unlabeled", Unlabeled)
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_a_fabricator_may_compute_on_any_labels_and_remember_several_models(participation, unlabeled):
    own = own_behaviour(unlabeled=unlabeled)
    federated, profile = dishonest_federation(MODELS[0], 2, participation, ["truthful", own, "half parrot", own])
    fast, plain = train(federated, profile, 7).params[0], train_plainly(federated, profile, 7)
    assert np.abs(fast - plain).max() < 1e-5
    assert np.abs(fast - train(federated, profile, 8).params[0]).max() > 0.01


@pytest.mark.usefixtures("with_kernel")
def test_a_fabricator_sees_the_models_of_the_rounds_it_took_part_in_and_no_more_than_it_remembers():
    shown = []
    own = own_behaviour(
        lambda received, *_: shown.append(list(received)) or received[-1] + np.float32(1), computes=False
    )
    federated, profile = dishonest_federation(MODELS[0], 1, [1.0, 1.0], ["free rider", own])
    final = train(federated, profile, 7).params[0]
    share = np.float32(federated.weight[1])
    assert [[round(float(w[0] / share)) for w in one] for one in shown] == [
        [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]
    ]  # fmt: skip
    assert np.allclose(final, 6 * share)
    shown.clear()
    sometimes = Federated(MODELS[0], DIGITS, federated.partition, federated.training, participation=[1.0, 0.5])
    train(sometimes, profile, 7)
    there = [takes_part(7, 1, round_, 0.5) for round_ in range(6)]
    assert 0 < sum(there) < 6
    assert [len(one) for one in shown] == [min(k + 1, 4) for k in range(sum(there))]


@pytest.mark.usefixtures("with_kernel")
def test_labels_that_are_given_are_not_written_to():
    federated, profile = dishonest_federation(MODELS[0], 1, names=["truthful", "half parrot"])
    given = federated.true_labels()
    one = train(federated, profile, [7, 8], labels=given).params
    assert (given == federated.true_labels()).all()
    assert (one == train(federated, profile, [7, 8], labels=np.stack([given, given])).params).all()
    assert np.abs(one[0] - train_plainly(federated, profile, 7, labels=given)).max() < 1e-6


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_same_seed_gives_the_same_bits_alone_or_in_a_batch_on_any_number_of_threads(model, local_steps):
    federated, profile = dishonest_federation(model, local_steps)
    alone = train(federated, profile, 11, threads=2).params[0]
    for threads, seeds in ((1, [11]), (1, [10, 11, 12]), (2, [10, 11, 12]), (3, [11, 12]), (4, [9, 10, 11])):
        together = train(federated, profile, seeds, threads=threads).params[seeds.index(11)]
        assert (together == alone).all()


@pytest.mark.usefixtures("with_kernel")
def test_runs_differ_in_strategies_labels_and_step_sizes():
    federated, profile = dishonest_federation(MODELS[0], 1, names=["exaggerator", "small batch", "truthful"])
    played, labels = profile.strategies, profile.labels(federated, 5)
    honest = Strategies(1.0, np.full(3, 20.0), 1.0)
    both = Strategies(
        1.0,
        np.stack([played.batch_size, honest.batch_size]),
        np.stack([played.report_scale, honest.report_scale]),
    )
    given = np.stack([labels, federated.true_labels()])
    many = train(federated, both, [7, 7], labels=given, step_sizes=[0.3, 0.1])
    assert (many.params[0] == train(federated, played, 7, labels=labels, step_sizes=0.3).params[0]).all()
    assert (many.params[1] == train(federated, honest, 7, step_sizes=0.1).params[0]).all()


@pytest.mark.usefixtures("with_kernel")
def test_each_run_has_its_own_profile():
    federated, one = dishonest_federation(MODELS[0], 1)
    other = Profile(["truthful"] * len(one), 15)
    many = train(federated, [one, other, one], [7, 7, 8], evaluate_on={"test": DIGITS}, every=2)
    for run, (profile, seed) in enumerate([(one, 7), (other, 7), (one, 8)]):
        assert (many.params[run] == train(federated, profile, seed).params[0]).all()


@pytest.mark.usefixtures("with_kernel")
def test_train_makes_the_labels_itself():
    """Of strategies by each run's seed, as `assigned_labels` does; a profile's errors too."""
    federated, _ = dishonest_federation(MODELS[0], 1, names=["truthful"] * 3)
    effort = np.array([[1.0, 0.0, 0.4], [1.0, 1.0, 1.0], [0.5, 1.0, 1.0]])
    played, seeds = Strategies(effort, np.full((3, 3), 20.0), 1.0), [7, 8, 9]
    labels = [
        assigned_labels(DIGITS.labels, federated.partition, labeling_effort=one, classes=10, seed=seed)
        for one, seed in zip(effort, seeds, strict=True)
    ]
    own, given = train(federated, played, seeds), train(federated, played, seeds, labels=labels)
    assert (own.params == given.params).all()
    assert (own.params != train(federated, played, seeds, labels=federated.true_labels()).params).any(axis=1).tolist() \
        == [True, False, True]  # fmt: skip
    sloppy = Profile(["sloppy labeler"] * 3, 20)
    wrong = assigned_labels(DIGITS.labels, federated.partition, labeling_effort=1, error_rate=0.2, classes=10, seed=9)
    again = train(federated, Strategies.truthful(np.full(3, 20.0)), 9, labels=wrong)
    assert (train(federated, sloppy, 9).params == again.params).all()


@pytest.mark.usefixtures("with_kernel")
def test_samples_that_are_left_out_are_as_good_as_not_held():
    federated, profile = dishonest_federation(MODELS[0], 3, names=["truthful", "few labels"])
    left_out = profile.not_by_hand(federated.partition, Unlabeled.LEFT_OUT, 7)
    assert (~left_out[federated.samples_of(1)]).sum() == 5  # a tenth of 47
    assert not left_out[federated.samples_of(0)].any()
    rows = federated.partition.rows[~left_out]
    fewer = Federated(MODELS[0], DIGITS, Partition(rows, [0, 40, 45]), federated.training, weight=federated.weight)
    honest = train(fewer, Strategies.truthful([20.0, 20.0]), 7).params
    assert (train(federated, profile, 7).params == honest).all()
    marked = np.where(left_out, 99, federated.true_labels())  # labels that are given are used, but not those left out
    assert (train(federated, profile, 7, labels=marked).params == honest).all()


def test_the_label_that_a_client_with_few_labels_makes_at_least():
    partition = Partition([5, 6, 7], [0, 3])
    federated = Federated(MODELS[0], DIGITS, partition, Training(3, 1, 0.3))
    profile = Profile(["few labels"], 20)
    left_out = profile.not_by_hand(partition, Unlabeled.LEFT_OUT, 1)
    assert left_out.sum() == 2
    assert (profile.labels(federated, 1)[~left_out] == DIGITS.labels[5:8][~left_out]).all()
    assert np.abs(train(federated, profile, 1).params[0] - train_plainly(federated, profile, 1)).max() < 1e-6


@pytest.mark.usefixtures("with_kernel")
def test_whose_reports_are_empty_how_often():
    names = ["truthful", "echo", "free rider", "garbage", "last bit"]
    federated, profile = dishonest_federation(MODELS[0], 1, names=names)
    assert train(federated, profile, [7, 8]).refused_reports == ({1: 1, 3: 1, 4: 0},) * 2
    nobody = Profile(["free rider", "echo"], 20)
    alone = Federated(MODELS[0], DIGITS, Partition(np.arange(9), [0, 4, 9]), federated.training)
    assert train(alone, nobody, 7).refused_reports == ({1: 6},)  # nothing ever changes, so there is nothing to echo


@pytest.mark.usefixtures("with_kernel")
def test_what_is_watched():
    federated, profile = dishonest_federation(MODELS[1], 1)
    train_set, test_set = DIGITS.split_off(300, seed=1)
    seen = train(federated, profile, [1, 2], evaluate_on={"train": train_set, "test": test_set}, every=4)
    assert seen.rounds.tolist() == [4, 6]
    assert seen.evaluations["test"].loss.shape == (2, 2)
    final = federated.model.loss(seen.params[1], test_set.images, test_set.labels)
    assert seen.evaluations["test"].loss[1, -1] == pytest.approx(final, rel=1e-5)
    assert seen.evaluations["test"].accuracy[1, -1] == pytest.approx(
        federated.model.accuracy(seen.params[1], test_set.images, test_set.labels)
    )


@pytest.mark.usefixtures("with_kernel")
def test_training_learns():
    train_set, test_set = DIGITS.split_off(300, seed=1)
    partition = iid_partition(len(train_set), [140] * 10, seed=2)
    federated = Federated(SoftmaxRegression(64, 10, 1e-3), train_set, partition, Training(150, 1, 0.5))
    honest = Strategies(1.0, np.full(10, 30.0), 1.0)
    seen = train(federated, honest, 1, evaluate_on={"test": test_set})
    assert seen.evaluations["test"].accuracy[0, -1] > 0.9


def test_a_hundred_thousand_clients_fit(with_kernel):
    if with_kernel == "plain":
        pytest.skip("the same code as with the best instruction set")
    partition = iid_partition(len(DIGITS), np.full(100_000, 5), seed=2)
    federated = Federated(SoftmaxRegression(64, 10), DIGITS, partition, Training(2, 1, 0.5))
    few = Strategies(1.0, np.full(100_000, 2.0), 1.0)
    done = train(federated, few, 1)
    assert np.isfinite(done.params).all()
    assert np.abs(done.params).max() > 0


def test_a_hundred_thousand_clients_of_all_sorts_have_a_profile():
    """Of whom only those who fabricate are looked at one by one."""
    names = ["truthful", "sloppy labeler", "few labels", "half parrot", "small batch"] * 20_000
    names[7] = "echo"
    partition = iid_partition(len(DIGITS), np.full(100_000, 5), seed=2)
    federated = Federated(SoftmaxRegression(64, 10), DIGITS, partition, Training(2, 1, 0.5))
    done = train(federated, Profile(names, 2), 1)
    assert np.isfinite(done.params).all()
    assert done.refused_reports == ({7: 1},)


def test_what_cannot_be_trained():
    federated, profile = dishonest_federation(MODELS[0], 1, names=["truthful"] * 9)
    with pytest.raises(InputError, match=r"batch_size of client 0 in run 0 is 2\.5; training needs a whole number"):
        train(federated, Strategies(1.0, np.full(9, 2.5), 1.0), 1)
    with pytest.raises(InputError, match="do not fit 1 runs of 9 clients"):
        train(federated, Strategies(1.0, [3.0, 3.0], 1.0), 1)
    with pytest.raises(InputError, match="do not fit 1 runs of 9 clients"):
        train(federated, Profile(["truthful"] * 2, 5), 1)
    with pytest.raises(InputError, match="do not fit"):
        train(federated, profile, 1, labels=federated.true_labels()[:-1])
    with pytest.raises(InputError, match="a list of 1 profiles; there are 2 runs"):
        train(federated, [profile], [1, 2])
    with pytest.raises(InputError, match="must be Strategies, a Profile, or a list with a Profile per run"):
        train(federated, ["truthful"] * 9, 1)
    with pytest.raises(InputError, match="the partition contains sample"):
        Federated(MODELS[0], DIGITS.take(np.arange(10)), federated.partition, federated.training)


@pytest.mark.parametrize(
    ("fabricate", "told"),
    [
        (lambda received, *_: received[-1] * np.nan, "the behaviour 'my own' reports NaN or infinity"),
        (lambda *_: np.full(650, 1e300), "the behaviour 'my own' reports NaN or infinity"),
        (lambda received, *_: received[-1][:-1], r"the behaviour 'my own' reports an array of shape \(649,\)"),
        (lambda *_: None, r"the behaviour 'my own' reports an array of shape \(\) and type object"),
        (lambda received, *_: received[-1].astype(int), "and type int64; it must be like the model"),
        (lambda *given: given[-1](), "asks for the honest report, but declares that it computes none"),
    ],
)
def test_a_behaviour_whose_report_is_none_gets_a_sentence(fabricate, told):
    own = own_behaviour(fabricate, computes=False)
    federated, profile = dishonest_federation(MODELS[0], 1, names=["truthful", own])
    with pytest.raises(InputError, match=told):
        train(federated, profile, 1)
    with pytest.raises(InputError, match=told):
        train_plainly(federated, profile, 1)


def test_without_the_kernel_one_line_says_so(tmp_path):
    """A copy of the package without the compiled file: training works, and standard error has one line."""
    code = (
        "from pathlib import Path; import truthfl.learning.training.compute as c;"
        f"c.__file__ = str(Path({str(tmp_path)!r}) / 'compiled.py'); print(c.kernel(), c.kernel())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRUTHFL_KERNEL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "None None\n"
    assert done.stderr.count("\n") == 1
    assert "the compiled kernel is missing" in done.stderr
