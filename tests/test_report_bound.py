"""The bound of a report's length: what honest work keeps, and what one client can do below it and above it."""

import numpy as np
import pytest

from audition_jobs import Plans, Setting
from known_plans import known_plans  # noqa: F401
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.report_bound import EXCEEDED, fit_lengths, honest_lengths

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

    return Behaviour("attacker", "Reports what she likes.", True, True, reports_honestly=False, fabricate=fabricate)


def test_fresh_honest_rounds_keep_within_the_fitted_lengths(tmp_path, plans):
    """The one in a hundred and one in a thousand points hold on jobs that the fit has not seen; the bound is kept."""
    job = Setting(tmp_path, plans).job
    plan = plans(job, job.server_side())
    lengths = fit_lengths(honest_lengths(plan.side, plan.contract.batch_size, 100, 10))
    fresh = honest_lengths(plan.side, plan.contract.batch_size, 500, 40)
    assert fresh.max() < lengths.exceeded_by(EXCEEDED) < 10 * np.median(fresh)
    for share in (1e-2, 1e-3):
        beyond = (fresh > lengths.exceeded_by(share)).mean(axis=1).max()
        assert beyond < 3 * share + 3 / fresh.shape[1]
    assert plan.report_bound == pytest.approx(lengths.exceeded_by(EXCEEDED), rel=0.5)


def test_reports_that_are_nearly_empty_do_not_make_the_bound_long():
    """Samples that are learned already: lengths over many decades below the usual one, none above it."""
    lengths = np.exp(-3.0 * np.random.default_rng(0).exponential(size=(4, 40)) ** 2)
    assert lengths.max() < fit_lengths(lengths).exceeded_by(EXCEEDED) <= 10 * lengths.max()


ATTACKS = {
    "Ben": lambda common, *_: np.full_like(common, 1e6),
    "Cleo": lambda common, honest, _: common - 100 * (honest - common),
    "Dora": lambda common, honest, round_: honest if round_ < ROUNDS else np.full_like(common, 1e6),
}


def test_reports_beyond_the_bound_are_refused_and_honest_work_is_paid(tmp_path, plans):
    """1e6 in every round, a hundred times the flipped change, and 1e6 in the last round only."""
    setting = Setting(tmp_path, plans, ["truthful", *map(attacker, ATTACKS.values())])
    view = setting.go()
    told = f"honest ones are beyond {view.agreement.terms.report_bound:.3g} once in a million"
    for name, rounds in (("Ben", ROUNDS), ("Cleo", ROUNDS), ("Dora", 1)):
        refused = [entry.document["reason"] for entry in view.rejections if entry.document["client"] == name]
        assert len(refused) == rounds
        assert all("too long" in reason and told in reason for reason in refused)
    assert view.delivered == {"Ada": ROUNDS, "Dora": ROUNDS - 1}
    assert view.settlements["Ada"].document["pay"] > view.agreement.offers[0].cost
