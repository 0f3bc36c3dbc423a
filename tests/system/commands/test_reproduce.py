"""`truthfl reproduce` end to end, on small digits in MNIST's file format: files, claims, resuming, refusals."""

import csv
import json
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import told, truthfl
from helpers.texts import asks_for_nothing
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.federations import Data, ModelChoice
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.reporting.report import how_made
from truthfl.studies.cells import FederationSpec
from truthfl.studies.reproduce import figure_6, figure_7, reproduction
from truthfl.studies.reproduce import reproduction as pilot
from truthfl.studies.reproduce.claims import DOES_NOT_HOLD, UNDECIDED
from truthfl.studies.reproduce.paper import Paper, full_paper, quick_paper
from truthfl.studies.reproduce.reproduction import STUDIES, chosen_studies, write_reproduction
from truthfl.studies.work import Store

PLACE = FederationSpec(Data(source="digits", pilot_samples=600, test_samples=300), ModelChoice("softmax"), (60,) * 4)
TINY = Paper(
    PLACE,
    seeds=3,
    rounds=20,
    batch_size=10,
    batch_sizes=(2, 10),
    other_batch_size=5,
    idle_clients=(1,),
    scaling_clients=1,
    report_scales=(0.0, 2.0),
    assigned=12,
    own_batch_sizes=(4, 12),
    moments=(10, 20),
    cost_ratios=(0.5, 1.0, 1.0, 2.0),
    mean_optimum=8.0,
    too_large=40,
    labeling_cost=1e-3,
    pilot=PilotDesign(seeds=2, honest_seeds=2, batch_sizes=(2, 5, 20, 40), lie_batch_size=10, step_range=(0.05, 0.5)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small digits, written as MNIST is: often enough that pilot and clients have their share."""
    made = tmp_path_factory.mktemp("digits")
    digits = small_digits()
    for part, rows in (("train", np.arange(3600) % 1500), ("t10k", np.arange(1500, 1797))):
        images, labels = digits.images[rows, :, :, 0], digits.labels[rows].astype(np.uint8)
        for name, shape, content in (("images-idx3", images.shape, images), ("labels-idx1", labels.shape, labels)):
            head = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
            (made / f"{part}-{name}-ubyte").write_bytes(head + content.tobytes())
    return made


def command(*arguments):
    return [sys.executable, "-m", "truthfl", "reproduce", *map(str, arguments)]


def run(*arguments):
    return truthfl("reproduce", *arguments)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("tasks"))
    return reproduction.reproduce(TINY, chosen_studies([]), store, workers=1), store


def test_every_figure_and_every_study_has_claims(tiny):
    found, _ = tiny
    assert [figure.number for figure in found.figures] == [2, 3, 4, 5, 6, 7]
    assert {claim.figure for claim in found.claims} == set(STUDIES)
    for figure in found.figures:
        for panel in figure.panels:
            assert all(np.isfinite(line.mean).all() for line in panel.series)
            assert "(" in panel.y_label, "a unit"
    assert found.tasks_done > 50


def test_nothing_is_done_twice(tiny):
    found, store = tiny
    told_of = []
    again = reproduction.reproduce(
        TINY, chosen_studies([]), store, workers=1, progress=lambda *what: told_of.append(what)
    )
    assert again.tasks_done == 0
    assert again.figures == found.figures
    assert again.claims == found.claims
    assert all(done == number for _, done, number in told_of)


def test_figure_6_pays_by_the_contract(tiny):
    """Client 1's honest payoff on the model at D' is their margin; the best of all honest batches is near D'."""
    found, store = tiny
    work = reproduction.StagedTasks(store, 1, lambda *_: None)
    pilot_result = reproduction._run_pilot(TINY, chosen_studies([]), work)
    contract, clients = figure_6.contract_of(TINY, pilot_result)
    bare = contract.reward(pilot_result.calibration[20].model.truthful_loss(contract.batch_size))
    cost = clients.labeling_cost + 20 * clients.sample_cost * contract.batch_size
    margin = figure_6.margin_of(TINY, pilot_result, contract)
    assert np.allclose(bare - cost, margin)
    honest = next(line for line in found.figures[4].panels[0].series if line.name == "honest")
    assert honest.x[int(np.argmax(honest.mean))] == 12
    assert np.isclose(max(honest.mean), margin[0])


def test_figure_7_shares_the_same_total(tiny):
    _, store = tiny
    pilot_result = reproduction._run_pilot(
        TINY, chosen_studies(["7"]), reproduction.StagedTasks(store, 1, lambda *_: None)
    )
    held = figure_7.make_market(TINY, pilot_result)
    for rounds in TINY.moments:
        best, equal = held.batch_sizes[figure_7.BEST, rounds], held.batch_sizes[figure_7.EQUAL, rounds]
        assert best.sum() == equal.sum()
        assert np.ptp(equal) <= 1
        assert best[0] > best[3]
    best = held.batch_sizes[figure_7.BEST, 20]
    assert abs(best.mean() - TINY.mean_optimum) < 1
    model = {how: figure_7.on_model(TINY, pilot_result, held, how) for how in (figure_7.BEST, figure_7.EQUAL)}
    assert (model[figure_7.BEST] >= model[figure_7.EQUAL]).all()


def test_the_search_is_for_all_rounds_and_three_digits_are_kept():
    assert pilot.search_task(TINY).settings["rounds"] == TINY.rounds
    tried = np.geomspace(0.05, 0.5, 9)
    loss, error = np.square(np.log(tried / 0.123456)), np.full(9, 1e-3)
    found = {"best": tried[4], "tried": tried, "loss": loss, "error": error}
    assert pilot.step_size_of(found) == 0.123  # where the parabola is lowest, as in a plan, not the best of those tried


def test_settings_that_do_not_fit_are_refused():
    assert "at least 2" in told(full_paper, "mnist", 1)
    assert "multiples of 10" in told(replace, TINY, moments=(5, 20))
    assert "figure '8' is not known; there are: 2, 3" in told(chosen_studies, ["8"])


def test_quick_and_full_differ_only_in_size():
    assert full_paper().federation == quick_paper().federation
    assert full_paper().seeds == 20


def test_command_writes_everything_and_is_instant_the_second_time(folder, tmp_path):
    out = tmp_path / "out"
    asked = ("2", "3", "5", "--quick", "--seeds", 2, "--data", folder, "--out", out, "--workers", 2)
    first = run(*asked)
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert max(map(len, first.stdout.splitlines())) <= 100
    assert str(out / "report.html") in first.stdout.replace("\n", "")
    made = {path.name for path in out.iterdir()}
    pictures = {f"figure-{n}.{kind}" for n in (2, 3, 5) for kind in ("png", "svg", "csv")}
    assert made == {*pictures, "claims.csv", "report.html", "tasks"}
    second = run(*asked, "--json")
    said = json.loads(second.stdout)
    assert said["tasks_done"] == 0
    rows = list(csv.DictReader((out / "claims.csv").read_text().splitlines()))
    assert [row["claimed"] for row in rows] == [claim["claimed"] for claim in said["claims"]]
    assert {claim["figure"] for claim in said["claims"]} == {"2", "3", "5"}


def test_the_report_holds_all_figures_and_claims(tiny, tmp_path):
    found = replace(tiny[0], figures=tiny[0].figures[::4])
    made = how_made(version="0", command="c", seeds="s", engine="e", seconds=1)
    read = asks_for_nothing(write_reproduction(found, tmp_path, made).read_text())
    assert read.tags.count("svg") == sum(len(figure.panels) for figure in found.figures)
    text = "".join(read.texts)
    assert all(figure.caption in text for figure in found.figures)
    assert all(claim.obtained in text for claim in found.claims)
    assert all(claim.reason for claim in found.claims if claim.verdict == DOES_NOT_HOLD)


def test_without_a_price_of_work_there_is_no_contract_and_the_rest_is_made(tiny, monkeypatch):
    _, store = tiny
    monkeypatch.setattr(pilot, "has_work_prices", lambda _: False)
    found = reproduction.reproduce(TINY, chosen_studies(["2", "6"]), store, workers=1)
    assert [figure.number for figure in found.figures] == [2]
    assert found.claims[-1].verdict == UNDECIDED
    assert "no contract" in found.claims[-1].obtained


def test_interrupted_it_leaves_one_line_and_goes_on_later(folder, tmp_path):
    asked = ("2", "--quick", "--seeds", 50, "--data", folder, "--out", tmp_path, "--workers", 2)
    running = subprocess.Popen(command(*asked), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("tasks/*.npz"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert errors.count("\n") == 1
    assert "interrupted" in errors
    kept = len(list(tmp_path.glob("tasks/*.npz")))
    assert 4 <= kept < 26
    done = run(*asked, "--json")
    assert json.loads(done.stdout)["tasks_done"] == 26 - kept


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the processes")
def test_killed_it_leaves_no_process_behind(folder, tmp_path):
    asked = ("2", "--quick", "--seeds", 50, "--data", folder, "--out", tmp_path, "--workers", 2)
    running = subprocess.Popen(command(*asked), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("tasks/*.npz"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) >= 2
    running.kill()
    running.wait()
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, children))


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["8"], "figure '8' is not known"),
        (["--seeds", "1"], "at least 2"),
        (["--workers", "0"], "workers is 0"),
        (["--data", "nowhere"], "no folder"),
        (["--data", "."], "."),
        (["--out", "/proc/none"], "cannot be written to"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said, tmp_path):
    asked = arguments if "--out" in arguments else [*arguments, "--out", str(tmp_path / "out")]
    done = truthfl("reproduce", *asked)
    assert done.returncode == (3 if "--out" in arguments else 2)
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert done.stderr.startswith("truthfl: ")
