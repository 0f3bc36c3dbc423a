"""What the server does with reports, by a job's terms."""

from __future__ import annotations

from truthfl.learning.aggregation import MEAN, ReportRule
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.round_terms import OWN


def report_rule(terms: JobTerms, own: str = MEAN) -> ReportRule:
    """The rule of a job; `own` names the operator's own strategy, if it has one."""
    bounds = tuple(terms.bound_of_round(round_) for round_ in range(terms.rounds)) if terms.report_bounds else ()
    return ReportRule(known_aggregation(terms, own), bounds, terms.masked, terms.rescales)


def known_aggregation(terms: JobTerms, own: str) -> str:
    """How the reports of a job are combined; terms say "own" of a strategy, which only the operator can name."""
    return own if terms.aggregation == OWN else terms.aggregation
