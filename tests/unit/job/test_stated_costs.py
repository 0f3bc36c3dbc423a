"""Jobs with private costs: a client who states theirs gets their item of the menu; contradictions get a sentence."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from helpers.commands import told
from helpers.small_jobs import small_job_file
from truthfl.cli.app import app
from truthfl.errors import InputError
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.protocol.enrolment import limits_of, require_within
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import FIRST_NODE, grid_of, simulated_participants
from truthfl.home import participant_folder
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.terms import offer_from
from truthfl.page.documents import offer_view

QUICK = PilotDesign(seeds=2, honest_seeds=4, batch_sizes=(4, 8, 16))
UNIFORM = '{name = "uniform", loc = 0.02, scale = 0.06}'


def job_of(folder, distribution=UNIFORM):
    """The small job in three rounds of a given step size, with costs distributed so."""
    told_costs = f"loss_value = 4000.0\ncost_distribution = {distribution}"
    job = read_job(small_job_file(folder, "loss_value = 4000.0", told_costs))
    return replace(job, training=replace(job.training, rounds=3, step_size=0.5), tune_step=False)


def test_a_client_who_states_their_cost_is_offered_their_item_and_the_others_the_usual(tmp_path):
    """Ada states 0.03, Ben 0.5, which is beyond the range; Cleo and Dora state nothing, and the job says 0.05."""
    job = job_of(tmp_path)
    job = replace(job, server=replace(job.server, enrol_seconds=0.01))
    people = simulated_participants(job, job.simulated_federation(), tmp_path / "out")
    for node, cost in zip(people, (0.03, 0.5, None, None), strict=True):
        own = people[node].describe
        assert own()["sample_cost"] == 0.05  # simulated clients state the job's cost
        stated = {} if cost is None else {"sample_cost": cost}
        people[node].describe = lambda own=own, stated=stated: (
            {field: value for field, value in own().items() if field != "sample_cost"} | stated
        )
    plans = []

    def plan(asked, side):
        plans.append((asked, asked.plan(side, QUICK)))
        return plans[-1][1]

    with open_ledger(tmp_path / "out" / "ledger.db") as book:
        operator = Operator(book, tmp_path / "out", kept_key(tmp_path / "out" / "operator"), secret_from_seed(5), 5)
        view = conduct_job(grid_of(people), job, job_name(book, job, 5), operator, plan, lambda *_: None)
        assert check(book.entries()) is None
    (asked, made), by_name = plans[0], {offer.client.name: offer for offer in view.agreement.offers}
    assert asked.clients.stated == (True, False, False)
    assert list(by_name) == ["Ada", "Cleo", "Dora"]
    assert by_name["Ada"].client.sample_cost == 0.03
    assert [offer.client.stated for offer in by_name.values()] == [True, False, False]
    assert by_name["Cleo"].document()["client"]["stated"] is False
    assert offer_from(by_name["Ada"].document()).client.stated is True
    known = replace(asked, server=replace(asked.server, cost_distribution=None)).plan(made.side, QUICK)
    assert made.contract.batch_size[1:].tolist() == known.contract.batch_size[1:].tolist()
    assert made.contract.batch_size[0] < known.contract.batch_size[0]  # less than if the cost were known
    left = by_name["Ada"].expected_pay - by_name["Ada"].cost
    assert left > made.training.rounds * made.contract.batch_size[0] * 0.01  # a rent: the client might have stated 0.08
    news, _ = participant_folder.news(people[FIRST_NODE + 1].folder)
    assert news.endswith("sample_cost is 0.5; the job takes costs from 0.02 to 0.08.")
    stated_cost = {"key": "explanation.stated_cost", "values": {}}
    assert stated_cost in offer_view(people[FIRST_NODE].folder, None, None, None)["explanation"]
    assert stated_cost not in offer_view(people[FIRST_NODE + 2].folder, None, None, None)["explanation"]


def test_a_stated_cost_is_taken_as_it_is_within_the_range(tmp_path):
    limits = limits_of(job_of(tmp_path))["Ada"]
    require_within({"name": "Ada", "samples": 120, "sample_cost": 0.079}, limits)
    for cost in (0.019, 0.081):
        sentence = told(require_within, {"name": "Ada", "samples": 120, "sample_cost": cost}, limits)
        assert sentence == f"sample_cost is {cost:g}; the job takes costs from 0.02 to 0.08."


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("3", "cost_distribution is 3; it must have the name of a SciPy distribution, as {name"),
        ("{loc = 1}", "it must have the name of a SciPy distribution"),
        ('{name = "unform"}', "has the name 'unform'; SciPy has no continuous distribution of that name."),
        ('{name = "poisson", mu = 3}', "SciPy has no continuous distribution of that name."),
        ('{name = "rv_continuous"}', "SciPy has no continuous distribution of that name."),
        ('{name = "uniform", low = 1}', "has no parameter 'low'; those of uniform are loc, scale."),
        ('{name = "beta", loc = 1}', "lacks a, b; the parameters of beta are a, b, loc, scale."),
        ('{name = "uniform", loc = "x"}', "cost_distribution loc is 'x'; it must be a number."),
        ('{name = "uniform", loc = 1, scale = -1}', "has parameters for which SciPy knows no distribution"),
        ('{name = "norm"}', "cost_distribution: the cost distribution lies on [-inf, inf]; it must lie on a bounded"),
        ('{name = "beta", a = 0.5, b = 0.5, loc = 0.01}', "cost_distribution: the cost distribution is not regular"),
        ('{name = "uniform", loc = 1, scale = 1}', "sample_cost of Ada is 0.05; by [server] cost_distribution costs"),
        (f"{UNIFORM}\nbudget = 900", "cost_distribution and budget are both given; what a menu costs depends on"),
    ],
)
def test_distributions_that_are_none_get_a_sentence(tmp_path, value, sentence):
    with pytest.raises(InputError) as error:
        job_of(tmp_path, value)
    assert sentence in str(error.value)
    assert "[server] " in str(error.value)
    assert "\n" not in str(error.value)


def test_an_audition_has_no_menu(tmp_path):
    sentence = told(job_of(tmp_path).with_contract, "audition")
    assert sentence.startswith("[server] cost_distribution is for [contract] kind = \"lceme\"; of 'audition' no menu")


def test_plan_says_what_private_costs_add(tmp_path):
    """A job of constants: the same clients with known and with private costs."""
    text = """
[clients]
weight = [0.5, 0.5]
gradient_variance = 4.0
sample_cost = 0.05
labeling_cost = 20
dataset_size = 500

[training]
rounds = 50

[constants]
smoothness = 2.0
strong_convexity = 0.5
label_shift = 2.0
gradient_bound = 1.0
initial_distance = 4.0

[server]
loss_value = 50000.0
"""
    known, private = tmp_path / "known.toml", tmp_path / "private.toml"
    known.write_text(text)
    private.write_text(text + f"cost_distribution = {UNIFORM}\n")
    run = CliRunner()
    told_of = [
        json.loads(run.invoke(app, ["plan", str(path), "--json"]).output)["clients"] for path in (known, private)
    ]
    payoff = [one["expected_payoff"] for one in told_of]
    assert max(map(abs, payoff[0])) < 1e-6 < 1.0 < min(payoff[1])
    assert payoff[1] == pytest.approx(told_of[1]["rent"], rel=0.01)  # without an error of the loss
    assert "rent" not in told_of[0]
    shown = run.invoke(app, ["plan", str(private)]).output
    assert "Costs are private. If everybody states the job's, the rents that make the true cost" in " ".join(
        shown.split()
    )
