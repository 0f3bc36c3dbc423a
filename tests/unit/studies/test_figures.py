"""Figures as data, as CSV and as pictures: three forms of the same numbers."""

import csv
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from helpers.commands import told
from helpers.small_jobs import small_job_file
from truthfl.adversary.strategy import KINDS
from truthfl.reporting.figure import Figure, Panel, Series, exact_series, figure_csv, mean_interval, series
from truthfl.reporting.plots import INK, STYLES, figure_pictures, page_svg, panel_svg
from truthfl.reporting.report import STYLE
from truthfl.studies.size.report import drawn as size_picture
from truthfl.studies.verify.report import drawn as verification_picture

SVG = "{http://www.w3.org/2000/svg}"
SAMPLES = hnp.arrays(float, st.tuples(st.integers(2, 12), st.integers(1, 5)), elements=st.floats(-1e6, 1e6))


def a_figure():
    draws = np.random.default_rng(0).normal(size=(8, 4))
    lines = tuple(series(f"γ = {k} & <b>", [10, 20, 30, 40], draws + k) for k in range(3))
    model = exact_series("model", [10, 40], [0.5, 0.25])
    return Figure(
        4,
        "A title",
        "What was run.",
        (
            Panel("First, with a comma", "round", "loss (nats)", lines, level=0.0, mark_x=20.0),
            Panel("Second", "rounds T", "payoff (money)", (model,)),
        ),
    )


@given(SAMPLES)
def test_the_interval_is_students(samples):
    mean, low, high = mean_interval(samples)
    spread = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.allclose(mean, samples.mean(axis=0))
    assert (low <= mean).all()
    assert (mean <= high).all()
    uneven = spread > 1e-9 * (1 + np.abs(mean))
    expected = stats.t.interval(0.95, len(samples) - 1, mean[uneven], spread[uneven])
    assert np.allclose((low[uneven], high[uneven]), expected)


def test_one_seed_has_no_interval():
    assert "at least 2" in told(mean_interval, [[1.0]])


def test_a_diverged_run_leaves_the_interval_open():
    mean, low, high = mean_interval([1.0, np.inf, 2.0])
    assert (mean, low, high) == (np.inf, -np.inf, np.inf)


@given(SAMPLES)
def test_csv_holds_every_number_in_full(samples):
    line = series("a, line", np.arange(samples.shape[1]), samples)
    rows = list(csv.DictReader(io.StringIO(figure_csv(Figure(2, "", "", (Panel("p", "x", "y", (line,)),))))))
    assert [float(row["mean"]) for row in rows] == list(line.mean)
    assert [float(row["low"]) for row in rows] == list(line.low)
    assert [float(row["high"]) for row in rows] == list(line.high)
    assert {row["series"] for row in rows} == {"a, line"}


def test_series_parts_belong_together():
    assert "differ in length" in told(Series, "s", (1.0, 2.0), (1.0,), (1.0,), (1.0,))


def test_the_picture_shows_every_panel_and_line():
    figure = a_figure()
    png, svg = figure_pictures(figure)
    assert png.startswith(b"\x89PNG")
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    for panel in figure.panels:
        root = ET.fromstring(panel_svg(panel, "p"))
        texts = {"".join(node.itertext()) for node in root.iter(f"{SVG}text")}
        assert {panel.title, panel.x_label, panel.y_label, *(line.name for line in panel.series)} <= texts


def test_the_plotted_points_are_those_of_the_csv():
    """The y of a line's markers is a straight function of its means."""
    panel = a_figure().panels[0]
    root = ET.fromstring(panel_svg(panel, "p"))
    uses = [(float(u.get("x")), float(u.get("y"))) for g in root.iter(f"{SVG}g") for u in g.findall(f"{SVG}use")]
    line = panel.series[0]
    slopes = []
    for other in panel.series:
        drawn = [uses[k : k + 4] for k in range(len(uses) - 3)]
        fits = [
            np.polyfit(other.mean, [y for _, y in four], 1, full=True)
            for four in drawn
            if np.all(np.diff([x for x, _ in four]) > 0)
        ]
        best = min(fits, key=lambda fit: fit[1][0] if len(fit[1]) else np.inf)
        assert best[1][0] < 1e-6
        slopes.append(best[0][0])
    assert np.ptp(slopes) < 1e-4
    assert slopes[0] < 0, line.name


def test_a_panel_in_a_page_takes_the_colours_of_the_page():
    text = panel_svg(a_figure().panels[0], "f4p0")
    assert text.startswith("<svg")
    assert INK not in text
    assert "currentColor" in text
    assert "<metadata" not in text
    assert "#ffffff" not in text.lower()
    ids = [node.get("id") for node in ET.fromstring(text).iter() if node.get("id")]
    assert len(ids) == len(set(ids))
    assert all(name.startswith("f4p0-") for name in ids)


def a_verification_picture():
    """Of all kinds of lies."""
    lies = [SimpleNamespace(kind=kind, gain=0.1, low=0.0, high=0.2) for kind in KINDS]
    verdicts = [SimpleNamespace(rule=rule, pay_over_cost=1.2, by_kind=lies) for rule in ("audition", "flat")]
    return page_svg(verification_picture(verdicts, INK, narrow=True), "v")


def a_size_picture():
    of_rule = SimpleNamespace(
        spread_over_cost=1.0, pay_over_cost=2.0, gain_over_cost=SimpleNamespace(value=0.1, low=0, high=0.2)
    )
    worth = SimpleNamespace(value=9.0, low=8.0, high=10.0)
    sizes = [SimpleNamespace(clients=n, worth=worth, cost=5.0, lceme=of_rule, audition=of_rule) for n in (3, 10)]
    return page_svg(size_picture(SimpleNamespace(sizes=sizes, laws={}), INK, narrow=True), "s")


def luminance(colour):
    shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (share / 12.92 if share <= 0.04 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("picture", ["panel", "verification", "sizes"])
def test_all_that_is_drawn_in_a_page_is_visible_on_light_and_on_dark(picture):
    lines = tuple(series(f"line {k}", [1, 2], np.ones((3, 2)) + k) for k in range(len(STYLES)))
    made = {
        "panel": lambda: panel_svg(Panel("All styles", "x", "y", lines), "p"),
        "verification": a_verification_picture,
        "sizes": a_size_picture,
    }
    text = made[picture]()
    drawn = re.sub(r"clip-path[^;\"]*", "", text).lower()
    assert "black" not in drawn
    assert "white" not in drawn
    colours = set(re.findall("#[0-9a-f]{6}", drawn))
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", STYLE)
    assert len(papers) == 2
    for paper in papers:
        for colour in colours:
            low, high = sorted((luminance(paper), luminance(colour)))
            assert (high + 0.05) / (low + 0.05) > 2, (colour, paper)
    assert drawn.count("currentcolor") > 10


def test_pictures_are_the_same_every_time():
    assert figure_pictures(a_figure()) == figure_pictures(a_figure())


def test_infinite_values_leave_a_gap_and_not_an_error():
    line = Series("s", (1.0, 2.0, 3.0), (1.0, float("inf"), 2.0), (0.5, float("-inf"), 1.5), (1.5, float("inf"), 2.5))
    png, _ = figure_pictures(Figure(2, "", "", (Panel("p", "x", "y", (line,)),)))
    assert png.startswith(b"\x89PNG")


@pytest.mark.parametrize("log_y", [False, True])
def test_a_line_that_stays_where_it_is_is_drawn_without_a_warning(log_y):
    png, _ = figure_pictures(
        Figure(2, "", "", (Panel("p", "x", "y", (exact_series("s", (1, 2), (2.3, 2.3)),), log_y=log_y),))
    )
    assert png.startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["--help", "plan"])
def test_other_commands_do_not_wait_for_matplotlib(command, tmp_path):
    code = (
        "import sys; sys.argv[0] = 'truthfl'\nfrom truthfl.cli.app import main\n"
        "try: main()\nexcept SystemExit: pass\nprint('matplotlib' in sys.modules)"
    )
    words = [command, small_job_file(tmp_path)] if command == "plan" else [command]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
