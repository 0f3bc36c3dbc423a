"""What makes federations of many clients fast does not change what is computed for any of them."""

import os
from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import curve, inputs, joint_measurement, measurement
from helpers.small_jobs import ten_client_job_file
from truthfl import (
    Clients,
    Constants,
    Observation,
    SoloResult,
    Training,
    lceme,
    optimal_batch_sizes,
    paper_bound,
    peer_shifts,
)
from truthfl.contracts.audition import labels as audition_labels
from truthfl.contracts.audition import plan as audition_plan
from truthfl.contracts.audition.joint import _stationary
from truthfl.contracts.audition.plan import plan_audition
from truthfl.contracts.audition.rounds import MOST_CLIENTS, draw_jobs
from truthfl.files import without_waiting_for_disk, write_file
from truthfl.job import read_job
from truthfl.learning.data.federations import server_side
from truthfl.learning.pilot import constants as gradients
from truthfl.learning.pilot.constants import measure_reduced_and_whole
from truthfl.learning.pilot.reduced_federation import reduce_federation
from truthfl.learning.solo import Recipe

COUNT = 20_000


def many(count=COUNT, *, by_joint_loss=True, **changes):
    """Inputs of a plan for many different clients; by default computing is paid by the joint loss."""
    rng = np.random.default_rng(5)
    size, weight = rng.integers(60, 400, count), rng.uniform(0.5, 1.5, count)
    clients = Clients(
        weight=weight / weight.sum(),
        gradient_variance=rng.uniform(10, 60, count),
        sample_cost=rng.uniform(0.0005, 0.003, count),
        labeling_cost=rng.uniform(0.2, 3.0, count) * size,
        dataset_size=size,
        participation=rng.uniform(0.2, 1.0, count),
    )
    joint = joint_measurement(
        count,
        sampling=rng.uniform(0.005, 0.2, count) / count,
        absence=rng.uniform(0.0, 0.02, count) / count,
        loss_error=0.01 / count,
    )
    measured = measurement(
        count,
        curve(relative_spread=0.05),
        audition_cost=rng.uniform(0.5, 3.0, count),
        joint=joint if by_joint_loss else None,
    )
    values = {"clients": clients, "loss_value": 400.0 * count**2, "measured": measured} | changes
    return replace(inputs(2), **values)


def settled(job):
    """The plan's arrays, and pay."""
    contract, rng = plan_audition(job), np.random.default_rng(6)
    excess = rng.standard_normal(len(contract.labels))
    excess[::50], excess[::70] = 30.0, np.nan
    seen = Observation(
        0.5,
        solo=SoloResult(contract.solo_level + excess * contract.solo_spread, peer_shifts(excess)),
        delivered=rng.integers(0, 11, len(excess)),
        asked=np.full(len(excess), 10),
    )
    terms = contract.terms()
    return {**terms, "batch": contract.batch_size, "pay": contract.pay(seen)}


def test_thresholds_change_no_bit_of_plan_terms_and_pay(monkeypatch):
    by_thresholds = settled(many())
    assert len(np.unique(by_thresholds["labels"])) > 50
    monkeypatch.setattr(audition_labels, "MANY", 10 * COUNT)
    by_all_costs = settled(many())
    for name, values in by_all_costs.items():
        np.testing.assert_array_equal(by_thresholds[name], values, err_msg=name)


@pytest.mark.parametrize("shape", ["smooth", "uneven", "worthless"])
def test_thresholds_choose_the_numbers_that_all_costs_choose_also_at_ties(shape):
    rng = np.random.default_rng(8)
    numbers = np.sort(rng.choice(np.arange(20, 300), 120, replace=False)).astype(float)
    price = numbers * (1.2 + (0.1 * rng.random(120) if shape == "uneven" else 0.0))
    worth = (0.0 if shape == "worthless" else 2e4) / numbers
    below = [(worth[:k] - worth[k]) / (price[k] - price[:k]) for k in range(1, 120)]
    ties = np.concatenate(below)
    ties = np.abs(ties[np.isfinite(ties) & (ties != 0)])
    cost = np.concatenate([rng.uniform(0.1, 5.0, 9_000), np.nextafter(ties, 0.0), ties, np.nextafter(ties, 9e9)])
    cost = np.clip(cost, 0.01, 50.0)
    samples = rng.integers(int(numbers[0]), 400, len(cost))
    arrays = (numbers, worth, price, cost, samples)
    np.testing.assert_array_equal(audition_labels._cheapest(*arrays), audition_labels._cheapest_of_all(*arrays))


def test_the_batch_by_newton_solves_its_equation():
    rng = np.random.default_rng(10)
    v, price = 10.0 ** rng.uniform(-9, 0, 2000), 10.0 ** rng.uniform(-3, 1, 2000)
    for rate in (0.0, 1e-6, 1e-3, 1.0):
        stakes = 10.0 ** rng.uniform(0, 9, 2000) * v
        batch = _stationary(stakes, v, price, rate)
        np.testing.assert_allclose(price * (1.0 + 2.0 * rate * batch / v) * batch**2, stakes, rtol=1e-9)


@pytest.mark.parametrize("by_joint_loss", [False, True])
@pytest.mark.parametrize("bounds", ["expected", "caps"])
def test_a_budget_searched_on_a_sample_first_is_kept_and_used_up(bounds, by_joint_loss, monkeypatch):
    job = many(by_joint_loss=by_joint_loss)
    job = replace(job, measured=replace(job.measured, budget_bounds=bounds))

    def paid(contract):
        if bounds == "caps":
            return float(sum(part.sum() for part in contract.most_parts().values()))
        return float((contract.label_base + contract.computing_base).sum())

    full = paid(plan_audition(job))
    monkeypatch.setattr(audition_plan, "MANY_TO_SEARCH", 1000)
    monkeypatch.setattr(audition_plan, "SAMPLE", 1000)
    for share in (0.6, 0.95):
        total = paid(plan_audition(replace(job, budget=share * full)))
        assert share * full * (1.0 - 1e-4) < total <= share * full * (1.0 + 1e-12)
    assert paid(plan_audition(replace(job, budget=1.01 * full))) == full


def test_batches_of_many_within_a_budget_leave_less_than_a_sample():
    job, training = many(), Training(100)
    constants = Constants(
        smoothness=1.0, strong_convexity=0.1, label_shift=2.0, gradient_bound=4.0, initial_distance=1.0
    )
    clients = replace_cost(job.clients, 10.0 / COUNT)
    model = paper_bound(clients, training, constants)
    free = optimal_batch_sizes(clients, model, training, loss_value=3.0 * COUNT**2)
    price = training.rounds * clients.participation * clients.sample_cost
    money = float(clients.labeling_cost.sum() + 0.6 * (price * free).sum())
    batches = optimal_batch_sizes(clients, model, training, loss_value=3.0 * COUNT**2, budget=money)
    left = money - float(clients.labeling_cost.sum() + (price * batches).sum())
    assert -1e-9 * money <= left < price.min()
    assert (batches <= free).all()
    assert lceme(clients, model, training, batches).slope.min() > 0


def replace_cost(clients, labeling_cost):
    """The clients with this cost of labeling."""
    fields = ("weight", "gradient_variance", "sample_cost", "dataset_size", "participation")
    return Clients(**{field: getattr(clients, field) for field in fields}, labeling_cost=labeling_cost)


def test_drawn_jobs_do_not_grow_with_the_clients_and_have_small_and_large_ones(tmp_path):
    job, recipe = read_job(ten_client_job_file(tmp_path)), Recipe(5, 8, 0.5, 0.001, 0)
    for count in (150, 600):
        sizes = np.linspace(10, 40, count).astype(int)
        side = server_side(job.data, job.model, sizes.tolist(), Training(3, 1, 0.1), 0.5, job.task)
        one, other = draw_jobs(side, sizes, recipe, 2, 1)
        assert len(one.models) == len(one.federated.partition) == MOST_CLIENTS
        assert [one.federated.partition.sizes[k] for k in (0, -1)] == [10, 40]
        assert one.labels == len(np.unique(one.federated.partition.rows)) == sum(one.federated.partition.sizes)
        assert (one.federated.partition.rows != other.federated.partition.rows).any()


@pytest.mark.parametrize("split", [{"split": "iid"}, {"split": "paper", "degree": 1.0}, {"split": "dirichlet"}])
def test_variances_of_many_clients_are_estimated_from_the_gradients_of_their_classes(split, tmp_path, monkeypatch):
    """σ² = mean squared norm − ‖∇F‖²; the classes' means and variances give the latter, also for unequal clients."""
    job = read_job(ten_client_job_file(tmp_path))
    data = replace(job.data, **split)
    whole = server_side(data, job.model, [20, 40, 80] * 20, Training(30, 1, 0.3), 1.0, job.task).pilot
    reduced = reduce_federation(whole)
    exact = measure_reduced_and_whole(reduced.federated, whole, 20.0)[1].gradient_variance
    monkeypatch.setattr(gradients, "MOST_MEASURED", 30)
    found = measure_reduced_and_whole(reduced.federated, whole, 20.0)[1].gradient_variance
    assert (found != exact).all()
    for size in (20, 40, 80):  # what samples a client happens to have makes theirs larger or smaller than expected
        off = (exact - found)[whole.partition.sizes == size]
        assert abs(off.mean()) < 3.0 * off.std(ddof=1) / np.sqrt(len(off))
    assert np.std(exact / found) < 0.25


def test_simulated_participants_do_not_wait_for_the_disk(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) or fsync(handle))
    with without_waiting_for_disk():
        write_file(tmp_path / "one", "1")
    assert not synced
    write_file(tmp_path / "two", "2")
    assert len(synced) == 2  # the file, and its name in the folder
    assert (tmp_path / "one").read_text() == "1"
