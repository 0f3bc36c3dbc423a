"""Step size and calibration: what is put in comes out again, and real runs are explained."""

import numpy as np
import pytest

from truthfl import InputError, LossModel, Strategies, Training
from truthfl.contracts.lceme.pilot import calibrate
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.constants import Gradients, measure_gradients
from truthfl.learning.pilot.runs import Pilot, PilotDesign, pilot_runs
from truthfl.learning.pilot.step_size import StepSearch, effect_of_scaled_reports, find_step_size

TRAIN, TEST = small_digits().split_off(400, seed=0)


@pytest.fixture(scope="module")
def federated():
    partition = paper_partition(TRAIN.labels, [150] * 10, seed=1)
    return Federated(SoftmaxRegression(64, 10, 1e-3), TRAIN, partition, Training(40, 1, 0.5))


def test_a_known_loss_model_is_found_again(federated):
    """Losses made by a loss model, with noise: each factor comes out within its stated error, the errors are honest."""
    gradients = Gradients(np.linspace(5.0, 9.0, 10), 30.0, 2.0)
    p = federated.weight
    true = np.array([0.4, 0.03, 0.006, 0.002])
    known = LossModel(
        constant=true[0],
        sampling=true[1] * p**2 * gradients.gradient_variance,
        labeling=true[2] * p * gradients.label_shift,
        reporting=true[3] * p * gradients.gradient_bound,
    )
    generator = np.random.default_rng(0)
    off = []
    for _ in range(40):
        played = Strategies(
            generator.integers(0, 2, (300, 10)),
            generator.integers(2, 60, (300, 10)),
            generator.uniform(0, 2, (300, 10)),
        )
        honest = np.arange(300)[:, None] < 100
        played = Strategies(
            np.where(honest, 1, played.labeling_effort),
            np.where(honest, 2.0 + 3.0 * (np.arange(300)[:, None] % 9), played.batch_size),
            np.where(honest, 1, played.report_scale),
        )
        loss = known.gap(played) + generator.normal(0, 0.003, 300)
        found = calibrate(federated, Pilot(played, loss), gradients)
        off.append((found.factor - true) / found.standard_error)
        assert found.r_squared > 0.9
        assert found.model.sampling == pytest.approx(found.factor[1] * p**2 * gradients.gradient_variance)
    assert 0.75 < np.sqrt(np.mean(np.square(off))) < 1.25


def test_real_training_is_explained(federated):
    design = PilotDesign(seeds=6, honest_seeds=6, batch_sizes=(3, 6, 12, 24, 48), lie_batch_size=20)
    runs = pilot_runs(federated, TEST, design)
    found = calibrate(federated, runs, measure_gradients(federated))
    assert found.sampling_r_squared > 0.9
    assert found.r_squared > 0.8
    assert (found.factor[:3] > 3 * found.standard_error[:3]).all()
    assert 0 < found.truthful_loss_error(np.full(10, 24.0)) < 0.02
    honest = Strategies.truthful(np.full(10, 24.0))
    seen = runs.loss[(runs.strategies.batch_size == 24).all(axis=1)].mean()
    assert float(found.model.expected_loss(honest)) == pytest.approx(seen, abs=0.03)


def test_a_run_that_diverged_calibrates_nothing(federated):
    played = Strategies.truthful(np.full((4, 10), 5.0))
    with pytest.raises(InputError, match="a pilot run ended with no finite loss"):
        calibrate(federated, Pilot(played, np.array([1.0, np.inf, 1.0, 1.0])), Gradients(np.ones(10), 1.0, 1.0))


def test_honest_runs_at_one_batch_size_fit_nothing(federated):
    played = Strategies.truthful(np.full((4, 10), 5.0))
    with pytest.raises(InputError, match="honest runs at fewer than three batch sizes"):
        calibrate(federated, Pilot(played, np.ones(4)), Gradients(np.ones(10), 1.0, 1.0))


def test_the_step_size_found_is_no_worse_than_any_tried(federated):
    found = find_step_size(federated, TEST, 30, low=1e-2, high=30.0, seeds=3)
    at_best = found.loss[found.tried == found.best][0]
    assert at_best == np.nanmin(found.loss)
    assert 1e-2 < found.best < 30.0
    assert (np.diff(found.tried) > 0).all()
    with pytest.raises(InputError, match="0 < low < high"):
        find_step_size(federated, TEST, 30, low=2.0, high=1.0)


def test_exaggeration_helps_while_the_step_is_small_and_not_at_the_best(federated):
    """The reason why the server tunes the step before it announces a contract."""
    small = effect_of_scaled_reports(federated, TEST, 30, step_size=0.1, report_scales=(0.0, 2.0), seeds=8)
    assert small.change[0] > 5 * small.standard_error[0]
    assert small.change[1] < -5 * small.standard_error[1]
    best = find_step_size(federated, TEST, 30, low=1e-2, high=30.0, seeds=3).best
    tuned = effect_of_scaled_reports(federated, TEST, 30, step_size=best, report_scales=(2.0,), seeds=8)
    assert tuned.change[0] > 0.25 * small.change[1]


def test_the_bottom_is_a_parabolas_and_stays_between_neighbours():
    tried = np.geomspace(0.1, 10.0, 9)
    loss = 0.3 + 0.02 * np.square(np.log(tried / 1.3))
    noise = np.random.default_rng(2).normal(0.0, 1e-4, 9)
    found = StepSearch(float(tried[np.argmin(loss)]), tried, loss + noise, np.full(9, 1e-4))
    assert found.parabola_minimum == pytest.approx(1.3, rel=0.03)
    falling = StepSearch(10.0, tried, -np.log(tried), np.full(9, 1e-4))
    assert tried[-2] <= falling.parabola_minimum <= 10.0
    few = StepSearch(0.1, tried, np.where(tried < 0.3, tried, np.inf), np.full(9, 1e-4))
    assert few.parabola_minimum == 0.1
