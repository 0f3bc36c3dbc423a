"""Prints the plan of a job that is served, for the operator to approve."""

from __future__ import annotations

from truthfl.cli.output import console, table
from truthfl.federation.protocol.approval import PlanSummary
from truthfl.ledger.money import amount_text

ROWS_SHOWN = 40
COLUMNS = ["client", "labels", "batch", "cost", "expected pay", "of cost", "most", "worth"]


def print_plan_summary(plan: PlanSummary) -> None:
    """A table of who is asked what for how much, and some sentences."""
    out, count, units = console(), len(plan.offers), plan.minor_units
    rows = [
        [
            offer.client,
            f"{offer.labels:,}",
            f"{offer.batch_size:,}",
            amount_text(offer.cost, units),
            amount_text(offer.expected_pay, units),
            f"{offer.expected_pay / offer.cost:.2f}",
            amount_text(offer.most, units),
            "–" if offer.worth is None else f"{offer.worth:,.0f}",
        ]
        for offer in plan.offers[:ROWS_SHOWN]
    ]
    if count > ROWS_SHOWN:
        rows.append([f"… {count - ROWS_SHOWN} more", *[""] * 7])
    labels = sum(offer.labels for offer in plan.offers)
    cost, expected, most = (amount_text(a, units) for a in (plan.total_cost, plan.total_expected, plan.total_most))
    rows.append(["total", f"{labels:,}", "", cost, expected, f"{plan.total_expected / plan.total_cost:.2f}", most, ""])
    out.print(table(f"Offers to {count} client{'s' * (count > 1)}, contract {plan.contract}", COLUMNS, rows))
    for sentence in sentences(plan):
        out.print(sentence)


def sentences(plan: PlanSummary) -> list[str]:
    """What the work is worth, costs and pays, what can be owed, warnings, and who is not asked."""
    expected, highest = (amount_text(amount, plan.minor_units) for amount in (plan.total_expected, plan.total_most))
    most = (
        f"and never more than {highest}"
        if plan.has_cap
        else f"and more if the model is better than expected: this contract has no cap, and would pay "
        f"{highest} for a loss of 0"
    )
    found = [
        f"Expected pay is {expected} {plan.currency} in all, up to {plan.largest_factor:.2f} times the "
        f"cost of the work, {most}."
    ]
    return found + plan.sentences + [f"Not asked: {name}; {reason}." for name, reason in plan.left_out.items()]
