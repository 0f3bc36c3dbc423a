"""Does lying pay, in real training: gains and intervals from known losses, the sequence of looks, the command."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from small_jobs import small_job_file
from truthfl import Clients, Evidence, InputError, LossModel, Mechanism, Strategies, Training, lceme
from truthfl.job import read_job
from truthfl.learning.behaviours import BEHAVIOURS
from truthfl.learning.pilot_design import PilotDesign
from truthfl.mechanism.baselines import LeaveOneOutPay, ShapleySharePay, flat_pay, pay_per_claimed_sample
from truthfl.mechanism.deviation import best_deviation
from truthfl.studies.cells import FederationSpec
from truthfl.studies.verify.gains import Losses, elicited_effort, gains
from truthfl.studies.verify.lie_grid import EMPTY_REPORT, GRID, KINDS, SHORT_GRID, TRUTH, kind_of, lie
from truthfl.studies.verify.lie_training import coalition, lied_losses
from truthfl.studies.verify.rule_tests import rule_tests
from truthfl.studies.verify.verification import VerificationDesign, verify
from truthfl.studies.verify.verification_report import drawn, lies_csv, rows, verdicts_csv
from truthfl.studies.work import Store

CLIENTS = Clients(
    weight=[0.25] * 4, gradient_variance=1.0, sample_cost=0.05, labeling_cost=40.0, dataset_size=200, name=list("abcd")
)
TRAINING = Training(100, 1, 0.1)
MODEL = LossModel(constant=0.3, sampling=[0.5] * 4, labeling=[0.2] * 4, reporting=[0.01] * 4)


def known_losses(rule, model, client, lies, seeds=30, noise=0.0):
    """What a loss model would show: paired noise that all lies share, and some of their own."""
    random = np.random.default_rng(5)
    shared = noise * random.normal(size=seeds)
    found = []
    for one in (TRUTH, *lies, EMPTY_REPORT):
        effort, batch, scale = np.ones(4), rule.batch_size.copy(), np.ones(4)
        effort[client], scale[client] = one.labeling_effort, one.report_scale
        batch[client] = one.batch_size(rule.batch_size[client], at_most=200)
        own = 0.1 * noise * random.normal(size=seeds) if one not in (TRUTH, EMPTY_REPORT) else 0.0
        loss = float(model.expected_loss(Strategies(effort, batch, scale)))
        found.append(loss + shared + own)
    loss = np.array(found[:-1])
    empty = np.full((2, seeds), np.nan)
    return Losses(loss, found[-1], np.full_like(loss, np.nan), *empty)


def test_the_grid_has_every_joint_lie_once_and_the_empty_report_last():
    for grid in (GRID, SHORT_GRID):
        assert len(set(grid)) == len(grid)
        assert grid[-1] == EMPTY_REPORT
        assert TRUTH not in grid
        assert {kind_of(one) for one in grid} == set(KINDS)
        assert len({one.name for one in grid}) == len(grid)
        assert all(one.is_strategy and not one.truthful for one in grid)
    assert lie(0, 0.5, 2).name == "no labels, batch × 0.5, report × 2"
    assert kind_of(lie(0, 0.5, 2)) == "several at once"
    assert [kind_of(lie(*one)) for one in ((0.5, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 0))] == [
        "no labels",
        "other batch",
        "scaled report",
        "empty report",
    ]
    assert EMPTY_REPORT.cost(10, 10, 10) == 0


def test_on_a_loss_model_the_gains_are_the_mechanisms():
    rule = lceme(CLIENTS, MODEL, TRAINING, [30.0] * 4)
    found = gains(rule, CLIENTS, TRAINING, 1, GRID, known_losses(rule, MODEL, 1, GRID, noise=0.01), looks=4)
    assert (found.high[:-1] < 0.02).all()
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()
    assert (found.simultaneous_low <= found.low).all()
    assert found.pay == pytest.approx(found.cost, rel=0.2)
    exact = gains(rule, CLIENTS, TRAINING, 1, GRID, known_losses(rule, MODEL, 1, GRID), looks=4)
    for one, money in zip(GRID[:-1], exact.money[:-1], strict=True):
        batch = 30.0 * one.batch_share if one.batch_share != 0.125 else 4.0  # of 3.75
        batch = 8.0 if one.batch_share == 0.25 else batch  # of 7.5
        own = MODEL.own_gap(one.labeling_effort, batch, one.report_scale)[1] - MODEL.own_gap(1, 30.0, 1)[1]
        saved = 40.0 * (1 - one.labeling_effort) + 5.0 * (30.0 - batch)
        assert money == pytest.approx(saved - rule.slope[1] * own)
    assert exact.money[-1] == pytest.approx(-exact.pay + exact.cost)  # an empty report is not paid
    seen = known_losses(rule, MODEL, 1, GRID)
    if_paid = gains(rule, CLIENTS, TRAINING, 1, GRID, seen, looks=4, empty_is_paid=True)
    rise = seen.loss[-1, 0] - seen.loss[0, 0]
    assert if_paid.money[-1] == pytest.approx(exact.cost - rule.slope[1] * rise)


@pytest.mark.parametrize("truth_over_model", [0.25, 1.0, 4.0])
def test_elicited_effort_is_the_root_of_real_over_assumed_sampling(truth_over_model):
    """docs/mechanism.md, 2d: with v overestimated s times, the real best response is D'/√s."""
    rule = lceme(CLIENTS, MODEL, TRAINING, [40.0] * 4)
    real = replace_sampling(MODEL, truth_over_model)
    seen = {client: known_losses(rule, real, client, GRID, noise=0.001) for client in range(4)}
    found = elicited_effort(rule, CLIENTS, TRAINING, GRID, seen)
    assert found.effort == pytest.approx(np.sqrt(truth_over_model), rel=0.05)
    assert found.low < found.effort < found.high
    expected = best_deviation(rule, CLIENTS, real, TRAINING).strategies.batch_size[0] / 40.0
    assert found.effort == pytest.approx(expected, rel=0.05)


def replace_sampling(model, factor):
    return LossModel(
        constant=model.constant,
        sampling=model.sampling * factor,
        labeling=model.labeling,
        reporting=model.reporting,
    )


def test_flat_pay_elicits_nothing_and_claims_are_believed():
    batches = [40.0] * 4
    for rule in (
        flat_pay(CLIENTS, MODEL, TRAINING, batches),
        pay_per_claimed_sample(CLIENTS, MODEL, TRAINING, batches),
    ):
        seen = known_losses(rule, MODEL, 0, GRID)
        found = gains(rule, CLIENTS, TRAINING, 0, GRID, seen, looks=4)
        assert found.share.max() > 0.85
        assert elicited_effort(rule, CLIENTS, TRAINING, GRID, {0: seen}).effort == pytest.approx(1 / 40)
    assert found.money.max() == pytest.approx(40.0 + 5.0 * 35.0 + 5.0 * 160.0)


def test_leave_one_out_pays_for_the_loss_without_her():
    rule = LeaveOneOutPay(np.full(4, 40.0), 1000.0)
    seen = known_losses(rule, MODEL, 2, GRID)
    found = gains(rule, CLIENTS, TRAINING, 2, GRID, seen, looks=4)
    without, honest = seen.without[0], seen.loss[0, 0]
    assert found.pay == pytest.approx(1000.0 * (without - honest))


@pytest.mark.parametrize("place", [0, 3, len(GRID) - 1, None])
def test_where_the_empty_report_is_among_the_lies_makes_no_difference(place):
    """It may be anywhere or nowhere: the loss without her is told apart from the lies."""
    others = list(GRID[:-1])
    lies = others if place is None else [*others[:place], EMPTY_REPORT, *others[place:]]
    for rule in (LeaveOneOutPay(np.full(4, 40.0), 1000.0), lceme(CLIENTS, MODEL, TRAINING, [40.0] * 4)):
        seen = known_losses(rule, MODEL, 2, GRID)
        moved = [0, *(1 + GRID.index(one) for one in lies)]
        found = gains(rule, CLIENTS, TRAINING, 2, lies, replace(seen, loss=seen.loss[moved]), looks=4)
        expected = gains(rule, CLIENTS, TRAINING, 2, GRID, seen, looks=4)
        assert found.pay == expected.pay
        assert found.money.tolist() == [expected.money[GRID.index(one)] for one in lies]
        empty = gains(rule, CLIENTS, TRAINING, 2, [EMPTY_REPORT], seen.with_empty_report(), looks=4)
        assert empty.money[0] == expected.money[-1]


def test_a_rule_of_ones_own_that_pays_by_shapley_values_is_paid_by_them():
    class PerUnit(Mechanism):
        kind = "per unit"
        needs = frozenset({Evidence.SHAPLEY})
        batch_size = np.full(4, 40.0)

        def pay(self, seen):
            return 100.0 * np.asarray(seen.contribution) * np.ones(4)

    loss = np.full((1 + len(GRID), 8), 0.5)
    joined = np.tile(0.5 + 0.01 * np.arange(8), (1 + len(GRID), 1))
    seen = Losses(loss, np.full(8, 0.6), joined, np.full(8, 0.7), np.full(8, 2.5))
    found = gains(PerUnit(), CLIENTS, TRAINING, 0, GRID, seen, looks=4)
    assert found.pay == pytest.approx(100.0 * (0.7 - joined[0].mean()))
    assert np.isfinite(found.share).all()


@pytest.mark.parametrize(
    ("pay", "sentence"),
    [(lambda _: np.ones(3), "pays an array of shape"), (lambda seen: np.asarray(seen.test_loss) * np.nan, "no finite")],
)
def test_a_rule_that_pays_nonsense_is_one_sentence(pay, sentence):
    own = type(
        "Nonsense", (Mechanism,), {"kind": "nonsense", "batch_size": np.full(4, 40.0), "pay": lambda _, s: pay(s)}
    )
    with pytest.raises(InputError, match=f"mechanism 'nonsense' .*{sentence}"):
        gains(own(), CLIENTS, TRAINING, 0, GRID, known_losses(own(), MODEL, 0, GRID), looks=4)


def test_shapley_pay_is_the_share_of_the_drop():
    rule = ShapleySharePay(np.full(4, 40.0), 400.0)
    loss = np.full((1 + len(GRID), 8), 0.5)
    joined = np.tile(0.5 + 0.01 * np.arange(8), (1 + len(GRID), 1))
    joined[3] += 10.0  # a lie that harms every coalition: no negative pay
    seen = Losses(loss, np.full(8, np.nan), joined, np.full(8, 0.7), np.full(8, 2.5))
    found = gains(rule, CLIENTS, TRAINING, 0, GRID, seen, looks=4)
    assert found.pay == pytest.approx(400.0 * (0.7 - joined[0].mean()) / 2.0)
    worst = GRID[2]
    saved = 40.0 * (1 - worst.labeling_effort) + 5.0 * 40.0 * (1 - worst.batch_share)
    assert found.money[2] == pytest.approx(saved - found.pay)


def test_coalitions_are_of_every_size_alike_and_leave_her_out():
    drawn_of = np.stack([coalition(1, 5, seed) for seed in range(50)])
    assert not drawn_of[:, 1].any()
    times = np.bincount(drawn_of.sum(axis=1))
    assert len(times) == 5
    assert times.min() >= 8


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    job = read_job(small_job_file(folder))
    plan = job.plan(job.simulated_federation(), PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32)))
    place = FederationSpec(job.data, job.model, job.clients.dataset_size)
    store = Store(folder / "tasks")
    return place, plan, store


def test_a_lie_is_trained_as_it_says_and_paired_by_seed(small):
    place, plan, _ = small
    asked = place.settings() | {"rounds": 10, "local_steps": 1, "step_size": 0.5, "batch_size": [10.0] * 4, "client": 2}
    found = lied_losses(**asked, lies=[[1, 10, 1], [0, 10, 1], [1, 10, 0]], seeds=[0, 1], coalitions=True)["loss"]
    assert found.shape == (3, 2)
    again = lied_losses(**asked, lies=[[0, 10, 1]], seeds=[1])["loss"]
    assert again[0, 0] == found[1, 1]
    assert (found[1] > found[0]).all()
    assert plan.contract.batch_size.shape == (4,)


def test_verification_of_a_small_job(small):
    place, plan, store = small
    ways, absent = rule_tests(place, plan, store, workers=1)
    names = [rule.name for way in ways for rule in way.rules]
    assert names[0] == "lceme calibrated"
    assert {"flat", "per claimed sample", "shapley share", "lceme as printed"} <= set(names) | set(absent)
    examined = VerificationDesign((0, 3), SHORT_GRID, looks=(3, 6))
    told = []
    done = verify(ways[0], examined, store, workers=1, progress=lambda what: told.append(what) or (lambda *_: None))
    verdicts = done.verdicts
    assert [one.rule for one in verdicts] == [rule.name for rule in ways[0].rules]
    by_rule = {one.rule: one for one in verdicts}
    assert by_rule["flat"].lying_pays is True
    assert by_rule["flat"].regret > 0.9
    assert by_rule["per claimed sample"].regret > by_rule["flat"].regret
    assert by_rule["lceme calibrated"].regret < 0.5
    for one in verdicts:
        assert one.regret_low <= one.regret <= one.regret_high
        assert one.regret_low <= one.certain_regret <= one.regret_high
        assert one.regret == pytest.approx(max(kind.regret for kind in one.by_kind))
    assert told[0] == f"look 1: {2 * len(SHORT_GRID)} lies"
    assert verify(ways[0], examined, store, workers=1).verdicts == verdicts  # kept, and the same
    assert lies_csv([done]).count("\n") == 1 + 2 * len(SHORT_GRID)
    assert len(rows(verdicts)) == len(verdicts)
    assert verdicts_csv(verdicts).count("\n") == 1 + len(KINDS) * len(verdicts)
    assert len(drawn(verdicts, "black").axes[0].get_yticklabels()) == len(verdicts)


@pytest.mark.parametrize("order", ["first", "absent"])
def test_verification_does_not_ask_where_the_empty_report_is(small, order):
    place, plan, store = small
    way = rule_tests(place, plan, store, workers=1)[0][0]
    lies = (lie(0, 1, 1), lie(1, 0.25, 1), lie(1, 1, 2))
    usual = verify(way, VerificationDesign((0, 3), (*lies, EMPTY_REPORT), looks=(3, 6)), store, workers=1)
    others = (EMPTY_REPORT, *lies) if order == "first" else lies
    found = verify(way, VerificationDesign((0, 3), others, looks=(3, 6)), store, workers=1)
    for one, expected in zip(found.verdicts, usual.verdicts, strict=True):
        assert one.empty_report == expected.empty_report
        assert one.pay_over_cost == expected.pay_over_cost
        kinds = {kind.kind: kind.regret for kind in one.by_kind}
        assert np.isnan(kinds["empty report"]) == (order == "absent")
        if order == "first":
            assert kinds["empty report"] == {kind.kind: kind.regret for kind in expected.by_kind}["empty report"]
            assert one.worst_deviation == expected.worst_deviation
    for client in (0, 3):
        assert (found.losses[client].without == usual.losses[client].loss[-1]).all()
        assert found.losses[client].without.mean() > found.losses[client].loss[0].mean()


def test_a_lie_that_is_more_than_three_numbers_is_refused(small):
    place, plan, store = small
    way = rule_tests(place, plan, store, workers=1)[0][0]
    with pytest.raises(InputError, match="echo is more than"):
        verify(way, VerificationDesign((0,), (BEHAVIOURS["echo"],), looks=(2,)), store, workers=1)


def test_only_open_lies_are_looked_at_again(small, monkeypatch):
    place, plan, store = small
    way = replace(rule_tests(place, plan, store, workers=1)[0][0])
    flat_only = replace(way, rules=(way.rules[1],))
    asked = []
    monkeypatch.setattr(
        "truthfl.studies.verify.lie_training.lied_losses", lambda **s: asked.append(s) or lied_losses(**s)
    )
    verify(flat_only, VerificationDesign((0,), SHORT_GRID, looks=(2, 4, 8)), Store(store.folder / "flat"), workers=1)
    assert len(asked) == 1  # one lie is known to pay after the first look: no further run


def test_the_command(tmp_path):
    job = small_job_file(tmp_path)
    command = [sys.executable, "-m", "truthfl", "verify", job, "--quick", "--out", tmp_path / "out"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    told = {one["rule"]: one for one in json.loads(done.stdout)}
    wanted = {"rule", "elicited_effort", "regret", "regret_low", "regret_high", "worst_deviation"}
    assert all(wanted <= set(one) for one in told.values())
    assert told["flat"]["lying_pays"] is True
    for name in ("report.html", "does-lying-pay.png", "does-lying-pay.svg", "does-lying-pay.csv", "lies.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "lceme calibrated" in again.stdout
    assert max(map(len, again.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workers", "0"], "workers is 0; it must be at least 1."),
        (["--data", "nowhere"], "data is 'nowhere', which is no folder"),
        (["--out", "/dev/null/x"], "cannot be written to"),
        (["missing.toml"], "cannot be read"),
    ],
)
def test_bad_input(tmp_path, options, told):
    command = [sys.executable, "-m", "truthfl", "verify", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == (3 if "--out" in options else 2)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
