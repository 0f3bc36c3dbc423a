"""The short search on pilot data: what offers tell of lies, and what the plan tells the operator."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import truthfl
from helpers.commands import truthfl as ended
from helpers.small_jobs import small_job_file, ten_client_job_file
from truthfl.adversary.pilot_lies import (
    FEWEST_CASES,
    MEASUREMENT_SEEDS,
    lie_sentences,
    rise_by_weight,
    search_on_pilot,
)
from truthfl.adversary.strategy import KINDS, TRUTH
from truthfl.cli.output import _json_value, console, table
from truthfl.cli.plan import plan_and_search, shown_constants, shown_plan
from truthfl.contracts.details import worth_warnings
from truthfl.federation.protocol.planned_offers import _lies_by_client
from truthfl.job import read_job
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.training.plain import train_plainly

CONSTANTS = Path(truthfl.__file__).parent / "examples" / "ten_clients.toml"
QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    job = read_job(small_job_file(tmp_path_factory.mktemp("pilot")))
    side = job.server_side()
    plan = job.plan(side, QUICK)
    return job, side, plan, search_on_pilot(side, plan)


def test_the_best_lie_of_each_kind_is_found_and_measured(small):
    _, _, plan, found = small
    assert found.points > 20
    kinds = [lie.point.kind for lie in found.lies]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= set(KINDS) - {"more labels"}
    assert all((lie.rise.error > 0).all() for lie in found.lies)
    cost = np.array([TRUTH.cost(*one) for one in zip(plan.clients.labeling_cost, 30 * plan.clients.sample_cost,
                     plan.contract.batch_size, plan.clients.dataset_size, strict=True)])  # fmt: skip
    for lie in found.lies:
        own = lie.point.cost(plan.clients.labeling_cost, 30 * plan.clients.sample_cost, plan.contract.batch_size, 500)
        lost = plan.contract.slope * lie.rise.mean
        if lie.delivered == 1.0:
            assert lie.gain == pytest.approx(cost - own - lost)
            assert lie.gain_error == pytest.approx(plan.contract.slope * lie.rise.error)


def test_rises_are_those_of_the_plain_loop_by_weight(small):
    """The same runs, trained plainly: each client in turn lies, or is absent; seeds that the search had not."""
    _, side, plan, found = small
    federated = replace(side.pilot, training=plan.training)
    count, weight = len(plan.clients), plan.clients.weight
    batches = plan.contract.batch_size.astype(int)
    cases = [(k % count, MEASUREMENT_SEEDS + k) for k in range(FEWEST_CASES)]

    def loss(behaviour, client, seed):
        profile = Profile(["truthful" if other != client else behaviour for other in range(count)], batches)
        return federated.model.loss(train_plainly(federated, profile, seed), side.test.images, side.test.labels)

    honest = np.array([loss("truthful", client, seed) for client, seed in cases])
    liars = weight[[client for client, _ in cases]]
    absent = np.array([loss("free rider", client, seed) for client, seed in cases])
    assert found.absence.mean == pytest.approx(rise_by_weight(liars, absent - honest, weight).mean, abs=1e-4)
    lie = found.lies[0]
    sizes = plan.clients.dataset_size

    def behaviour(client) -> Behaviour:
        return lie.point.behaviour(float(batches[client]), float(sizes[client]))

    lied = np.array([loss(behaviour(client), client, seed) for client, seed in cases])
    assert lie.rise.mean == pytest.approx(rise_by_weight(liars, lied - honest, weight).mean, abs=1e-4)


def test_the_same_seed_finds_the_same_lies(small):
    _, side, plan, found = small
    again = search_on_pilot(side, plan)
    assert [lie.point for lie in again.lies] == [lie.point for lie in found.lies]
    assert (again.absence.mean == found.absence.mean).all()
    assert again.runs == found.runs


def test_rises_by_weight():
    """Equal weights: the mean of all. Other weights: what grows with the weight, straight or bent."""
    random = np.random.default_rng(1)
    rise = random.normal(0.01, 0.002, 40)
    found = rise_by_weight(np.full(40, 0.1), rise, np.full(10, 0.1))
    assert found.mean == pytest.approx(rise.mean())
    assert found.error == pytest.approx(rise.std(ddof=1) / np.sqrt(40), rel=1e-6)
    weight = np.tile([0.05, 0.1, 0.2, 0.65], 10)
    exact = 0.1 * weight + 0.3 * weight**2
    bent = rise_by_weight(weight, exact + random.normal(0, 1e-4, 40), np.array([0.05, 0.3, 0.65]))
    assert bent.mean == pytest.approx([0.00575, 0.057, 0.19175], abs=2e-4)
    assert (bent.error < 1e-4).all()
    one = rise_by_weight(np.array([1.0]), np.array([0.5]), np.array([1.0]))
    assert one.mean == pytest.approx([0.5])
    assert np.isfinite(one.error).all()


def test_many_clients_are_merged_and_only_single_ones_lie(tmp_path):
    path = ten_client_job_file(tmp_path)
    sizes = ", ".join(["30"] * 40)
    text = path.read_text().replace("[60, 70, 80, 60, 70, 80, 60, 70, 80, 90]", f"[{sizes}]")
    path.write_text(text.replace("pilot_samples = 600", "pilot_samples = 900"))
    job = read_job(path)
    side = job.server_side()
    plan = job.plan(side, QUICK)
    found = search_on_pilot(side, plan)
    assert found.absence.mean.shape == (40,)
    assert np.ptp(found.absence.mean) < 1e-12  # all weigh the same
    assert all(lie.gain.shape == (40,) for lie in found.lies)


def test_what_offers_tell(small):
    _, _, plan, found = small
    by_client = _lies_by_client(plan, found)
    assert len(by_client) == len(plan.clients)
    for client, lies in enumerate(by_client):
        assert [lie.words for lie in lies] == [lie.point.words for lie in found.lies]
        for told_of, lie in zip(lies, found.lies, strict=True):
            assert told_of.loss_rise == lie.rise.mean[client]
            assert told_of.batch_size == lie.point.batch_size(
                plan.contract.batch_size[client], plan.clients.dataset_size[client]
            )


def warnings(planned, cost):
    return worth_warnings(planned.report.worth, planned.report.worth_error, cost) + lie_sentences(planned.lies, cost)


def test_the_plan_warns_of_work_that_is_worth_less_than_it_costs(small):
    job = small[0]
    dear = replace(job, clients=replace(job.clients, labeling_cost=np.full(4, 50_000.0)))
    planned = shown_plan(dear, *plan_and_search(dear))
    worth, error = planned.report.worth, planned.report.worth_error
    cost = np.full(4, 50_000.0)
    text = " ".join(warnings(planned, cost))
    assert "the work of 4 of 4 clients is worth less to the server" in text
    assert "than it costs (50,000)" in text
    assert (worth + 2 * error < cost).all()
    assert worth == pytest.approx(4000.0 * planned.lies.absence.mean)
    assert "worth less" not in " ".join(warnings(planned, np.zeros(4)))
    certain = replace(planned, lies=replace(planned.lies, lies=tuple(
        replace(lie, gain=lie.gain - 1e6) for lie in planned.lies.lies)))  # fmt: skip
    assert "is not known to gain" in " ".join(warnings(certain, cost))


def test_without_data_the_worth_is_the_loss_models():
    job = read_job(CONSTANTS)
    planned = shown_constants(job)
    worth, model, batches = planned.report.worth, planned.report.model, planned.report.contract.batch_size
    rise = model.reporting - model.sampling / batches  # of the client's bracket of the gap only g is left: section 6
    assert worth == pytest.approx(job.server.loss_value * rise)
    assert planned.lies is None
    assert "worth less" in " ".join(warnings(planned, worth + 1.0))
    assert warnings(planned, worth - 1.0) == []


@pytest.mark.parametrize("kind", ["leave-one-out", "per claimed sample"])
def test_a_contract_that_no_job_can_run_is_planned_without_nan(small, kind, capsys):
    """What it pays by is not known before the job; so are the spread and the slope of pay."""
    job = small[0]
    contract = replace(job.contract, kind=kind)
    side = job.server_side()
    plan = replace(job, contract=contract).plan(side, QUICK)
    planned = shown_plan(job, plan, search_on_pilot(side, plan))
    planned.print()
    shown = capsys.readouterr().out
    assert "nan" not in shown
    assert "–" in shown
    json.dumps(_json_value(planned.as_json()), allow_nan=False)


def test_work_of_which_it_is_open_what_it_is_worth(small):
    planned = shown_plan(small[0], *plan_and_search(small[0]))
    text = " ".join(warnings(planned, planned.report.worth + 0.5 * planned.report.worth_error))
    assert "Of 4 of 4 clients it is open whether their work is worth what it costs." in text


def test_the_command_says_so(tmp_path):
    command = "plan", small_job_file(tmp_path, "loss_value = 4000.0", "loss_value = 400.0")
    done = ended(*command)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "Beware: the work of" in words
    assert "clients is worth less to the server" in words
    assert "lies tried on pilot data" in words
    assert max(map(len, done.stdout.splitlines())) <= 100
    told_of = json.loads(ended(*command, "--json").stdout)
    assert len(told_of["clients"]["worth"]) == len(told_of["clients"]["worth_error"]) == 4
    assert {"words", "kind", "labels", "gain", "loss_rise"} <= set(told_of["lies"][0])


def test_a_cell_has_several_lines_only_where_it_may(capsys):
    for lines in (False, True):
        console().print(table("Lies", ["lie"], [["audition\n  last \x1bbit"]], lines=lines))
    one, several = capsys.readouterr().out.split("Lies")[1:]
    assert r"audition\n  last \x1bbit" in one
    assert [line.rstrip() for line in several.splitlines()[-3:-1]] == [" audition", r"   last \x1bbit"]
