"""What a plan's work is worth, costs and pays, said before offers go out; and a warning where it pays much."""

import json

import numpy as np
import pytest

from helpers.commanded_jobs import Job
from helpers.commands import truthfl
from helpers.small_jobs import known_plans, small_job_file  # noqa: F401
from truthfl.cli.job_commands import print_plan_summary, sentences
from truthfl.contracts.payoff import WarnFactors, plan_economics
from truthfl.contracts.planning import plan_worth
from truthfl.errors import InputError
from truthfl.federation.operator.approval import PlanSummary, show_plan, shown_plan, summary_from
from truthfl.job import ServerSettings, read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.job_state import OfferNumbers

QUICK = PilotDesign(seeds=2, honest_seeds=4, batch_sizes=(4, 8, 16))


def sums(pay, worth=100.0, own=50.0, **changes):
    """Two clients whose work costs 10 each."""
    two = {"cost": 10.0, "expected_pay": pay, "most_pay": 2 * pay, "own_worth": own}
    arrays = {name: np.full(2, value) for name, value in two.items()}
    return plan_economics(**arrays, has_cap=True, worth=worth, **changes)


def test_pay_is_warned_of_above_the_factor_of_cost_and_above_worth():
    assert sums(30.0).warnings == []
    of_cost = sums(30.01).warnings
    assert len(of_cost) == 1
    assert "expected pay is 3.00 times what the work costs; warn_pay_over_cost is 3." in of_cost[0]
    of_worth = sums(30.0, worth=59.0).warnings
    assert of_worth == [
        "Beware: expected pay, 60.00, is more than what all work together is worth to you, 59.00 (warn_pay_over_worth)."
    ]
    both = sums(300.0, factors=WarnFactors(10.0, 5.0))
    assert ["30.00 times" in both.warnings[0], "5 times what all work" in both.warnings[1]] == [True, True]
    assert sums(300.0, factors=WarnFactors(30.0, 6.0)).warnings == []


def test_work_of_unknown_worth_is_held_against_its_cost_alone():
    unknown = plan_economics(cost=np.ones(2), expected_pay=np.full(2, 9.0), most_pay=np.full(2, np.inf), has_cap=False)
    assert len(unknown.warnings) == 1
    assert unknown.remarks == []
    assert unknown.sentence == "All work together costs 2.00; expected pay is 18.00."
    assert json.loads(json.dumps(unknown.document(), allow_nan=False))["worth"] is None


def test_a_client_who_is_paid_more_than_their_work_adds_is_counted():
    assert sums(20.0).remarks == []
    assert "2 of 2 are paid more than what their own work adds" in sums(20.0, own=19.0).remarks[0]
    assert sums(20.0, own=19.0).document()["paid_over_own_worth"] == 2


def test_the_words_have_all_sums():
    found = sums(20.0, untrained_loss=2.3)
    assert found.sentence == (
        "All work together is worth 100.00 to you (a model that nobody trained has a loss of 2.3000) and costs 20.00; "
        "expected pay is 40.00, at most 80.00."
    )


@pytest.mark.parametrize("field", ["warn_pay_over_cost", "warn_pay_over_worth"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), "3"])
def test_factors_are_positive_numbers(field, value):
    with pytest.raises(InputError, match=f"{field} is "):
        ServerSettings(**{field: value})


def test_worth_of_all_work_is_that_of_the_fall_from_the_untrained_models_loss(tmp_path):
    job = read_job(small_job_file(tmp_path, "rounds = 30", "rounds = 3\nstep_size = 0.5"))
    plan = job.plan(job.server_side(), QUICK)
    absence = np.array([0.01, 0.02, 0.03, 0.04])
    found = plan_worth(plan, 4000.0, absence)
    assert found.untrained_loss == pytest.approx(np.log(10), abs=1e-6)  # softmax regression starts at zero
    assert found.all_work == pytest.approx(4000.0 * (np.log(10) - plan.expected_loss), abs=0.01)
    assert found.own == pytest.approx(4000.0 * absence)


def many_clients(folder, count, samples):
    """Digits of MNIST; a label costs 1."""
    path = folder / "many.toml"
    path.write_text(f"""
[data]
pilot_samples = 2000
test_samples = 1000
[training]
rounds = 20
[server]
loss_value = 50000.0
test_samples = 10000
[contract]
kind = "lceme"
[clients]
dataset_size = {[samples] * count}
label_cost = 1.0
sample_cost = 0.0006
""")
    return path


def test_a_thousand_are_paid_many_times_their_cost_and_the_plan_says_so(tmp_path):
    """They would get more than their work is worth, and so many times its cost that nobody gets an offer."""
    done = truthfl("plan", many_clients(tmp_path, 1000, 2))
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "All work together is worth " in words
    assert "times what the work costs; warn_pay_over_cost is 3." in words
    assert "is more than what all work together is worth to you" in words
    assert "1000 of 1000 would get no offer: most_expected_pay allows 30 times the cost." in words
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_plan_as_json_has_the_sums(tmp_path):
    for kind in ("lceme", "audition"):
        done = truthfl("plan", small_job_file(tmp_path), "--contract", kind, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        economics = told["economics"]
        assert economics["expected_pay"] == pytest.approx(told["total_pay"])
        assert economics["cost"] > 0
        assert economics["most_pay"] >= economics["expected_pay"]
        assert economics["separate_worth"] == pytest.approx(sum(told["clients"]["worth"]))
        assert bool(economics["warnings"]) == (economics["expected_pay"] > 3 * economics["cost"]) == (kind == "lceme")


@pytest.mark.parametrize(
    ("currency", "minor_units", "amounts"),
    [
        ("JPY", 1, ("1,000", "1,501", "3,000", "90,000")),
        ("EUR", 100, ("1,000.40", "1,500.60", "3,000.25", "90,000.12")),
        ("TND", 1000, ("1,000.400", "1,500.600", "3,000.250", "90,000.125")),
    ],
)
def test_the_plan_to_approve_has_the_decimals_of_its_currency(capsys, currency, minor_units, amounts):
    offer = OfferNumbers("Ada", 50, 20, cost=1000.4, expected_pay=1500.6, most=3000.25, worth=2000.0)
    plan = PlanSummary("j", 1, "audition", currency, minor_units, True, (offer,), {}, 90_000.125, 2.3, 3.0, 1.0)
    print_plan_summary(plan)
    cost, expected, most, worth = amounts
    words = " ".join(capsys.readouterr().out.split())
    assert f"Ada 50 20 {cost} {expected} 1.50 {most}" in words
    assert f"total 50 {cost} {expected} 1.50 {most}" in words
    assert f"Expected pay is {expected} {currency} in all" in words
    assert f"never more than {most}" in words
    assert f"is worth {worth} to you" in words
    assert f"costs {cost}." in words


def test_the_operator_sees_it_before_offers_and_a_run_says_it(tmp_path, capsys):
    """In the summary to approve, which survives its file; on standard error and in results.json of a run."""
    job = Job(tmp_path, lambda job, side: job.plan(side, QUICK), warn_pay_over_cost=2.0)
    seen = []
    view = job.go(lambda plan: seen.append(plan) or True)
    plan = seen[0]
    assert summary_from(json.loads(json.dumps(plan.document()))) == plan
    show_plan(tmp_path, plan)
    assert any("lies tried on pilot data" in sentence for sentence in plan.warnings)  # as truthfl plan says it
    assert view.plans[-1].document["warnings"] == list(plan.warnings)
    assert set(plan.warnings) < set(sentences(plan))
    assert shown_plan(tmp_path) == plan
    recorded = view.plans[-1].document
    assert plan.worth == recorded["worth_of_all"]
    assert [offer.worth for offer in plan.offers] == recorded["worth"]
    assert plan.economics.expected_pay == pytest.approx(plan.total_expected)
    assert plan.economics.cost == pytest.approx(plan.total_cost)
    assert plan.economics.most_pay == pytest.approx(plan.total_most)
    assert "warn_pay_over_cost is 2." in " ".join(sentences(plan))
    print_plan_summary(plan)
    shown = capsys.readouterr().out
    assert f"All work together is worth {plan.worth:,.0f} to you" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100
    done = truthfl("run", small_job_file(tmp_path), "--out", tmp_path / "run", "--json")
    assert "truthfl: Beware: expected pay is " in done.stderr
    assert json.loads(done.stdout)["economics"]["warnings"][0] in done.stderr
