"""How often clients are there, as a job says it: to the pilot, to the clients who are simulated, to the contract."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.auditions import QUICK, audition_job_file
from helpers.small_jobs import known_plans, ten_client_job_file  # noqa: F401
from truthfl import InputError
from truthfl.adversary.pilot_lies import presence_sentences
from truthfl.contracts.audition.rounds import draw_jobs
from truthfl.contracts.lceme.pilot import measure_pilot
from truthfl.contracts.setting import Strategies
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.protocol.rounds import offers_in_round
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import grid_of, simulated_participants
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.solo import Recipe
from truthfl.learning.training.train import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.studies.cells import Cell, FederationSpec, made_federation


def test_participation_in_a_job_reaches_pilot_clients_and_contract(tmp_path):
    job = read_job(ten_client_job_file(tmp_path, "participation = 0.5"))
    scene = job.simulated_federation()
    for federated in (scene.pilot, scene.federated, job.server_side().pilot):
        assert federated.participation.tolist() == [0.5] * 10
    plan = job.plan(scene, PilotDesign(seeds=3, honest_seeds=40, batch_sizes=(4, 8, 16, 32)))
    assert plan.clients.participation.tolist() == [0.5] * 10
    rare = read_job(ten_client_job_file(tmp_path, "participation = [1, 1, 1, 1, 1, 1, 1, 1, 1, 0.9]"))
    assert rare.document()["clients"]["participation"] == [1.0] * 9 + [0.9]


def test_a_job_in_which_all_are_always_there_has_the_document_and_the_tasks_of_one_that_says_nothing(tmp_path):
    plain = read_job(ten_client_job_file(tmp_path))
    said = read_job(ten_client_job_file(tmp_path, "participation = 1"))
    assert said.document() == plain.document()
    assert "participation" not in plain.document()["clients"]
    places = [
        FederationSpec(plain.data, plain.model, (60,) * 4, there) for there in (None, (1.0,) * 4, (1.0, 1.0, 0.5, 1.0))
    ]
    addresses = [Cell(place, 10, 0.5).tasks([1])[0].address for place in places]
    assert addresses[0] == addresses[1] != addresses[2]
    assert made_federation(places[2]).federated.participation.tolist() == [1.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0", "participation is 0 for every client; it must be a number above 0 up to 1"),
        ("1.5", "participation is 1.5 for every client; it must be"),
        ('"often"', "participation"),
        ("[0.5, 0.5]", "one number, or 10 numbers, one per client"),
        ("[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]", "participation of client 9 is 2"),
    ],
)
def test_participation_that_is_no_chance_gets_a_sentence(tmp_path, value, told):
    with pytest.raises(InputError, match=told) as error:
        read_job(ten_client_job_file(tmp_path, f"participation = {value}"))
    assert str(error.value).count("\n") == 0


def test_offers_tell_how_often_clients_are_asked_and_rounds_ask_those_who_are_drawn(tmp_path):
    """An audition in process: Ada is asked in half of the rounds, Cleo in three quarters; nothing is masked then."""
    rare = ("sample_cost = 0.001", "sample_cost = 0.001\nparticipation = [0.5, 1.0, 0.75, 1.0]")
    job = read_job(audition_job_file(tmp_path, rare, privacy=""))
    job = replace(job, server=replace(job.server, most_pay=20.0))
    (drawn,) = draw_jobs(job.server_side(), np.full(4, 20), Recipe(5, 8, 0.5, 0.001, 0), 1, 0)
    assert drawn.federated.participation.tolist() == [0.5, 1.0, 0.75, 1.0]
    out = tmp_path / "out"
    people = simulated_participants(job, job.simulated_federation(), out)
    with open_ledger(out / "ledger.db") as book:
        operator = Operator(book, out, kept_key(out / "operator"), secret_from_seed(5), 5)
        plan = lambda job, side: job.plan(side, QUICK)  # noqa: E731
        view = conduct_job(grid_of(people), job, job_name(book, job, 5), operator, plan, lambda *_: None)
        assert check(book.entries()) is None
    share = {offer.client.name: offer.client.participation for offer in view.agreement.offers}
    assert share["Ada"] == 0.5
    assert {share[name] for name in share if name not in ("Ada", "Cleo")} <= {1.0}
    assert not view.agreement.terms.masked
    assert view.agreement.terms.least_participation == 0.5
    asked = 0
    for round_, entry in enumerate(view.rounds):
        drawn = [offer.client.name for offer in offers_in_round(view.taking_part, round_)]
        assert entry.document.get("asked", list(share)) == drawn
        asked += "Ada" in drawn
    assert 0 < asked < len(view.rounds)
    assert view.asked["Ada"] == asked


def test_the_plan_says_that_clients_are_not_always_asked(tmp_path):
    side = read_job(ten_client_job_file(tmp_path, "participation = 0.5")).server_side()
    (sentence,) = presence_sentences(side.pilot)
    assert sentence.startswith("Clients are asked for a report in 50% of the rounds")
    assert "not masked" in sentence
    assert presence_sentences(read_job(ten_client_job_file(tmp_path)).server_side().pilot) == []


MANY_RARELY_THERE = """
[data]
source = "digits"
seed = {seed}
pilot_samples = 600

[training]
rounds = 30

[server]
loss_value = 1e6
test_samples = 1000

[clients]
dataset_size = {sizes}
label_cost = 1.0
sample_cost = 0.001
participation = 0.05
"""


def test_the_step_size_is_not_chosen_by_who_happened_to_be_there(tmp_path):
    """Clients who are there in a twentieth of the rounds: the step size is near the best one, on average over data."""
    design = PilotDesign(seeds=2, honest_seeds=8, search_seeds=6, batch_sizes=(4, 8, 16), lie_batch_size=10)
    worse = []
    for seed in range(4):
        path = tmp_path / f"{seed}.toml"
        path.write_text(MANY_RARELY_THERE.format(seed=seed, sizes=[20] * 300))
        side = read_job(path).server_side()
        step = measure_pilot(side, design, tune_step=True).training.step_size
        honest, draws = Strategies.truthful(np.full(300, 10.0)), np.arange(100, 116)
        losses = [
            train(side.pilot, honest, draws, step_sizes=one, evaluate_on={"test": side.test}).evaluations["test"].loss
            for one in (step, *np.geomspace(1.0, 6.0, 8))
        ]
        found, *others = (loss[:, -1].mean() for loss in losses)
        worse.append(found / min(others))
    assert np.mean(worse) < 1.05, worse
