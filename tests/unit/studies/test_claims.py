"""Verdicts: by the interval of paired differences, and by the comparison that speaks for a claim least."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.reporting.figure import mean_interval
from truthfl.studies.reproduce.claims import (
    DOES_NOT_HOLD,
    HOLDS,
    UNDECIDED,
    Comparison,
    claims_csv,
    comparison,
    computed_claim,
    format_number,
    sampled_claim,
    verdict,
)
from truthfl.studies.reproduce.text_claims import computed

FEW = st.lists(st.floats(-10, 10), min_size=5, max_size=5)


def claim(*differences, reason=""):
    comparisons = [Comparison(f"case {k}", np.array(d, dtype=float)) for k, d in enumerate(differences)]
    return sampled_claim("2", "It rises.", "more by", comparisons, reason=reason, doubt="It is near 0.")


@pytest.mark.parametrize(
    ("low", "high", "said"), [(1, 2, HOLDS), (-2, -1, DOES_NOT_HOLD), (-1, 1, UNDECIDED), (0, 1, UNDECIDED)]
)
def test_verdict(low, high, said):
    assert verdict(low, high) == said


def test_the_weakest_comparison_decides():
    strong, weak, against = [5, 6, 5, 6], [-1, 1, -1, 1.5], [-4, -5, -4, -5]
    assert claim(strong).verdict == HOLDS
    assert claim(strong, weak).verdict == UNDECIDED
    found = claim(strong, against, weak, reason="It cannot.")
    assert found.verdict == DOES_NOT_HOLD
    assert "case 1, the weakest of 3" in found.obtained
    assert found.reason == "It cannot."
    assert found.estimate == -4.5


@given(st.lists(FEW, min_size=1, max_size=4))
def test_a_claim_holds_only_if_each_part_does(parts):
    verdicts = [verdict(*map(float, mean_interval(part)[1:])) for part in parts]
    expected = DOES_NOT_HOLD if DOES_NOT_HOLD in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    assert claim(*parts).verdict == expected


@given(FEW, FEW, st.floats(-100, 100))
def test_what_all_runs_of_a_seed_have_in_common_drops_out(a, b, common):
    shift = common * np.arange(5)
    plain = comparison("", a, b).differences
    assert np.allclose(comparison("", a + shift, b + shift).differences, plain)


def test_undecided_says_so():
    assert claim([-1, 1, -1, 1.5], reason="No.").reason.endswith("4 seeds do not tell. It is near 0.")
    assert claim([1, 1.1, 1, 1.1]).reason == ""


def test_nothing_to_compare_is_refused():
    assert "nothing" in told(sampled_claim, "2", "It rises.", "by", [])


def test_csv_has_a_row_per_claim():
    rows = list(csv.DictReader(io.StringIO(claims_csv([claim([1, 2]), computed_claim("7", "So.", "1", holds=False)]))))
    assert [row["verdict"] for row in rows] == [UNDECIDED, DOES_NOT_HOLD]
    assert rows[1]["low"] == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.001234, "0.00123"), (-12345.6, "−12,346"), (0.0000123, "0.000012"), (12.3456, "12.3"), (0.0, "0")],
)
def test_numbers_are_short(value, said):
    assert format_number(value) == said


def test_the_texts_claims_about_formulas_hold_both_ways():
    rows = computed()
    assert len(rows) == 5
    assert {row.verdict for row in rows} == {HOLDS}


def test_diverged_trainings_leave_a_claim_undecided():
    found = sampled_claim("6", "It pays.", "by", [comparison("γ = 2", [1.0, -np.inf, 2.0], [0.0, -np.inf, -np.inf])])
    assert found.verdict == UNDECIDED
    assert found.low is None
    assert "inf" in found.obtained
