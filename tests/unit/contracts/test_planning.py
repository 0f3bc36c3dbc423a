"""Planning for many clients: the full pilot's contract for 40, and no more work for 400."""

import numpy as np
import pytest

from truthfl import InputError, LossModel, Strategies, Training
from truthfl.contracts import planning
from truthfl.contracts.contract import People, Prices
from truthfl.contracts.lceme import pilot as pilot_measurement
from truthfl.contracts.lceme.contract import LCEME
from truthfl.contracts.lceme.pilot import calibrate, measure_reduced_federation, measure_whole_federation
from truthfl.contracts.planning import PilotSide, make_plan
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.federations import Data, ModelChoice, server_side
from truthfl.learning.data.partition import Federated, dirichlet_partition, paper_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.constants import Gradients, measure_reduced_and_whole
from truthfl.learning.pilot.reduced_federation import GROUPS, MOST_ROWS, SAMPLED_CLIENTS, reduce_federation
from truthfl.learning.pilot.runs import Pilot, PilotDesign, paired_pilot_runs, resampled, spread_of_loss
from truthfl.learning.training.train import train

DATA = small_digits()
TRAINING = Training(20, 1, 0.5)
QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


def federation(sizes, training=TRAINING, *, dirichlet=False, **more):
    """Small digits held by clients of these sizes."""
    held = (
        dirichlet_partition(DATA.labels, sizes, concentration=0.3, seed=3)
        if dirichlet
        else paper_partition(DATA.labels, sizes, seed=3)
    )
    return Federated(SoftmaxRegression(64, 10, 1e-3), DATA, held, training, **more)


def test_the_sampled_pilot_finds_the_loss_model_of_the_full_one_and_makes_its_contract(monkeypatch):
    """Forty clients: each part within three standard errors of the difference; slopes and bases 5% apart on average.

    At these costs it is labeling that decides the batches, so that slopes are c_l/b_i, and not simply κ.
    """
    data = Data("digits", pilot_samples=900, test_samples=400)
    side = server_side(data, ModelChoice(), (100, 150) * 20, Training(20, 1, 0.5))
    design = PilotDesign(seeds=4, honest_seeds=40, batch_sizes=(10, 20, 40), lie_batch_size=25)
    full, sampled = (
        measure(side, design, tune_step=False) for measure in (measure_whole_federation, measure_reduced_federation)
    )
    assert sampled.trial is not side.pilot
    assert len(sampled.trial.partition) == SAMPLED_CLIENTS + GROUPS
    found = {}
    for name in ("sampling", "labeling"):
        parts = [getattr(one.calibration.model, name).sum() for one in (full, sampled)]
        place = ("sampling", "labeling").index(name) + 1
        errors = [
            part * one.calibration.standard_error[place] / one.calibration.factor[place]
            for part, one in zip(parts, (full, sampled), strict=True)
        ]
        assert abs(parts[1] - parts[0]) < 3 * np.hypot(*errors), name
        found[name] = parts
    assert found["labeling"][1] == pytest.approx(found["labeling"][0], rel=0.1)
    honest = np.full(40, 50.0)
    losses = [one.calibration.model.truthful_loss(honest) for one in (full, sampled)]
    assert losses[1] == pytest.approx(losses[0], rel=0.005)
    contracts, each = [], np.ones(40)
    people = People(side.pilot.partition.sizes, 30.0 * each, 1e-4 * each, side.pilot.participation)
    for one in (full, sampled):
        monkeypatch.setattr(planning, "measure_pilot", lambda *_, found=one, **__: found)
        contracts.append(make_plan(LCEME, PilotSide(side), people, Prices(1000.0)).contract)
    for name in ("slope", "base"):
        ratio = getattr(contracts[1], name) / getattr(contracts[0], name)
        assert ratio.mean() == pytest.approx(1.0, abs=0.05), name
        assert np.abs(ratio - 1.0).max() < 0.15, name  # batches are whole numbers, here of about 15


@pytest.mark.parametrize("training_alone", [1000, 30])
def test_with_several_local_steps_the_constant_is_the_whole_federations(training_alone, monkeypatch):
    """Clients who hold one or two classes each drift apart, groups of them do not; some of the clients tell it."""
    monkeypatch.setattr(pilot_measurement, "CONSTANT_CLIENTS", training_alone)
    data = Data("digits", split="dirichlet", concentration=0.3, pilot_samples=900, test_samples=400)
    side = server_side(data, ModelChoice(), (100,) * 40, Training(15, 4, 0.2))
    design = PilotDesign(seeds=2, honest_seeds=5, batch_sizes=(10, 20, 40), lie_batch_size=25)
    found = measure_reduced_federation(side, design, tune_step=False)
    honest = Strategies.truthful(np.full(40, 25.0))
    done = train(side.pilot, honest, np.arange(100, 116), evaluate_on={"test": side.test})
    real = done.evaluations["test"].loss[:, -1]
    error = np.hypot(found.calibration.truthful_loss_error(honest.batch_size), real.std(ddof=1) / 4)
    assert abs(found.calibration.model.truthful_loss(honest.batch_size) - real.mean()) < 3 * error
    assert found.reduced is not None
    off = abs(found.reduced[1].model.constant - found.calibration.model.constant)
    assert off > (5 if training_alone > 40 else 2) * error  # the groups' own would be wrong


@pytest.mark.parametrize("dirichlet", [False, True])
def test_a_reduced_federation_has_everybody_once_and_the_same_objective(dirichlet):
    whole = federation((20, 40, 60) * 40, dirichlet=dirichlet)
    few = reduce_federation(whole)
    assert len(few.members) <= SAMPLED_CLIENTS + GROUPS
    assert np.sort(np.concatenate(few.members)).tolist() == list(range(120))
    assert all(len(some) == 1 for some in few.members[: few.single_clients])
    assert few.federated.weight.sum() == pytest.approx(1.0)
    assert sorted(few.federated.partition.rows.tolist()) == sorted(whole.partition.rows.tolist())
    assert whole_gradient(few.federated) == pytest.approx(whole_gradient(whole), abs=1e-6)
    grouped = few.federated.weight[few.single_clients :]
    assert grouped.max() < 2 * grouped.min()


def test_weights_other_than_by_size_are_kept_in_groups():
    weight = np.linspace(1.0, 4.0, 120)
    weight /= weight.sum()
    whole = federation((30,) * 120, weight=weight)
    off = whole_gradient(reduce_federation(whole).federated) - whole_gradient(whole)
    assert np.linalg.norm(off) < 0.02 * np.linalg.norm(whole_gradient(whole))


@pytest.mark.parametrize("weighted", [False, True])
def test_groups_of_many_clients_hold_few_rows_in_the_same_proportion(weighted):
    """So what a run costs does not depend on how many clients hold a sample; the objective is the same."""
    weight = np.linspace(1.0, 4.0, 4000) if weighted else np.ones(4000)
    whole = federation((30,) * 4000, weight=weight / weight.sum())
    few = reduce_federation(whole)
    sizes = few.federated.partition.sizes
    assert sizes[few.single_clients :].tolist() == [max(MOST_ROWS, len(DATA))] * GROUPS
    off = whole_gradient(few.federated) - whole_gradient(whole)
    assert np.linalg.norm(off) < 0.02 * np.linalg.norm(whole_gradient(whole))
    some = few.members[-1]
    held = np.bincount(np.concatenate([whole.partition.rows_of(k) for k in some]), minlength=len(DATA))
    kept = np.bincount(few.federated.partition.rows_of(len(few.members) - 1), minlength=len(DATA))
    if not weighted:
        assert np.abs(kept - held * kept.sum() / held.sum()).max() < 1.0


def whole_gradient(federated):
    """∇ Σ p_i F_i somewhere."""
    params = np.random.default_rng(1).normal(0, 0.1, federated.model.size).astype(np.float32)
    rows, sizes = federated.partition.rows, federated.partition.sizes
    share = np.repeat(federated.weight / sizes, sizes).astype(np.float32)
    images, labels = federated.data.images[rows], federated.data.labels[rows]
    return federated.model.weighted_gradient(params, images, labels, share)


def test_sampled_clients_are_spread_over_weights_and_over_classes():
    alike = reduce_federation(federation((30,) * 300))
    main = [
        np.bincount(DATA.labels[alike.federated.partition.rows_of(k)]).argmax() for k in range(alike.single_clients)
    ]
    assert np.bincount(main).tolist() == [2] * 10
    sizes = 20 + np.random.default_rng(0).permutation(300)
    unlike = reduce_federation(federation(sizes))
    picked = np.sort(sizes[np.concatenate(unlike.members[: unlike.single_clients])])
    assert picked.tolist() == np.sort(sizes)[7::15].tolist()
    few = reduce_federation(federation((30,) * 15))
    assert (len(few.members), few.single_clients) == (15, 15)


def test_more_clients_draw_no_more_samples():
    """What a pilot's runs cost is the samples they draw: as many for 400 clients as for 40."""
    drawn = []
    for count in (40, 400):
        few = reduce_federation(federation((20,) * count, Training(1, 1, 0.5)))
        runs = paired_pilot_runs(few, DATA.take(np.arange(50)), QUICK)
        drawn.append(runs.strategies.batch_size.sum())
    assert drawn[1] == pytest.approx(drawn[0], rel=0.1)


def test_variances_of_all_are_those_of_each_clients_samples():
    whole = federation((20, 30) * 12)
    few = reduce_federation(whole, sampled=5, groups=2)
    _, found = measure_reduced_and_whole(few.federated, whole, 10.0)
    start = whole.model.init(0)
    for client in (0, 7, 23):
        rows = whole.partition.rows_of(client)
        ones = [
            whole.model.weighted_gradient(
                start, DATA.images[r : r + 1], DATA.labels[r : r + 1], np.ones(1, dtype=np.float32)
            )
            for r in rows
        ]
        assert found.gradient_variance[client] >= np.var(ones, axis=0).sum() * (1 - 1e-5)
    assert found.gradient_variance.shape == (24,)


def test_paired_runs_find_a_known_loss_model_under_noise_that_they_share():
    """Draws move the loss a hundred times more than a lie; factors come out within errors that tell the truth."""
    federated = federation((40,) * 20)
    gradients = Gradients(np.linspace(5.0, 9.0, 20), 30.0, 2.0)
    p, true = federated.weight, np.array([0.4, 0.03, 0.006, 0.02])
    known = LossModel(
        constant=true[0],
        sampling=true[1] * p**2 * gradients.gradient_variance,
        labeling=true[2] * p * gradients.label_shift,
        reporting=true[3] * p * gradients.gradient_bound,
    )
    drawn, off = np.random.default_rng(0), []
    for _ in range(40):
        honest = Strategies(np.ones((80, 20)), np.repeat([2.0, 4.0, 8.0, 16.0], 20)[:, None] * np.ones(20), 1.0)
        effort = np.where(np.arange(80)[:, None] // 4 == np.arange(20), 0.0, 1.0)
        scale = np.where(np.arange(80)[:, None] // 4 == np.arange(20), 0.5, 1.0)
        played = Strategies(
            np.concatenate((honest.labeling_effort, effort, np.ones((80, 20)))),
            np.concatenate((honest.batch_size, np.full((160, 20), 10.0))),
            np.concatenate((np.ones((160, 20)), scale)),
        )
        shared = np.tile(drawn.normal(0, 0.5, 80), 2)
        client = np.tile(np.repeat(drawn.normal(0, 1e-3, 20), 4), 2)  # clients differ from what the model says of them
        paired = float(known.gap(Strategies.truthful(np.full(20, 10.0)))) + shared
        loss = known.gap(played) + np.concatenate((drawn.normal(0, 0.003, 80), shared + client))
        loss[80:] += drawn.normal(0, 3e-4, 160)
        runs = Pilot(played, loss, np.concatenate((np.full(80, np.nan), paired)))
        found = calibrate(federated, runs, gradients)
        off.append((found.factor - true) / found.standard_error)
        assert found.standard_error[2] < 0.1 * true[2]
    assert 0.7 < np.sqrt(np.mean(np.square(off))) < 1.4
    runs.honest_loss[-1] = np.inf
    with pytest.raises(InputError, match="no finite loss"):
        calibrate(federated, runs, gradients)


def test_the_spread_of_the_loss_knows_who_is_absent():
    """Data drawn anew are held by the same clients, who are there as often; absence makes losses differ more."""
    always, half = (federation((60,) * 8, participation=q) for q in (1.0, np.linspace(0.3, 0.6, 8)))
    assert resampled(half, 3).participation.tolist() == half.participation.tolist()
    batches = np.full(8, 20.0)
    test = DATA.take(np.arange(0, 1797, 5))
    assert spread_of_loss(half, test, batches)[0] > 1.5 * spread_of_loss(always, test, batches)[0]


def test_a_group_is_as_variable_in_who_is_there_as_its_members():
    q = np.tile([0.5, 0.8, 1.0], 40)
    whole = federation((20,) * 120, participation=q)
    few = reduce_federation(whole)
    for position, some in enumerate(few.members):
        p, there = whole.weight[some], whole.participation[some]
        absence = (p**2 * (1 - there) / there).sum()
        merged, chance = few.federated.weight[position], few.federated.participation[position]
        assert merged**2 * (1 - chance) / chance == pytest.approx(absence)
