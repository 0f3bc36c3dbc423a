"""The study of sizes: laws, federations, contracts on the loss model, and `truthfl study size` end to end."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told, truthfl
from helpers.texts import asks_for_nothing
from truthfl import LossModel, Training, best_deviation
from truthfl.cli.reproduce import size as size_command
from truthfl.errors import InputError
from truthfl.studies.size.design import cut, lies, pool_size, size_design
from truthfl.studies.size.findings import (
    FittedLoss,
    PilotLevel,
    SizeRuns,
    equal_clients,
    fit_power_law,
    joint_level,
    lceme_for,
    worth_estimate,
)
from truthfl.studies.size.study import WORTH, study_sizes

SIZES = (3, 10, 30, 100, 300, 1000, 3000)


def test_a_law_is_found_in_noise_and_its_interval_covers_it():
    covered = 0
    for seed in range(12):
        noise = np.random.default_rng(seed).standard_normal((len(SIZES), 24))
        values = 70.0 * np.array(SIZES)[:, None] ** -0.8 * (1.0 + 0.4 * noise)
        law = fit_power_law(SIZES, 24, lambda draws, values=values: values[:, draws].mean(axis=-1).T)
        assert law.exponent == pytest.approx(-0.8, abs=0.1)
        assert law.factor == pytest.approx(70.0, rel=0.35)
        covered += law.low <= -0.8 <= law.high
    assert covered >= 9


def test_a_law_without_noise_is_exact_and_values_below_zero_do_not_spoil_one():
    exact = fit_power_law(SIZES, 5, lambda draws: np.tile(3.0 * np.array(SIZES) ** 1.25, (len(draws), 1)))
    assert (exact.factor, exact.exponent, exact.low, exact.high) == pytest.approx((3.0, 1.25, 1.25, 1.25), abs=1e-4)
    assert exact.at(np.array([10.0])) == pytest.approx(3.0 * 10**1.25, rel=1e-3)
    values = 1000.0 / np.array(SIZES)[:, None] + np.random.default_rng(1).standard_normal((len(SIZES), 30))
    assert (values[-1] < 0).any()  # what is not resolved may come out negative
    law = fit_power_law(SIZES, 30, lambda draws: values[:, draws].mean(axis=-1).T)
    assert law.exponent == pytest.approx(-1.0, abs=0.02)
    others = fit_power_law(SIZES, 5, lambda draws: np.tile(7.0 / (np.array(SIZES) - 1.0), (len(draws), 1)), offset=1.0)
    assert others.words == "(n − 1)^−1.00 [−1.00, −1.00]"
    assert fit_power_law(SIZES[:2], 30, lambda draws: values[:2, draws].mean(axis=-1).T) is None


def test_federations_of_all_sizes_have_the_same_samples_and_nobody_the_same():
    design = size_design(quick=True)
    setting = design.settings() | {"step_size": 0.5, "draw": 2}
    pictures = []
    for size in design.sizes:
        here = cut(**setting, size=size)
        rows = here.federated.partition.rows
        assert len(set(rows.tolist())) == len(rows) == design.total_labels
        assert not set(here.split.further[0].tolist()) & set(rows.tolist())
        assert here.federated.partition.sizes.tolist() == [design.labels_each(size)] * size
        assert here.batches.sum() * here.federated.participation[0] == pytest.approx(design.batch_of_all)
        pictures.append(here.federated.data.features[rows])
    assert all((each == pictures[0]).all() for each in pictures[1:])
    other = cut(**setting | {"draw": 3}, size=10)
    assert (other.federated.data.features[:300] != pictures[0]).any()


@given(st.integers(1, 2000))
def test_lies_are_of_whole_labels(labels):
    points = lies(labels)
    made = np.array([point.labels * labels for point in points])
    assert made == pytest.approx(np.rint(made), abs=1e-9)
    assert points[0].words == "the truth"
    assert len(set(points)) == len(points)


@given(st.integers(2, 10**6), st.floats(1.0, 1e4), st.floats(0.1, 10.0))
def test_worth_on_the_loss_model_is_the_loss_without_the_client_less_that_with_them(size, curve, noise):
    design, fitted = size_design(), FittedLoss(noise, 1.0, curve, 0.0)

    def loss(share):
        return curve / (design.total_labels * share) + noise / (design.batch_of_all * share)

    by_hand = design.money.loss_value * (loss(1.0 - 1.0 / size) - loss(1.0))
    assert fitted.worth(size, design) == pytest.approx(by_hand, rel=1e-6)


def test_lceme_on_the_loss_model_is_truthful_at_every_size_and_its_margin_does_not_shrink():
    design = size_design()
    fitted, level, training = FittedLoss(1.6, 1.4, 90.0, 5.0), PilotLevel(0.39, 0.01), Training(100, 1, 0.5)
    margins, shares = [], []
    for size in SIZES[:6]:
        clients = equal_clients(design, size)
        contract = lceme_for(design, size, clients, training, fitted, level)
        batch, q = design.batch_each(size), design.participation(size)
        model = LossModel(
            constant=0.1,
            sampling=np.full(size, fitted.batch_noise / size**2 / q),
            labeling=np.full(size, fitted.random_labels / size),
            reporting=np.full(size, 0.1 / size),
        )
        if batch > 1:  # a batch below 1 cannot be had, but the formula would ask for it
            assert best_deviation(contract, clients, model, training).gain.max() <= 1e-6
        cost = float(clients.labeling_cost[0] + training.rounds * q * clients.sample_cost[0] * batch)
        honest = float(contract.reward(level.mean)[0])
        margins.append(honest - cost)
        shares.append(honest / cost - 1.0)
    assert margins == pytest.approx([margins[0]] * len(margins), rel=1e-9)
    assert np.array(shares) / np.array(SIZES[:6]) == pytest.approx(shares[0] / 3, rel=1e-9)


def test_spread_counts_overlapping_draws_and_the_draws_of_the_test():
    design = size_design()
    level = joint_level(design, [0.4, 0.42, 0.38], 0.6, 4000)
    between = 0.0004 / (1 - 0.75) * (1 + 1 / 3)
    assert (level.mean, level.spread) == pytest.approx((0.4, np.sqrt(between + 0.6 / 10_000)))


def test_worth_is_measured_by_what_leaving_one_out_does():
    runs = [
        {"loss": np.array(0.4), "without": np.array([0.41, 0.43]), "loss_variance": np.array(0.5)},
        {"loss": np.array(0.5), "without": np.array([0.51, 0.51]), "loss_variance": np.array(0.5)},
    ]
    worth = worth_estimate(SizeRuns(size_design(), 10, runs, 4000), 1000.0)
    assert worth.value == pytest.approx(15.0)
    assert worth.low < 0 < worth.high  # two draws do not resolve it


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    return study_sizes(size_design(quick=True), folder, workers=1), folder


def test_the_quick_form_by_the_command_takes_what_was_done_and_says_the_same(quick):
    found, folder = quick
    done = truthfl("study", "size", "--quick", "--json", "--workers", 1, "--out", folder)
    assert done.returncode == 0, done.stderr
    told_findings = json.loads(done.stdout)
    assert found.tasks_done > 0
    assert told_findings["tasks_done"] == 0
    assert [each["worth"]["value"] for each in told_findings["sizes"]] == [each.worth.value for each in found.sizes]
    assert told_findings["laws"][WORTH]["exponent"] == found.laws[WORTH].exponent
    for each, told_one in zip(found.sizes, told_findings["sizes"], strict=True):
        assert each.lceme.regret.low <= each.lceme.regret.value <= each.lceme.regret.high
        assert told_one["lceme"]["best_lie"] == each.lceme.best_lie
        assert (each.audition is None) == bool(each.no_audition) == (told_one["audition"] is None)
    assert found.sizes[-1].audition is None  # one label each
    assert "fewer" in found.sizes[-1].no_audition
    page = (folder / "report.html").read_text()
    asks_for_nothing(page)
    assert "not resolved" in page
    assert "How incentives scale" in page
    assert (folder / "sizes.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "sizes.csv").read_text().count("\n") == 1 + len(found.sizes)
    assert "last bit" in (folder / "lies.csv").read_text()


def test_what_was_lost_is_done_again_with_the_same_result(quick):
    found, folder = quick
    lost = sorted((folder / "tasks").iterdir(), key=lambda path: path.stat().st_mtime)[-1]
    lost.unlink()
    again = study_sizes(size_design(quick=True), folder, workers=1)
    assert again.tasks_done == 1
    assert replace(again, tasks_done=found.tasks_done) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers is 0; it must be at least 1."),
        ({"seed": -1}, "seed is -1; it must be 0 or more."),
        (
            {"data": Path("nowhere")},
            "data is 'nowhere', which is no folder; name the one with the four files of MNIST.",
        ),
    ],
)
def test_bad_input_gets_one_sentence(options, words):
    assert told(size_command, **options) == words


def test_too_few_samples_and_uneven_parts_are_refused():
    design = size_design()
    small = replace(design.data, source="digits", test_samples=300)
    with pytest.raises(InputError, match=r"digits has 1,496 samples beside the test set; 3,000 labels .* need 3,600"):
        pool_size(small, design.total_labels)
    with pytest.raises(InputError, match="do not divide evenly among 7 clients"):
        replace(design, sizes=(7,))
