"""The search: it finds a known hole within its budget, the same one with the same seed, and counts its runs."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfl import InputError
from truthfl.adversary.search import client_and_split, rungs_of, search
from truthfl.adversary.strategy import KINDS, LiePoint, LieSpace, ReportKind
from truthfl.learning.people.behaviour import Unlabeled
from truthfl.studies.verify.job_verification import EFFORTS, SHARES_OF_RUNS
from truthfl.studies.verify.verification import SEARCH_SHARE

SPACE = LieSpace((1 / 40, 5.0), 1.5)
DEFAULT_RUNS = int(SEARCH_SHARE * SHARES_OF_RUNS["main"] * EFFORTS["fast", False].runs)

# As measured on the full MNIST for a client without labels: the rise of the loss by the scale γ of the reports. One
# unit of loss takes 3600 of the pay of 290; labels cost 200.
SCALE, RISE = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0), (0.012, 0.014, 0.018, 0.026, 0.048, 0.2, 0.3, 2.0)


def whispering_pays(point):
    """A contract with one hole: whispering without labels. All other ways to do without labels lose all pay."""
    if not point.computes or point.rest is not Unlabeled.DRAWN:
        return -1.0
    batch, labels = point.batch_size(40, 200), point.labels
    rise = (1 - min(labels, 1.0)) * np.interp((point.scale + point.last_scale) / 2, SCALE, RISE)
    rise += 0.02 * (point.scale - 1) ** 2 * (labels == 1) + 0.002 * (40 / batch - 1) * point.scale
    return (200 * (1 - labels) + 0.06 * (40 - batch) - 3600 * rise) / 290


def measured(landscape, noise=0.0, seed=0):
    """Gains as a search sees them, with noise of each run, and how often it was asked for them."""
    asked = []

    def measure(points, cases):
        asked.append((len(points), cases))
        found = np.empty((1, len(points), cases))
        for k, point in enumerate(points):
            own = zlib.crc32(f"{seed} {point}".encode())
            found[0, k] = landscape(point) + noise * np.random.default_rng(own).normal(size=cases)
        return found

    return measure, asked


@pytest.mark.parametrize("seed", range(5))
def test_the_whisper_is_found_within_the_default_budget(seed):
    """Wherever the search starts; noise as that of the loss of one run, 0.015 times κ over pay."""
    measure, _ = measured(whispering_pays, noise=0.19, seed=seed)
    best = search(measure, SPACE, rungs_of(DEFAULT_RUNS, 1), 1, seed).best(0)
    assert best.labels == 0
    assert (best.scale + best.last_scale) / 2 < 0.12
    hole = LiePoint(labels=0.0, rest=Unlabeled.DRAWN, batch=0.03, scale=0.01, last_scale=0.01)
    assert whispering_pays(best) > 0.8 * whispering_pays(hole) > 0.4


def test_the_same_seed_finds_the_same_lie_and_another_looks_elsewhere():
    results = []
    for seed in (1, 1, 2):
        measure, _ = measured(whispering_pays, noise=0.1)
        results.append(search(measure, SPACE, rungs_of(800, 1), 1, seed))
    first, again, other = results
    assert first.points == again.points
    assert np.array_equal(first.gains, again.gains, equal_nan=True)
    assert first.best(0) == again.best(0)
    assert first.points != other.points


@given(runs=st.integers(80, 20_000), rules=st.integers(1, 7))
def test_the_budget_is_nearly_spent_and_hardly_exceeded(runs, rules):
    rungs = rungs_of(runs, rules)
    assert [rung.cases for rung in rungs] == [rungs[0].cases * 2**k for k in range(4)]
    spent = rungs[0].cases * rungs[0].children
    spent += sum(rung.kept * rung.cases // 2 + rung.children * rung.cases for rung in rungs[1:])
    assert 0.7 * runs < spent <= max(1.05 * runs, runs + 100 * rules)


def test_points_are_measured_on_more_and_more_cases():
    measure, asked = measured(whispering_pays)
    rungs = rungs_of(500, 1)
    found = search(measure, SPACE, rungs, 1, 0)
    assert asked == [(rung.kept + rung.children, rung.cases) for rung in rungs]
    assert found.gains.shape == (1, len(found.points), rungs[-1].cases)
    cases = (~np.isnan(found.gains[0])).sum(axis=1)
    assert sorted(set(cases)) == [rung.cases for rung in rungs]
    assert (np.isfinite(found.mean(0)) == (cases == rungs[-1].cases)).all()
    assert len(set(found.points)) == len(found.points)
    assert LiePoint() not in found.points


def test_the_best_of_every_rule_survives_however_few_are_kept():
    def measure(points, cases):
        """Each of four rules likes another kind of lie best, and hates all else alike."""
        likes = ("fewer labels", "other batch", "scaled report", "fabricated report")
        gains = np.array([[1.0 if point.kind == kind else -5.0 for point in points] for kind in likes])
        return np.repeat(gains[:, :, None], cases, axis=2)

    found = search(measure, SPACE, rungs_of(500, 4), 4, 0)
    assert [found.mean(rule).max() for rule in range(4)] == [1.0] * 4


def test_each_rule_has_its_own_best_lie_and_every_kind_a_best_one():
    def measure(points, cases):
        likes_batches = [-abs(point.batch - 2.0) if point.kind == "other batch" else -5.0 for point in points]
        likes_echoes = [1.0 if point.report is ReportKind.ECHO else -point.labels for point in points]
        gains = np.array([likes_batches, likes_echoes])[:, :, None]
        return np.repeat(gains, cases, axis=2)

    found = search(measure, SPACE, rungs_of(4000, 2), 2, 0)
    assert found.best(0).kind == "other batch"
    assert found.best(0).batch == pytest.approx(2.0, rel=0.3)
    assert found.best(1).report is ReportKind.ECHO
    for rule in range(2):
        kinds = [point.kind for point in found.best_of_kinds(rule)]
        assert sorted(kinds) == sorted({*KINDS} - {"other recipe"})  # which is for solo models
        assert found.best(rule) in found.best_of_kinds(rule)
        best = [found.mean_so_far(rule, point) for point in found.best_of_kinds(rule)]
        assert max(best) == found.mean(rule).max()


@pytest.mark.parametrize("runs", [0, 1, 59])
def test_too_few_runs_are_one_sentence(runs):
    with pytest.raises(InputError, match=f"{runs} runs are too few for a search; it needs at least 60."):
        rungs_of(runs, 1)


@given(clients=st.integers(1, 12), splits=st.integers(1, 12))
def test_all_clients_meet_all_splits(clients, splits):
    met = [client_and_split(case, clients, splits) for case in range(clients * splits)]
    assert len(set(met)) == clients * splits
    assert [client for client, _ in met] == [case % clients for case in range(clients * splits)]
