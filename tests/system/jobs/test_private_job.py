"""A whole job with clipping and noise: its plan knows of them, and all trainers train the same."""

from dataclasses import replace

import numpy as np

from helpers.small_jobs import SMALL_JOB
from truthfl.cli.plan import privacy_json, privacy_sentence
from truthfl.contracts.setting import Strategies
from truthfl.federation.operator.kept_jobs import fixed_draws
from truthfl.federation.protocol.final_model import test_loss as loss_of_draws
from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job
from truthfl.learning.data.partition import Federated
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.training.train import train
from truthfl.page.offer import promised_to

DESIGN = PilotDesign(seeds=2, honest_seeds=6, batch_sizes=(8, 16, 32, 64))


def test_the_plan_tells_epsilon(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        SMALL_JOB.replace("rounds = 30", "rounds = 10\nstep_size = 1.0") + "[privacy]\nclip = 2.0\nnoise = 0.3\n"
    )
    job = read_job(path)
    plan = job.plan(job.server_side(), DESIGN)
    told = privacy_json(plan)["privacy"]
    assert (len(told["epsilon"]), told["delta"]) == (4, 1e-5)
    assert f"{min(told['epsilon']):.1f} to {max(told['epsilon']):.1f}" in privacy_sentence(plan)
    quiet = replace(plan, side=replace(plan.side, pilot=_with_noise(plan.side.pilot, 0.0)))
    assert "without noise" in privacy_sentence(quiet)
    assert privacy_json(quiet) == {}
    plain = replace(
        plan, side=replace(plan.side, pilot=Federated(plan.side.pilot.model.plain, *_rest(plan.side.pilot)))
    )
    assert privacy_sentence(plain) is None


def _rest(federated):
    return federated.data, federated.partition, federated.training


def _with_noise(federated, noise):
    return Federated(replace(federated.model, noise=noise), *_rest(federated))


def test_a_job_with_noise_is_planned_trained_and_paid(tmp_path):
    text = SMALL_JOB.replace("rounds = 30", "rounds = 10\nstep_size = 1.0")
    text = text.replace('behaviour = ["truthful", "free rider", "truthful", "small batch"]', "")
    (tmp_path / "job.toml").write_text(text + "[privacy]\nclip = 2.0\nnoise = 0.3\n")
    job = read_job(tmp_path / "job.toml")
    outcome = run_job(job, tmp_path / "out", design=DESIGN)
    terms = outcome.agreement.terms
    assert (terms.model["clip"], terms.model["noise"]) == (2.0, 0.3)
    assert abs(outcome.test_loss - terms.expected_loss) < 4 * terms.loss_error
    assert (outcome.payoff > 0).all()
    promised = promised_to(outcome.offers[0])
    assert (promised.noise, promised.delta) == (0.3, 1e-5)
    assert 1 < promised.epsilon < np.inf

    scene = job.simulated_federation()
    batches = Strategies.truthful([offer.client.batch_size for offer in outcome.offers])
    here = replace(scene.federated, training=terms.training)
    trained = train(here, batches, 0, threads=1).params[0]
    loss = loss_of_draws(here.model, trained, scene.test, terms.test_samples, fixed_draws(0).secret, None)
    assert abs(loss - outcome.test_loss) < 1e-5
