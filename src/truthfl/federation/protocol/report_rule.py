"""What the server does with reports, by a job's terms. Imports `learning.aggregation` and the ledger's `terms`."""

from __future__ import annotations

from truthfl.learning.aggregation import ReportRule
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.round_terms import masks_reports


def report_rule(terms: JobTerms, taking_part: int) -> ReportRule:
    """The rule of a job in which so many clients take part."""
    masks = masks_reports(terms.secure_aggregation, taking_part)
    return ReportRule(terms.aggregation, terms.report_bound, masks, terms.rescales)
