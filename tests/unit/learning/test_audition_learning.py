"""Solo models: recipe, training by one participant and by many at once, test; planning an audition on a pilot."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from helpers.auditions import audition_job_file
from truthfl import Evidence, InputError
from truthfl.contracts.audition.pilot import FEWEST_APART, label_numbers, most_pilot_labels
from truthfl.contracts.audition.planning import MOST_FIXED_SHARE
from truthfl.contracts.audition.rounds import WORTH_ELICITING
from truthfl.contracts.formulas import COMMON, SOLO_MEAN
from truthfl.contracts.setting import Strategies, Training
from truthfl.job import read_job
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, iid_partition, paper_partition
from truthfl.learning.models.cnn import ConvolutionalNetwork
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import SoloRecipe
from truthfl.learning.people.behaviours import BEHAVIOURS, behaviour
from truthfl.learning.people.labels import ask_for_labels, asked_order, in_asked_order
from truthfl.learning.solo import (
    Recipe,
    audition_model,
    audition_samples,
    changed_recipe,
    corrected_losses,
    losses_of_groups,
    recipe_of,
    solo_losses,
    train_all_alone,
    train_alone,
)
from truthfl.learning.training.train import honest_runs, train

DIGITS = small_digits()
TRAIN, TEST = DIGITS.split_off(500, 3)
RECIPE = Recipe(steps=40, batch_size=32, step_size=0.5, penalty=0.001, shifts=4)
SOFTMAX = SoftmaxRegression(64, 10, 0.001)
AUDITION_JOB = """
[data]
source = "digits"
split = "iid"
pilot_samples = 700
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 40

[server]
loss_value = 4000.0
test_samples = 2000

[clients]
dataset_size = [90, 90, 90, 60]
label_cost = [1.0, 1.0, 2.0, 1.0]
sample_cost = 0.001
name = ["Ada", "Ben", "Cleo", "Dora"]
"""


def own(first, count):
    return TRAIN.images[first : first + count], TRAIN.labels[first : first + count]


@pytest.mark.parametrize("model", [SOFTMAX, ConvolutionalNetwork(8, 8, 1, 4, 10, 0.001)])
def test_one_participant_and_many_at_once_train_the_same_model(model):
    samples = [own(0, 50), own(50, 30), own(80, 0)]
    together = train_all_alone(model, samples, RECIPE, 7, classes=TRAIN.classes)
    for params, (images, labels) in zip(together, samples, strict=True):
        np.testing.assert_allclose(train_alone(model, images, labels, RECIPE, 7), params, atol=2e-3)
    assert not np.allclose(together[0], together[1])
    np.testing.assert_array_equal(together[2], model.init(7))


def test_groups_of_solo_models_are_as_if_trained_one_after_the_other():
    samples = [own(30 * k, 30) for k in range(18)]  # more than are tested at a time
    works = [(RECIPE, samples), (replace(RECIPE, steps=20), []), (replace(RECIPE, steps=20), samples[:3])]
    groups = [(recipe, [partial(own, 30 * k, 30) for k in range(len(group))]) for recipe, group in works]
    for found, (recipe, group) in zip(losses_of_groups(SOFTMAX, groups, TEST, 1), works, strict=True):
        assert len(found) == len(group)
        if group:
            trained = train_all_alone(SOFTMAX, group, recipe, 1, classes=TRAIN.classes)
            np.testing.assert_array_equal(found, solo_losses(SOFTMAX, trained, TEST, 1))


def test_honest_runs_of_several_federations_are_those_of_single_ones():
    federations = [
        Federated(SOFTMAX, TRAIN, iid_partition(len(TRAIN), (40,) * clients, seed=clients), Training(5, step_size=0.5))
        for clients in (3, 6)
    ]
    runs = [(federated, np.full(len(federated.partition), 8.0), 7) for federated in federations]
    losses, params = honest_runs(runs, TEST)
    for loss, final, (federated, batches, seed) in zip(losses, params, runs, strict=True):
        single = train(federated, Strategies.truthful(batches), seed, evaluate_on={"test": TEST})
        np.testing.assert_array_equal(final, single.params[0])
        assert loss == single.evaluations["test"].loss[0, -1]
    again, _ = honest_runs([(*run, final) for run, final in zip(runs, params, strict=True)], TEST)
    assert (again < losses).all(), "training goes on from the models given"


def test_more_labels_make_better_solo_models_and_random_ones_none():
    few, many = [own(60 * k, 20) for k in range(12)], [own(60 * k, 60) for k in range(12)]
    wrong = [(images, np.random.default_rng(k).integers(0, 10, 60)) for k, (images, _) in enumerate(many)]
    level = [
        solo_losses(SOFTMAX, train_all_alone(SOFTMAX, group, RECIPE, 0, classes=TRAIN.classes), TEST, 1).mean()
        for group in (many, few, wrong)
    ]
    assert level[0] < level[1] - 0.2 < level[2] - 0.4
    assert level[2] == pytest.approx(np.log(10), abs=0.15)


def test_the_test_of_a_solo_model_ignores_scale_and_class_frequencies():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 5, 400)
    scores = rng.standard_normal((1, 400, 5)) + 2.0 * np.eye(5)[labels]
    honest = corrected_losses(scores, labels)
    np.testing.assert_allclose(corrected_losses(0.02 * scores, labels), honest, rtol=1e-4)
    np.testing.assert_allclose(corrected_losses(500.0 * scores + 3.0, labels), honest, rtol=1e-4)
    biased = corrected_losses(scores + np.array([4.0, -2.0, 0.0, 1.0, 0.0]), labels)
    np.testing.assert_allclose(biased, honest, rtol=2e-2)  # but for the small ridge on the biases
    assert corrected_losses(rng.standard_normal((1, 400, 5)), labels)[0] > 1.5 * honest[0]


def test_the_fit_of_the_test_is_that_of_a_general_optimiser():
    """Loss of the second half with factor and biases fitted on the first by SciPy, and the other way round."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rng = np.random.default_rng(5)
    labels = np.tile(np.arange(4), 50)
    scores = rng.standard_normal((200, 4)) + 1.5 * np.eye(4)[labels]
    z = scores - scores.mean(axis=1, keepdims=True)
    z /= z.std()
    losses = np.empty(200)
    for half in (0, 1):
        fit, tested = slice(half, None, 2), slice(1 - half, None, 2)

        def entropy(theta, fit=fit):
            log_p = log_softmax(theta[0] * z[fit] + theta[1:], axis=1)
            return -log_p[np.arange(100), labels[fit]].mean() + 5e-4 * theta[1:] @ theta[1:]

        theta = minimize(entropy, np.array([1.0, 0, 0, 0, 0]), method="BFGS").x
        losses[tested] = -log_softmax(theta[0] * z[tested] + theta[1:], axis=1)[np.arange(100), labels[tested]]
    expected = np.exp(np.mean([np.log(losses[labels == c].mean()) for c in range(4)]))
    assert corrected_losses(scores[None], labels)[0] == pytest.approx(expected, rel=1e-3)


def test_models_that_say_nothing_have_the_loss_of_class_frequencies():
    labels = np.arange(100) // 2 % 4
    for scores in (np.zeros((1, 100, 4)), np.full((1, 100, 4), np.nan), np.full((1, 100, 4), 1e38)):
        assert corrected_losses(scores, labels)[0] == pytest.approx(np.log(4), rel=1e-3)


def test_samples_are_asked_for_in_an_order_that_only_grows():
    partition = paper_partition(TRAIN.labels, (40, 30, 20), degree=0.4, seed=1, classes=10)
    federated = Federated(SOFTMAX, TRAIN, partition, Training(1))
    few, more = (ask_for_labels(federated, labels, 5) for labels in ([10, 0, 7], [25, 3, 20]))
    assert few.partition.sizes.tolist() == [10, 7]
    assert more.partition.sizes.tolist() == [25, 3, 20]
    np.testing.assert_array_equal(more.partition.rows_of(0)[:10], few.partition.rows_of(0))
    np.testing.assert_array_equal(more.partition.rows_of(2)[:7], few.partition.rows_of(1))
    ordered = in_asked_order(partition, 5)
    for client in range(3):
        own_rows = partition.rows_of(client)
        np.testing.assert_array_equal(ordered.rows_of(client), own_rows[asked_order(len(own_rows), client, 5)])
    np.testing.assert_allclose(more.weight, np.array([25, 3, 20]) / 48)
    with pytest.raises(InputError, match="labels are asked for that clients do not have"):
        ask_for_labels(federated, [41, 0, 0], 5)


@pytest.mark.parametrize("name", list(BEHAVIOURS))
def test_every_behaviour_has_an_audition(name):
    images, labels = own(0, 40)
    used, used_labels = audition_samples(behaviour(name), images, labels, 2, 9)
    assert len(used) == len(used_labels) > 0
    model = audition_model(behaviour(name), SOFTMAX, images, labels, RECIPE, client=2, seed=9)
    assert np.isfinite(model).all()
    if behaviour(name).labeling_effort == 1:
        assert len(used) == 40
    if name == "few labels":
        assert len(used) == 4


def test_recipes_are_checked_and_changed():
    assert recipe_of(RECIPE.document()) == RECIPE
    assert changed_recipe(RECIPE, SoloRecipe.PRESCRIBED) == RECIPE
    assert changed_recipe(RECIPE, SoloRecipe.LONGER).steps == 160
    assert changed_recipe(replace(RECIPE, shifts=0), SoloRecipe.SHIFTED).shifts == 4
    for bad in ({"steps": 0}, {"steps": 10**9}, {"shifts": 9}, {"step_size": float("nan")}, {"penalty": "much"}):
        with pytest.raises(InputError):
            recipe_of(RECIPE.document() | bad)
    for document in (None, {}, {"steps": 3}, RECIPE.document() | {"more": 1}):
        with pytest.raises(InputError, match="this is no recipe"):
            recipe_of(document)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_text(AUDITION_JOB)
    job = read_job(path)
    return job, job.plan(job.server_side())


def test_an_audition_is_planned_on_the_pilot(planned):
    job, plan = planned
    details, contract, labels = plan.details, plan.contract, plan.contract.labels
    assert job.contract.kind == contract.kind == "audition"
    assert Evidence.SOLO_LOSS in contract.needs
    sizes = np.array(job.clients.dataset_size)[plan.asked]
    assert (labels <= sizes).all()
    assert (labels >= details.solo.labels[0]).all()
    np.testing.assert_array_equal(plan.clients.dataset_size, labels)
    np.testing.assert_allclose(plan.clients.labeling_cost, job.clients.label_cost[plan.asked] * labels)
    np.testing.assert_array_equal(plan.side.pilot.partition.sizes, labels)
    assert (contract.batch_size <= labels).all()
    computing = 0.001 * plan.training.total_steps * contract.batch_size
    np.testing.assert_allclose(contract.computing_base, computing)
    assert (computing <= MOST_FIXED_SHARE * plan.clients.labeling_cost).all()
    assert plan.loss_by_rounds == ()
    if "Cleo" in plan.clients.name:  # whose labels cost twice as much
        assert labels[plan.clients.name.index("Cleo")] < labels[plan.clients.name.index("Ada")]
    losses = [details.at_labels(factor)[0] for factor in (0.5, 1.0, 2.0)]
    assert losses == sorted(losses, reverse=True)


def test_rounds_are_tuned_from_both_starts_and_none_are_among_them(planned):
    """What is chosen is the best of what was tried, counted with its cost."""
    _, plan = planned
    how, tried = plan.details.how, plan.details.tuned.tried
    assert (plan.start, plan.training) == (how.start, how.training)
    assert {one.start for one in tried} == {SOLO_MEAN, COMMON}
    assert {one.training.rounds for one in tried if one.start == SOLO_MEAN} >= {0, 40}
    assert all(0 <= one.training.rounds <= 40 for one in tried)
    assert all(one.training.rounds for one in tried if one.start == COMMON)
    assert plan.details.level.loss <= plan.details.level.zero + 0.01

    def server_cost(one):
        return 4000.0 * tried[one] + 4 * 0.001 * one.samples

    label_cost = float(plan.clients.labeling_cost.sum())
    assert server_cost(how) - min(map(server_cost, tried)) < WORTH_ELICITING * label_cost


@pytest.mark.parametrize("sample_cost", [0.001, 0.1])
def test_a_budget_bounds_the_plan_and_all_agrees_on_its_labels(sample_cost, tmp_path):
    cost, money = ("sample_cost = 0.001", f"sample_cost = {sample_cost}"), "loss_value = 20000.0\nmost_pay = 10.0"
    made = {}
    for budget in ("", "\nbudget = 600"):
        job = read_job(audition_job_file(tmp_path, cost, ("loss_value = 20000.0", money + budget)))
        made[budget] = plan = job.plan(job.server_side())
        contract = plan.contract
        assert contract.kind == ("audition" if sample_cost < 0.1 else "audition-joint")
        assert plan.side.pilot.partition.sizes.tolist() == contract.labels.tolist()
        assert plan.clients.dataset_size.tolist() == contract.labels.tolist()
    free, tight = (float((one.contract.label_base + one.contract.computing_base).sum()) for one in made.values())
    assert tight <= 600.0 < free


def test_label_cost_and_labeling_cost_are_two_ways_to_say_the_same(planned, tmp_path):
    job, _ = planned
    other = AUDITION_JOB.replace("label_cost = [1.0, 1.0, 2.0, 1.0]", "labeling_cost = [90, 90, 180, 60]")
    path = tmp_path / "job.toml"
    path.write_text(other)
    np.testing.assert_allclose(read_job(path).clients.labeling_cost, job.clients.labeling_cost)
    for costs in ("", "label_cost = 1.0\nlabeling_cost = 90"):
        path.write_text(AUDITION_JOB.replace("label_cost = [1.0, 1.0, 2.0, 1.0]", costs))
        with pytest.raises(InputError, match="either label_cost"):
            read_job(path)


def digits_side(tmp_path, pilot):
    path = tmp_path / "job.toml"
    path.write_text(AUDITION_JOB.replace("pilot_samples = 700", f"pilot_samples = {pilot}"))
    return read_job(path)


def test_the_curve_needs_samples(tmp_path):
    few = digits_side(tmp_path, 50)
    sentence = "pilot_samples is 50; 5 pilot clients with different samples need about 89: the curve of solo losses"
    with pytest.raises(InputError, match=sentence) as error:
        few.plan(few.server_side())
    assert "\n" not in str(error.value)
    side = digits_side(tmp_path, 700).server_side()
    with pytest.raises(InputError, match="clients have up to 11 samples: the curve of solo losses begins with 16"):
        label_numbers(side, 11)
    numbers = label_numbers(side, 60)
    assert numbers[-1] == 81  # a third more than anybody has
    assert (np.diff(numbers) > 0).all()
    most = most_pilot_labels(side)
    assert 90 < most <= 700 / FEWEST_APART
    assert label_numbers(side, 600)[-1] == most


def test_a_plan_says_how_many_pilot_samples_would_show_more_labels(tmp_path):
    job = digits_side(tmp_path, 500)
    plan = job.plan(job.server_side())
    shown = plan.details.solo.labels[-1]
    (told,) = [one for one in plan.details.warnings(plan, None) if "pilot data are few" in one]
    assert f"500 samples show what up to {shown:.0f} labels do" in told
    enough = int(told.split("pilot_samples = ")[1].split()[0])
    assert enough >= 500 * 1.35 * 90 / shown
