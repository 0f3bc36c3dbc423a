"""The bound of a report's length: what honest work keeps, and what one client can do below it and above it."""

import numpy as np
import pytest

from helpers.auditions import Plans, Setting
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.contracts.audition.planning import LEVEL_SEED, honest_jobs
from truthfl.contracts.audition.rounds import LEVEL_DRAWS, draw_jobs
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.pilot.honest_rounds import (
    EXCEEDED,
    honest_lengths,
    largest_from_half,
    longest_honest,
    moments_of,
)
from truthfl.ledger.terms import bound_of_round

ROUNDS = 12


@pytest.fixture(scope="module")
def plans():
    return Plans()


def attacker(make):
    """A client who labels and computes honestly, but reports make(common model, honest report, number of the round)."""
    rounds = []

    def fabricate(received, _, honest):
        rounds.append(None)
        return make(received[-1], honest(), len(rounds)).astype(np.float32)

    return Behaviour("attacker", "Reports anything.", True, True, reports_honestly=False, fabricate=fabricate)


def test_fresh_honest_rounds_keep_within_the_fitted_lengths(tmp_path, plans):
    """The one in a hundred and one in a thousand points hold in each round of jobs that the fit has not seen; no report
    is beyond the bound of its round, which is not far from what is honest in that round."""
    job = Setting(tmp_path, plans).job
    plan = plans(job, job.server_side())

    def measured(first_seed, draws):
        labels = plan.contract.labels.astype(int)
        drawn = draw_jobs(plan.side, labels, plan.recipe, draws, first_seed)
        return honest_lengths(honest_jobs(drawn, plan.details.how))

    lengths, fresh = measured(100, 10), measured(500, 40)
    for share in (1e-2, 1e-3):
        beyond = (fresh > longest_honest(lengths, share)[:, None]).mean(axis=1).max()
        assert beyond < 3 * share + 3 / fresh.shape[1]
    moments = moments_of(plan.training.rounds)
    bounds = np.array([bound_of_round(plan.report_bounds, int(moment)) for moment in moments])
    assert (fresh.max(axis=1) < bounds).all()
    assert (bounds < 10 * np.median(fresh, axis=1)).all()
    in_plan = longest_honest(measured(LEVEL_SEED, LEVEL_DRAWS), EXCEEDED)
    assert bounds == pytest.approx(largest_from_half(moments, in_plan), rel=1e-3)


def test_a_bound_is_that_of_its_round_and_not_below_those_since_half_of_it():
    """Straight lines between the pairs, the last for all later rounds; none where there are no pairs."""
    bounds = ((0, 4.0), (2, 2.0), (10, 1.0))
    found = [bound_of_round(bounds, changed) for changed in (0, 1, 2, 6, 10, 500)]
    assert found == pytest.approx([4.0, 3.0, 2.0, 1.5, 1.0, 1.0])
    assert bound_of_round((), 7) == 0.0
    moments = np.array([0, 2, 4, 12])
    assert largest_from_half(moments, np.array([1.0, 9.0, 5.0, 1.0])) == pytest.approx([1.0, 9.0, 9.0, 4.0])


def test_reports_that_are_nearly_empty_do_not_make_the_bound_long():
    """Samples that are learned already: lengths over many decades below the usual one, none above it."""
    lengths = np.exp(-3.0 * np.random.default_rng(0).exponential(size=(4, 40)) ** 2)
    bounds = longest_honest(lengths, EXCEEDED)
    assert (lengths.max(axis=1) < bounds).all()
    assert bounds.max() <= 10 * lengths.max()


ATTACKS = {
    "Ben": lambda common, *_: np.full_like(common, 1e6),
    "Cleo": lambda common, honest, _: common - 100 * (honest - common),
    "Dora": lambda common, honest, round_: honest if round_ < ROUNDS else np.full_like(common, 1e6),
}


def test_reports_beyond_the_bound_are_refused_and_honest_work_is_paid(tmp_path, plans):
    """1e6 in every round, a hundred times the flipped change, and 1e6 in the last round only."""
    setting = Setting(tmp_path, plans, ["truthful", *map(attacker, ATTACKS.values())])
    view = setting.go()
    terms = view.agreement.terms
    for name, rounds in (("Ben", ROUNDS), ("Cleo", ROUNDS), ("Dora", 1)):
        refused = [entry.document for entry in view.rejections if entry.document["client"] == name]
        assert len(refused) == rounds
        for one in refused:
            bound = terms.bound_of_round(one["round"] - 1)
            assert f"honest ones are beyond {bound:.3g} once in a million" in one["reason"]
    assert view.delivered == {"Ada": ROUNDS, "Dora": ROUNDS - 1}
    assert view.settlements["Ada"].document["pay"] > view.agreement.offers[0].cost
