"""`truthfl run` and the plan on pilot data: what is announced, what is paid, what is written; bad jobs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from helpers.commands import truthfl as run
from helpers.small_jobs import known_plans, plans_made_anew, small_job_file  # noqa: F401
from truthfl import Strategies
from truthfl.contracts.contract import Observation
from truthfl.contracts.deviation import best_deviation
from truthfl.contracts.setting import Training
from truthfl.federation.operator.kept_jobs import fixed_draws
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.payoff import joint_payoffs
from truthfl.federation.simulated.report import client_rows, summary_sentences
from truthfl.job import participants, read_job
from truthfl.learning.data.federations import Data, ModelChoice, build_federation
from truthfl.learning.people.behaviour import from_strategy
from truthfl.learning.people.behaviours import behaviour
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.training.train import train

QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    job = read_job(small_job_file(tmp_path_factory.mktemp("job")))
    scene = job.simulated_federation()
    return job, scene, job.plan(scene, QUICK)


def test_the_three_sets_have_nothing_in_common():
    scene = build_federation(Data("digits", pilot_samples=500, test_samples=300), ModelChoice(), (50, 60), Training(5))
    sets = [scene.federated.data, scene.pilot.data, scene.test]
    seen = [{image.tobytes() for image in one.images} for one in sets]
    assert sum(map(len, sets)) == 1797
    assert [len(one) for one in sets] == [997, 500, 300]
    assert sum(len(a & b) for a, b in ((seen[0], seen[1]), (seen[0], seen[2]), (seen[1], seen[2]))) == 0


def test_the_plan_does_not_look_at_the_clients_data(planned):
    job, _, plan = planned
    blind = job.server_side()
    again = job.plan(blind, QUICK)
    assert (again.contract.base == plan.contract.base).all()


def test_the_plan_is_truthful_on_its_model_and_covers_cost(planned):
    _, _, plan = planned
    found = best_deviation(plan.contract, plan.clients, plan.calibration.model, plan.training)
    assert found.gain.max() <= found.resolution.max()
    assert (found.honest_payoff > 0).all()  # the margin
    assert plan.search is not None
    assert plan.training.step_size == plan.search.parabola_minimum
    assert 0.5 * plan.search.best < plan.search.parabola_minimum < 2 * plan.search.best


def test_honest_work_is_rarely_paid_below_cost(planned):
    """The margin is for 95%; with 40 jobs, more than 6 below cost would be a chance of 1 in 100 if it kept its word."""
    _, scene, plan = planned
    federated = replace(scene.federated, training=plan.training)
    honest = Strategies.truthful(plan.contract.batch_size)
    done = train(federated, honest, np.arange(40), evaluate_on={"test": scene.test})
    payoff = plan.contract.reward(done.evaluations["test"].loss[:, -1]) - (
        plan.clients.labeling_cost + plan.training.rounds * plan.clients.sample_cost * plan.contract.batch_size
    )
    assert (payoff < 0).any(axis=1).sum() <= 6


def test_a_job_pays_what_the_contract_says(planned, tmp_path):
    job, _, plan = planned
    outcome = run_job(job, tmp_path / "a", seed=3, design=QUICK)
    expected = np.rint(plan.contract.reward(outcome.test_loss))  # whole cents
    assert outcome.refused.tolist() == [False, True, False, False]
    assert (outcome.pay[[0, 2, 3]] == expected[[0, 2, 3]]).all()
    assert outcome.pay[1] == outcome.cost[1] == 0.0
    assert np.isnan(outcome.payoff_if_honest).tolist() == [True, False, True, False]
    with plans_made_anew():
        assert (run_job(job, tmp_path / "b", seed=3, design=QUICK).pay == outcome.pay).all()
    assert run_job(job, tmp_path / "c", seed=4, design=QUICK).test_loss != outcome.test_loss


def with_behaviours(job, behaviours):
    return job.with_clients(participants(**job.document()["clients"] | {"behaviour": behaviours}))


def test_what_a_liar_would_have_had_is_what_the_protocol_pays_if_they_alone_are_honest(planned, tmp_path):
    """The others go on lying, and their empty reports (all of a free rider's, an echo's first) stay refused."""
    job, _, _ = planned
    lively = ["truthful", "echo", "free rider", "few labels"]
    outcome = run_job(with_behaviours(job, lively), tmp_path / "lively", seed=3, design=QUICK)
    assert outcome.view.delivered == {"Ada": 30, "Ben": 29, "Dora": 30}
    assert outcome.refused.tolist() == [False, False, True, False]
    batch = [offer.client.batch_size for offer in outcome.agreement.offers]
    assert outcome.cost == pytest.approx([120 + 30 * 0.05 * batch[0], 0, 0, 9 + 30 * 0.05 * batch[3]])
    assert np.isnan(outcome.payoff_if_honest).tolist() == [True, False, False, False]
    draws = fixed_draws(3)
    again = joint_payoffs(job, planned[1], outcome.agreement, tuple(lively), draws)
    assert again == pytest.approx(outcome.payoff, abs=1.0)  # pay is in whole units
    for client in (1, 2):
        instead = [*lively[:client], "truthful", *lively[client + 1 :]]
        other = run_job(with_behaviours(job, instead), tmp_path / str(client), seed=3, design=QUICK)
        assert outcome.payoff_if_honest[client] == pytest.approx(other.payoff[client], abs=1.0)


def test_labels_that_are_derived_and_scales_that_fall_are_paid_for_as_in_training(planned, tmp_path):
    """By names in the job file; a report of scale 0 in the last round is empty, and not paid."""
    job, scene, _ = planned
    told = '"truthful", "free rider", "truthful", "small batch"'
    path = small_job_file(tmp_path, told, '"neighbour labeler", "fading reporter", "truthful", "truthful"')
    lively = list(read_job(path).clients.behaviour)
    lively[3] = replace(behaviour("fading reporter"), name="vanishing reporter", last_report_scale=0.0)
    outcome = run_job(with_behaviours(job, lively), tmp_path / "out", seed=3, design=QUICK)
    assert outcome.view.delivered == {"Ada": 30, "Ben": 30, "Cleo": 30, "Dora": 29}
    batch = [offer.client.batch_size for offer in outcome.agreement.offers]
    labels = np.array([30, 0, 150, 0])
    assert outcome.cost == pytest.approx(labels + 30 * 0.05 * np.array(batch))
    again = joint_payoffs(job, scene, outcome.agreement, tuple(lively), fixed_draws(3))
    assert again == pytest.approx(outcome.payoff, abs=1.0)  # pay is in whole units
    done = run("run", path, "--out", tmp_path / "file", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fading reporter" in done.stdout


def test_a_custom_behaviour_runs_a_job(planned, tmp_path):
    job, _, _ = planned
    own = from_strategy("half of everything", labeling_effort=0.5, batch_share=0.5, report_scale=0.5)
    outcome = run_job(with_behaviours(job, ["truthful", own, own, "truthful"]), tmp_path, seed=3, design=QUICK)
    assert outcome.behaviour == ("truthful", "half of everything", "half of everything", "truthful")
    batch = outcome.agreement.offers[1].client.batch_size
    assert outcome.cost[1] == pytest.approx(60 + 30 * 0.05 * round(batch / 2))
    assert np.isfinite(outcome.payoff_if_honest[1])
    assert client_rows(outcome)[1][1] == "half of everything"
    assert sum("half of everything" in one for one in summary_sentences(job, outcome)) == 2


def test_a_given_step_size_is_kept_and_a_budget_too(tmp_path):
    job = read_job(small_job_file(tmp_path, "rounds = 30", "rounds = 30\nstep_size = 0.4"))
    scene = job.simulated_federation()
    plan = job.plan(scene, QUICK)
    assert plan.training.step_size == 0.4
    assert plan.search is None
    free = plan.contract.pay(Observation(plan.expected_loss)).sum()
    kept = replace(job, server=replace(job.server, budget=0.9 * float(free))).plan(scene, QUICK)
    assert kept.contract.pay(Observation(kept.expected_loss)).sum() <= 0.9 * free * (1 + 1e-9)
    assert (kept.contract.batch_size <= plan.contract.batch_size).all()


def test_run_writes_results_and_a_report(tmp_path):
    done = run("run", small_job_file(tmp_path), "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("truthfl: ") for line in done.stderr.splitlines()), "warnings of pay, and nothing else"
    assert max(map(len, done.stdout.splitlines())) <= 100
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["name"] for one in told["clients"]] == ["Ada", "Ben", "Cleo", "Dora"]
    assert told["clients"][1]["refused"] is True
    for one in told["clients"]:
        assert one["payoff"] == pytest.approx(one["pay"] - one["cost"])
        assert f"{one['pay']:,.2f}" in done.stdout
    total = sum(one["pay"] for one in told["clients"])
    server = told["server"]
    assert server["payoff"] == pytest.approx(-server["loss_value"] * server["test_loss"] - total)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "free rider" in page
    assert not re.search(r'(?:src|href)="https?:', page)
    assert (tmp_path / "out" / "training.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('source = "digits"', 'source = "nowhere"', 'source is \'nowhere\'; it must be "mnist", "digits", a'),
        ('kind = "softmax"', 'kind = "resnet"', "[model] kind is 'resnet'; it must be one of 'softmax', 'cnn'."),
        ('kind = "softmax"', 'kind = "own"', '[model] kind is "own"; that is the model of a custom task'),
        ("pilot_samples = 600", "pilot_samples = 6000", "pilot_samples"),
        ('"small batch"]', '"angel"]', "[clients] behaviour is 'angel'; it must be one of: truthful"),
        ('"free rider", ', "", "[clients] behaviour has 3 entries; it must have 4, one per client."),
        ("dataset_size = [120, 120, 150, 90]", "dataset_size = [120, 0, 150, 90]", "dataset_size of Ben is 0"),
        ("sample_cost = 0.05", "sample_cost = nan", "sample_cost is nan for every client"),
        ("rounds = 30", "rounds = 0", "[training] rounds is 0; it must be at least 1, for under the contract 'lceme' "),
        ("[model]", "[constants]\nsmoothness = 1\n[model]", "[constants] does not belong to a job with [data]"),
        ("loss_value = 4000.0", "confidence = 1.0", "[server] confidence is 1; it must be a number from 0.5"),
    ],
)
def test_bad_jobs_on_data_get_one_sentence(tmp_path, old, new, told):
    done = run("run", small_job_file(tmp_path, old, new), "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_other_bad_input(tmp_path):
    paper = tmp_path / "paper.toml"
    paper.write_text("[clients]\n")
    assert "lacks" in run("run", paper, cwd=tmp_path).stderr
    assert "seed is -1" in run("run", "--seed", "-1", cwd=tmp_path).stderr
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run("run", small_job_file(tmp_path), "--out", blocked / "x", cwd=tmp_path)
    assert done.returncode == 3
    assert "cannot be written to" in done.stderr
