"""Prints the plan of a job that is served, for the operator to approve.

Imports `output` and the protocol's `approval`.
"""

from __future__ import annotations

from truthfl.cli.output import console, table
from truthfl.federation.protocol.approval import PlanSummary

ROWS_SHOWN = 40
COLUMNS = ["client", "labels", "batch", "cost", "expected pay", "of cost", "most", "worth"]


def print_plan_summary(plan: PlanSummary) -> None:
    """A table of who is asked what for how much, and some sentences."""
    out, count = console(), len(plan.offers)
    rows = [
        [
            offer.client,
            f"{offer.labels:,}",
            f"{offer.batch_size:,}",
            f"{offer.cost:,.2f}",
            f"{offer.expected_pay:,.2f}",
            f"{offer.expected_pay / offer.cost:.2f}",
            f"{offer.most:,.2f}",
            "–" if offer.worth is None else f"{offer.worth:,.0f}",
        ]
        for offer in plan.offers[:ROWS_SHOWN]
    ]
    if count > ROWS_SHOWN:
        rows.append([f"… {count - ROWS_SHOWN} more", *[""] * 7])
    labels = sum(offer.labels for offer in plan.offers)
    totals = (f"{plan.total_expected:,.2f}", f"{plan.total_expected / plan.total_cost:.2f}", f"{plan.total_most:,.2f}")
    rows.append(["total", f"{labels:,}", "", f"{plan.total_cost:,.2f}", *totals, ""])
    out.print(table(f"Offers to {count} client{'s' * (count > 1)}, contract {plan.contract}", COLUMNS, rows))
    for sentence in sentences(plan):
        out.print(sentence)


def sentences(plan: PlanSummary) -> list[str]:
    """What the work is worth, costs and pays, what can be owed, warnings, and who is not asked."""
    most = (
        f"and never more than {plan.total_most:,.2f}"
        if plan.has_cap
        else f"and more if the model is better than expected: this contract has no cap, and would pay "
        f"{plan.total_most:,.2f} for a loss of 0"
    )
    found = [
        f"Expected pay is {plan.total_expected:,.2f} {plan.currency} in all, up to {plan.largest_factor:.2f} times the "
        f"cost of the work, {most}."
    ]
    return found + plan.sentences + [f"Not asked: {name}; {reason}." for name, reason in plan.left_out.items()]
