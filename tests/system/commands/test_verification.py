"""Does lying pay, in real training: the adversary on small jobs, a contract with a known hole, and the command."""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import truthfl
from helpers.commands import truthfl as ended
from helpers.small_jobs import small_job_file, ten_client_job_file
from truthfl import Contract
from truthfl.adversary.pilot_lies import search_on_pilot
from truthfl.adversary.strategy import KINDS, LiePoint, ReportKind
from truthfl.job import read_job
from truthfl.learning.people.behaviour import SoloRecipe
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.studies.verify.job_verification import FEWEST_SPLITS, JobVerification, verify_job
from truthfl.studies.verify.regret import BATCH_CURVE, mean_share
from truthfl.studies.verify.report import drawn, lies_csv, rows
from truthfl.studies.verify.rule_tests import RuleTest, arrays_of, asked_clients, drawn_plans, plan_of, rule_tests
from truthfl.studies.verify.training import Place
from truthfl.studies.verify.verdicts import best_in_hindsight, summary_rows, verdicts_of
from truthfl.studies.verify.verification import VerificationDesign, measure_lies
from truthfl.studies.work import Store

CONSTANTS = Path(truthfl.__file__).parent / "examples" / "ten_clients.toml"
QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
SEARCHED = tuple(Place(0, 100 + k) for k in range(4))
MEASURED = tuple(Place(0, 500 + k) for k in range(20))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A job, its plans on two draws of the data, and the store of what was trained."""
    folder = tmp_path_factory.mktemp("verify")
    job = read_job(small_job_file(folder))
    store = Store(folder / "tasks")
    plans, _ = drawn_plans(job, 2, store, seed=0, design=QUICK, progress=lambda *_: None)
    tests, absent = rule_tests(plans, store, workers=1)
    return job, plans, store, tests, absent


@pytest.fixture(scope="module")
def measured(small):
    _, _, store, tests, _ = small
    return measure_lies(tests[0], VerificationDesign(SEARCHED, MEASURED, 700, seed=3), store, workers=1)


def test_every_contract_of_the_package_is_asked(small):
    _, _, _, tests, absent = small
    names = [name for test in tests for name in test.names]
    assert names[:4] == ["lceme calibrated", "flat", "per claimed sample", "leave-one-out"]
    assert {"shapley share", "lceme as printed", "lceme, sound bound"} <= set(names) | set(absent)
    for test in tests:
        assert len(test.draws) == 2
        assert all(len(draw.rules) == len(test.names) for draw in test.draws)


def test_a_plan_is_the_same_when_it_comes_from_the_store(small):
    job, plans, _, _, _ = small
    made = job.plan(job.server_side(), QUICK)
    kept = plan_of(job, arrays_of(made, job.server.loss_value))
    assert (plans[0].contract.batch_size == kept.contract.batch_size).all()
    for name, values in made.contract.terms().items():
        assert kept.contract.terms()[name] == pytest.approx(values)
        assert plans[0].contract.terms()[name] == pytest.approx(values)
    assert kept.training == made.training
    assert plans[1].federation.data.seed != plans[0].federation.data.seed


def test_the_verdicts_of_a_small_job(measured):
    verdicts = verdicts_of(measured, loss_value=4000.0, test_samples=2000)
    by_rule = {verdict.rule: verdict for verdict in verdicts}
    assert by_rule["flat"].lying_pays is True
    assert by_rule["flat"].regret > 0.9
    assert by_rule["flat"].elicited_labels == 0
    assert by_rule["per claimed sample"].regret > by_rule["flat"].regret
    for rule, verdict in enumerate(verdicts):
        assert verdict.regret_low <= verdict.regret <= verdict.regret_high <= 5
        assert verdict.ex_post_regret >= verdict.regret - 1e-12
        best = measured.points.index(LiePoint.of_document({k: v for k, v in verdict.best_lie.items() if k != "words"}))
        assert verdict.regret == pytest.approx(measured.gains[rule].gain[best].mean() / measured.gains[rule].unit)
        assert verdict.best_lie["words"] == measured.points[best].words
        assert measured.found.best(rule) == measured.points[best]
        assert {lie.kind for lie in verdict.by_kind} <= set(KINDS)
        assert [client.client for client in verdict.clients] == ["Ada", "Ben", "Cleo", "Dora"]
        assert verdict.runs == measured.runs
        assert verdict.points == len(measured.found.points)
        assert 0 <= verdict.below_cost <= 1
    worth = 4000.0 * (measured.honest.without - measured.honest.loss)
    of_ben = worth[measured.honest.liar == 1].mean()
    assert by_rule["flat"].clients[1].worth == pytest.approx(of_ben)


def test_the_winner_is_measured_where_the_search_was_not(measured):
    searched, seen = {place.split for place in SEARCHED}, {case.place.split for case in measured.cases}
    assert not searched & seen
    assert len(seen) == len(MEASURED) == FEWEST_SPLITS
    assert min(case.seed for case in measured.cases) > 1000 + len(measured.searched)
    assert 700 < measured.runs < 1.3 * 700
    assert set(BATCH_CURVE) <= set(measured.points)
    assert sorted({case.client for case in measured.cases}) == [0, 1, 2, 3]


def test_the_same_seed_finds_the_same_lie_and_nothing_is_trained_twice(small, measured):
    _, _, store, tests, _ = small
    design = VerificationDesign(SEARCHED, MEASURED, 700, seed=3)
    stored = set(store.folder.iterdir())
    again = measure_lies(tests[0], design, store, workers=1)
    assert set(store.folder.iterdir()) == stored
    assert again.found.points == measured.found.points
    assert all((a.gain == b.gain).all() for a, b in zip(again.gains, measured.gains, strict=True))
    assert verdicts_of(again, loss_value=1.0, test_samples=9) == verdicts_of(measured, loss_value=1.0, test_samples=9)


@dataclass(frozen=True, eq=False)
class AllOrNothing(Contract):
    """Pays twice the cost if the loss is not far above the expected one, else nothing."""

    kind: ClassVar[str] = "all or nothing"

    batch_size: np.ndarray
    cost: np.ndarray
    limit: np.ndarray

    def pay(self, seen):
        return np.where(np.asarray(seen.test_loss) <= self.limit, 2 * self.cost, 0.0)


def test_the_search_finds_the_hole_of_a_contract(small, tmp_path):
    """One of four is hardly missed in the joint loss: who sends hardly anything has all the pay, without the cost."""
    _, plans, _, tests, _ = small
    honest = tests[0].draws[0]
    cost = plans[0].clients.labeling_cost + 30 * plans[0].clients.sample_cost * honest.batch_size
    limit = 1.5 * plans[0].loss_model.truthful_loss(honest.batch_size)  # random labels at full scale exceed it
    planted = AllOrNothing(honest.batch_size, cost, np.full(4, limit))
    test = RuleTest(("all or nothing",), (replace(honest, rules=(planted,)),))
    found = measure_lies(test, VerificationDesign(SEARCHED, MEASURED, 700, pairs=False), Store(tmp_path), workers=1)
    verdict = verdicts_of(found, loss_value=4000.0, test_samples=2000)[0]
    assert verdict.best_lie["labels"] < 0.05
    assert verdict.regret_low > 0.45  # half of pay is what all the work costs
    assert verdict.lying_pays is True
    assert verdict.coalition is None
    loud = LiePoint(labels=0.0, scale=3.0, last_scale=3.0, batch=1.0).canonical()
    assert loud not in found.points or found.gains[0].gain[found.points.index(loud)].mean() < 0


@pytest.mark.parametrize("kind", ["flat", "per claimed sample", "leave-one-out", "shapley share"])
def test_a_contract_of_the_package_can_be_the_jobs_own(tmp_path, kind):
    """It is asked first, with the job's terms; contracts that no job can run are planned and verified all the same."""
    job = read_job(
        small_job_file(tmp_path, '[contract]\nkind = "lceme"', f'margin = 50.0\n\n[contract]\nkind = "{kind}"')
    )
    store = Store(tmp_path / "tasks")
    plans, _ = drawn_plans(job, 1, store, seed=0, design=QUICK, progress=lambda *_: None)
    tests, _ = rule_tests(plans, store, workers=1)
    assert tests[0].names[0] == kind
    assert tests[0].draws[0].rules[0] is plans[0].contract
    others = [name for test in tests for name in test.names]
    assert len(others) == len(set(others))
    assert "lceme calibrated" in others
    found = measure_lies(tests[0], VerificationDesign(SEARCHED, MEASURED, 250, pairs=False), store, workers=1)
    verdict = verdicts_of(found, loss_value=4000.0, test_samples=2000)[0]
    assert np.isfinite(verdict.regret)
    assert (verdict.below_cost is None) == (verdict.ex_post_regret is None) == (kind == "shapley share")
    rows([verdict])
    side = job.server_side()
    on_pilot = search_on_pilot(side, job.plan(side, QUICK), runs=60)
    assert (on_pilot.lies == ()) == (kind != "flat")  # what no job collects, the search on pilot data does not pay by
    assert (on_pilot.absence.mean > 0).all()


def test_of_many_clients_some_are_asked():
    weight = np.linspace(1, 5, 1000)
    asked = asked_clients(weight / weight.sum())
    assert len(asked) == 10
    assert weight[asked] == pytest.approx(np.linspace(1.2, 4.8, 10), rel=0.01)
    assert asked_clients(np.ones(10)).tolist() == list(range(10))


def test_many_clients_are_verified(tmp_path):
    path = ten_client_job_file(tmp_path)
    sizes = ", ".join(["30"] * 25)
    text = path.read_text().replace("[60, 70, 80, 60, 70, 80, 60, 70, 80, 90]", f"[{sizes}]")
    path.write_text(text.replace("rounds = 15", "rounds = 40"))
    store = Store(tmp_path / "tasks")
    plans, _ = drawn_plans(read_job(path), 1, store, seed=0, design=QUICK, progress=lambda *_: None)
    tests, _ = rule_tests(plans, store, workers=1)
    found = measure_lies(tests[0], VerificationDesign(SEARCHED, MEASURED, 200, pairs=False), store, workers=1)
    first = verdicts_of(found, loss_value=8000.0, test_samples=2000)[0]
    assert len(first.clients) == 10
    assert np.isfinite(first.regret)


def test_a_measured_lie_that_is_known_to_gain_more_than_the_winner_is_shown_instead(measured):
    """The search may have been unlucky. That the other one was picked among all is allowed for."""
    rule, winner = 0, measured.points.index(measured.found.best(0))
    other = next(k for k in range(len(measured.points)) if k != winner)
    for rise, shown in ((100.0, other), (-100.0, winner)):
        gain = measured.gains[rule].gain.copy()
        gain[:] = np.minimum(gain, gain[winner])
        gain[other] = gain[winner] + rise * measured.gains[rule].unit
        changed = replace(measured, gains=(replace(measured.gains[rule], gain=gain), *measured.gains[1:]))
        verdict = verdicts_of(changed, loss_value=1.0, test_samples=9)[rule]
        assert verdict.best_lie["words"] == measured.points[shown].words
        assert verdict.regret == pytest.approx(gain[shown].mean() / measured.gains[rule].unit)
        plain = mean_share(gain[shown], measured.gains[rule].unit, measured.cluster)
        wider = (verdict.regret_high - verdict.regret_low) / (plain.high - plain.low)
        assert 1.2 < wider < 2 if shown == other else wider == pytest.approx(1.0)


def test_in_hindsight(measured):
    found = best_in_hindsight(measured, 0)
    assert len(found) == len(measured.cases)
    mean = np.mean([each.gain for each in found])
    assert mean == pytest.approx(verdicts_of(measured, loss_value=1.0, test_samples=9)[0].ex_post_regret)
    assert sum(int(row[1]) for row in summary_rows(found)) == len(found)
    assert {each.client for each in found} == {"Ada", "Ben", "Cleo", "Dora"}


def test_clients_are_named_as_on_the_draw_where_they_were_measured(measured):
    """The plan on another draw of the data leaves out Ada and takes Emil in."""
    own, other = measured.test.draws
    moved = replace(other, clients=replace(other.clients, name=["Ben", "Cleo", "Dora", "Emil"]))
    cases = tuple(
        replace(case, place=replace(case.place, draw=number // 4 % 2)) for number, case in enumerate(measured.cases)
    )
    changed = replace(measured, test=replace(measured.test, draws=(own, moved)), cases=cases)
    names = (("Ada", "Ben", "Cleo", "Dora"), ("Ben", "Cleo", "Dora", "Emil"))
    expected = [names[case.place.draw][case.client] for case in cases]
    assert [each.client for each in best_in_hindsight(changed, 0)] == expected
    verdict = verdicts_of(changed, loss_value=4000.0, test_samples=9)[0]
    assert [client.client for client in verdict.clients] == sorted(set(expected))
    worth = 4000.0 * (measured.honest.without - measured.honest.loss)
    of_ben = worth[[name == "Ben" for name in expected]]
    assert next(each.worth for each in verdict.clients if each.client == "Ben") == pytest.approx(of_ben.mean())


def test_rows_of_lies_are_of_one_length(measured):
    """Whether or not a lie has a recipe of its own."""
    points = tuple(
        replace(point, recipe=list(SoloRecipe)[number % len(SoloRecipe)])
        for number, point in enumerate(measured.points)
    )
    verdicts = verdicts_of(measured, loss_value=1.0, test_samples=9)
    text = lies_csv(JobVerification(((replace(measured, points=points), verdicts),), {}, 2, ()))
    table = list(csv.reader(text.splitlines()))
    assert len(table) > len(points)
    assert {len(row) for row in table} == {15}
    assert {row[table[0].index("recipe")] for row in table[1:]} >= {"prescribed", "longer"}
    assert all(float(row[-3]) <= float(row[-1]) for row in table[1:])


def test_coalitions_of_two(small, measured):
    """Flat pay is paid to both, and the partner saves their labels: half of a pair's labeling cost, of its pay."""
    flat = measured.pairs[1]
    _, plans, _, _, _ = small
    assert len(flat.gain) == len(MEASURED)
    costs = plans[0].clients.labeling_cost
    assert set(np.round(flat.gain, 6)) <= set(costs.tolist())
    loo = verdicts_of(measured, loss_value=1.0, test_samples=9)[3]
    assert loo.coalition_low <= loo.coalition <= loo.coalition_high


def test_a_whole_verification_in_files(small, tmp_path):
    job = replace(small[0], training=replace(small[0].training, rounds=10))
    told = []
    done = verify_job(job, tmp_path, quick=True, workers=1, progress=lambda *what: told.append(what[0]))
    assert {"planning", "pricing"} < set(told)
    assert done.draws == 1
    verdicts = done.verdicts
    table = list(csv.DictReader(lies_csv(done).splitlines()))
    assert {row["rule"] for row in table} == {verdict.rule for verdict in verdicts}
    assert float(table[0]["low"]) <= float(table[0]["gain"]) <= float(table[0]["high"])
    assert len(rows(verdicts)) == len(verdicts)
    assert len(drawn(verdicts, "black").axes[0].get_yticklabels()) == len(verdicts)
    assert ReportKind.LAST_BIT in {point.report for result, _ in done.results for point in result.found.points}


def test_the_command(tmp_path):
    job = small_job_file(tmp_path, "rounds = 30", "rounds = 10")
    command = "verify", job, "--quick", "--runs", 200, "--out", tmp_path / "out"
    done = ended(*command, "--json", timeout=240)
    assert done.returncode == 0, done.stderr
    told = {one["rule"]: one for one in json.loads(done.stdout)}
    wanted = "rule regret regret_low regret_high ex_post_regret best_lie elicited_labels elicited_labels_low"
    wanted += " elicited_labels_high elicited_batch elicited_batch_low elicited_batch_high pay_over_cost below_cost"
    assert all({*wanted.split(), "points", "runs"} <= set(one) for one in told.values())
    assert told["flat"]["lying_pays"] is True
    assert {"words", "labels", "batch", "scale"} <= set(told["flat"]["best_lie"])
    for name in ("report.html", "does-lying-pay.png", "does-lying-pay.svg", "lies.csv", "clients.csv", "ex_post.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    assert "Ex post: the best lie of each split" in (tmp_path / "out" / "report.html").read_text()
    again = ended(*command)
    assert "lceme calibrated" in again.stdout
    assert "others; the job's own plan" in " ".join(again.stdout.split())
    assert max(map(len, again.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workers", "0"], "workers is 0; it must be at least 1."),
        (["--data", "nowhere"], "data is 'nowhere', which is no folder"),
        (["--out", "/dev/null/x"], "cannot be written to"),
        (["missing.toml"], "cannot be read"),
        (["--runs", "0"], "runs is 0; it must be from 200 to 10,000,000"),
        (["--runs", "50", "--quick"], "runs is 50; it must be from 200 to"),
        (
            ["--splits", "100000000000"],
            "it must be at least 20, because a gain is averaged over them, and at most 2,000 for",
        ),
        (["--splits", "3"], "splits is 3; it must be at least 20"),
        (["--seed", "-1"], "seed is -1; it must be 0 or more."),
        ([CONSTANTS, "--runs", "300"], "--runs is for a job on data; this one states constants"),
        ([CONSTANTS, "--data", "."], "--data is for a job on data"),
    ],
)
def test_bad_input(tmp_path, options, told):
    done = ended("verify", *options, cwd=tmp_path)
    assert done.returncode == (3 if "--out" in options else 2)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("dataset_size = [120, 120, 150, 90]", "dataset_size = [1200, 120, 150, 90]", "dataset_size of Ada is 1,200"),
        ('kind = "lceme"', 'kind = "grand"', "there is no contract of kind 'grand'"),
        ('source = "digits"', 'source = "nowhere"', "source is 'nowhere'"),
    ],
)
def test_jobs_that_cannot_be_verified(tmp_path, old, new, told):
    """Splits that ask for more samples than there are, a contract that nobody knows, data that are not there."""
    job = small_job_file(tmp_path, old, new)
    done = ended("verify", job, "--quick", "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
