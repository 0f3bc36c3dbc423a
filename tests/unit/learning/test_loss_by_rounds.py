"""What training that ends early does to the expected loss."""

from itertools import pairwise

import numpy as np
import pytest

from helpers.commands import told
from helpers.small_jobs import DIGITS, MODELS
from truthfl import Training
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.pilot.runs import measure_loss_by_rounds
from truthfl.ledger.terms import loss_rise, require_sound_loss_by_rounds


@pytest.mark.parametrize(("changed", "rise"), [(0, 2.0), (5, 1.25), (10, 0.5), (15, 0.25), (20, 0.0), (30, 0.0)])
def test_the_rise_is_on_straight_lines_between_the_shares_of_rounds(changed, rise):
    assert loss_rise((2.0, 0.5, 0.0), 20, changed) == pytest.approx(rise)


def test_without_losses_or_rounds_there_is_no_rise():
    assert loss_rise((), 20, 3) == 0.0
    assert loss_rise((2.0, 0.0), 0, 0) == 0.0


@pytest.mark.parametrize(
    "values", [[1.0], [1.0, 0.5], [-1.0, 0.0], [float("nan"), 0.0], ["1", 0.0], "10", 3, [0.0] * 1001]
)
def test_losses_that_are_none_are_refused(values):
    assert "loss_by_rounds" in told(require_sound_loss_by_rounds, values)


@pytest.mark.parametrize(("rounds", "steps"), [(1, 1), (7, 7), (45, 20)])
def test_the_measured_losses_fall_to_those_of_all_rounds(rounds, steps):
    federated = Federated(MODELS[0], DIGITS, iid_partition(400, (40,) * 3, seed=3), Training(rounds, 1, 0.3))
    losses = measure_loss_by_rounds(federated, DIGITS.take(np.arange(1000, 1400)), np.full(3, 20.0))
    assert len(losses) == steps + 1
    assert losses[-1] == 0.0
    assert losses[0] > 0
    assert all(before >= after for before, after in pairwise(losses))
