"""The family of lies: points, their limits, costs, words and behaviours."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfl.adversary.strategy import (
    ABSENCE,
    FABRICATED_SCALES,
    KINDS,
    MOST_LABELS,
    MOST_NOISE,
    REPORTS,
    SCALES,
    TRUTH,
    WORDS_OF_REST,
    LiePoint,
    LieSpace,
    ReportKind,
)
from truthfl.learning.people.behaviour import Echo, Garbage, LastBit, SoloRecipe, Unlabeled

SPACE = LieSpace((1 / 40, 5.0), 1.5)
SEEDS = st.integers(0, 10**6)


def some_points(seed, count=30, space=SPACE):
    """Random points, and neighbours of neighbours of them."""
    random = np.random.default_rng(seed)
    points = space.draw(random, count)
    near = [space.neighbour(random, point) for point in points]
    return [*points, *near, *(space.neighbour(random, point) for point in near)]


@given(seed=SEEDS, most_labels=st.sampled_from([1.0, 1.3, 1.5]))
def test_all_points_are_within_the_limits_and_can_be_told_in_words_and_numbers(seed, most_labels):
    for point in some_points(seed, space=LieSpace((1 / 40, 5.0), most_labels)):
        assert 0 <= point.labels <= most_labels
        assert point.kind in KINDS
        assert point == point.canonical() == LiePoint.of_document(point.document())
        if point.computes:
            assert 0.995 / 40 <= point.batch <= 5.0
            assert SCALES[0] <= point.last_scale <= max(SCALES[1], point.scale)
            assert SCALES[0] <= point.scale <= SCALES[1]
        else:
            assert 0 <= point.noise <= MOST_NOISE
            assert FABRICATED_SCALES[0] <= point.scale <= FABRICATED_SCALES[1]
            assert point.labels == point.batch == 0
        assert (point.words == "the truth") == (point == TRUTH)
        made = point.behaviour(40.0, 200.0)
        assert made.name == point.words
        assert made.labels_honestly == (point.labels >= 1)
        assert made.truthful == (point == TRUTH or (point.labels > 1 and point == LiePoint(labels=point.labels)))


def test_only_recipes_that_clients_could_follow_are_drawn():
    some = (SoloRecipe.PRESCRIBED, SoloRecipe.LONGER)
    assert {point.recipe for point in some_points(1, 200, LieSpace((1 / 40, 5.0), solo=True, recipes=some))} == set(
        some
    )


def test_the_family_has_every_corner():
    """Every kind of report and of unlabeled samples, falling scales, no labels, all of them and more: all are drawn."""
    points = some_points(1, 400)
    computing = [point for point in points if point.computes]
    assert {point.report for point in points} == set(REPORTS)
    assert {point.rest for point in computing if 0 < point.labels < 1} == set(Unlabeled)
    assert {point.kind for point in points} == set(KINDS) - {"other recipe"}  # which is for solo models
    assert any(point.last_scale < point.scale for point in computing)
    assert max(point.labels for point in points) > 1.4
    assert {0.0, 1.0} <= {point.labels for point in computing}
    assert min(point.batch for point in computing) < 0.04
    assert max(point.batch for point in computing) > 4
    assert min(point.scale for point in points) < 0.02
    assert 2 < max(point.scale for point in computing) <= 3
    assert max(point.scale for point in points) > 8
    whispers = [p for p in computing if p.labels == 0 and p.scale < 0.1 and p.batch < 0.3]
    assert whispers


@given(seed=SEEDS)
def test_costs_follow_from_what_is_done(seed):
    """Labels made by hand, and the samples of the batches that are really used; nothing else costs anything."""
    labeling_cost, price, assigned, owned = 200.0, 0.06, 37, 200
    assert TRUTH.cost(labeling_cost, price, assigned, owned) == labeling_cost + price * assigned
    assert ABSENCE.cost(labeling_cost, price, assigned, owned) == 0
    for point in some_points(seed):
        cost = float(point.cost(labeling_cost, price, assigned, owned))
        if not point.computes:
            assert cost == 0
            continue
        batch = point.batch_size(assigned, owned)
        assert 1 <= batch <= owned
        assert batch == min(max(1, round(point.batch * assigned)), owned)
        assert cost == pytest.approx(point.labels * labeling_cost + price * batch)
        made = point.behaviour(assigned, owned)
        assert made.batch_size(assigned, at_most=owned) == batch
        if point.labels <= 1:
            assert made.cost(labeling_cost, price, assigned) == pytest.approx(cost)


def test_costs_of_many_clients_at_once():
    point = LiePoint(labels=0.25, batch=0.5, scale=0.1, last_scale=0.1)
    labeling, assigned, owned = np.array([100.0, 200.0]), np.array([31.0, 1.0]), np.array([90.0, 80.0])
    expected = [float(point.cost(*one)) for one in zip(labeling, (2.0, 3.0), assigned, owned, strict=True)]
    assert point.cost(labeling, np.array([2.0, 3.0]), assigned, owned).tolist() == expected == [25 + 32, 50 + 3]


@pytest.mark.parametrize(
    ("point", "kind", "words"),
    [
        (LiePoint(), "other batch", "the truth"),
        (LiePoint(labels=0.0, batch=0.03, scale=0.02, last_scale=0.02).canonical(), "random labels",
         "no labels, rest at random, batch × 0.03, report × 0.02"),
        (LiePoint(labels=0.5), "fewer labels", "50% labeled, rest left out"),
        (LiePoint(labels=0.0, rest=Unlabeled.PREDICTED), "labels by machine", "no labels, rest by the common model"),
        (LiePoint(labels=0.3, rest=Unlabeled.NEAREST), "labels by machine", "30% labeled, rest by nearest neighbour"),
        (LiePoint(labels=0.3, rest=Unlabeled.OWN_MODEL), "labels by machine", "30% labeled, rest by their own model"),
        (LiePoint(labels=1.25), "more labels", "labels × 1.25"),
        (LiePoint(batch=0.25), "other batch", "batch × 0.25"),
        (LiePoint(scale=2.0, last_scale=0.5), "scaled report", "report × 2 to 0.5"),
        (LiePoint(report=ReportKind.ECHO, scale=2.5, noise=0.5).canonical(), "fabricated report",
         "echo × 2.5 with noise × 0.5"),
        (LiePoint(report=ReportKind.GARBAGE, scale=0.1).canonical(), "fabricated report", "garbage × 0.1"),
        (LiePoint(report=ReportKind.LAST_BIT).canonical(), "fabricated report", "last bit"),
        (ABSENCE, "fabricated report", "sends nothing"),
    ],
)  # fmt: skip
def test_words_and_kinds(point, kind, words):
    assert (point.kind, point.words) == (kind, words)
    assert set(WORDS_OF_REST) == set(Unlabeled)


def test_lies_that_do_the_same_are_the_same_point():
    """Without labels nothing can be derived from labels; who does not compute has no batch and no labels."""
    nothing = LiePoint(labels=0.0, rest=Unlabeled.DRAWN)
    for rest in (Unlabeled.LEFT_OUT, Unlabeled.NEAREST, Unlabeled.OWN_MODEL):
        assert replace(nothing, rest=rest).canonical() == nothing
    assert LiePoint(labels=1.2, rest=Unlabeled.NEAREST).canonical() == LiePoint(labels=1.2)
    echo = LiePoint(0.7, Unlabeled.NEAREST, 0.2, ReportKind.ECHO, 2.0, 0.1, 0.5).canonical()
    assert echo == LiePoint(0.0, Unlabeled.DRAWN, 0.0, ReportKind.ECHO, 2.0, 2.0, 0.5)
    assert LiePoint(noise=1.0).canonical() == TRUTH


def test_the_behaviours_of_fabricated_reports():
    def made(**fields):
        return LiePoint(**fields).canonical().behaviour(40.0, 200.0)

    assert made(report=ReportKind.ECHO, scale=2.0, noise=0.5).fabricate == Echo(2.0, 0.5)
    assert made(report=ReportKind.GARBAGE, scale=0.3).fabricate == Garbage(0.3)
    assert made(report=ReportKind.LAST_BIT).fabricate == LastBit()
    assert made(report=ReportKind.NOTHING).reports_nothing
    falling = made(scale=1.0, last_scale=0.25)
    assert (falling.report_scale, falling.last_report_scale) == (1.0, 0.25)
    assert made(scale=0.5, last_scale=0.5).last_report_scale is None


def test_the_limits_of_a_job():
    space = LieSpace.of_job(np.array([10.0, 40.0]), np.array([200, 100]), 7.0)
    assert space == LieSpace((1 / 40, 20.0), MOST_LABELS)
    points = space.draw(np.random.default_rng(3), 200)
    assert len(set(points)) == 200
    assert TRUTH not in points
    assert all(math.isfinite(value) for point in points for value in vars(point).values() if isinstance(value, float))
