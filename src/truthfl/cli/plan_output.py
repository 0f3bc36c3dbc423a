"""Prints a plan as a table or JSON, for `truthfl plan`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from truthfl.adversary.plan_warnings import (
    CERTAIN,
    idle_warnings,
    lie_sentences,
    presence_sentences,
    worth_warnings,
)
from truthfl.cli.output import console, table
from truthfl.cli.planned import Planned
from truthfl.mechanism.assignment import labeling_floor
from truthfl.mechanism.deviation import Deviation, free_riding_gain
from truthfl.mechanism.payoff import server_payoff
from truthfl.mechanism.spread import samples_for_share

if TYPE_CHECKING:
    from truthfl.adversary.pilot_lies import PilotLie

ROWS_SHOWN = 40


def as_json(planned: Planned, deviation: Deviation) -> dict[str, object]:
    clients, contract = planned.clients, planned.contract
    return {
        "clients": {
            "name": clients.name,
            "labeling_floor": labeling_floor(clients, planned.model, planned.training),
            "batch_size": contract.batch_size,
            **contract.terms(),
            "labeling_cost": clients.labeling_cost,
            "expected_pay": deviation.honest_pay,
            "pay_standard_deviation": [_number_or_none(value) for value in planned.spread.tolist()],
            "expected_payoff": deviation.honest_payoff,
            "largest_gain_from_lying": deviation.gain,
            "gain_from_free_riding": free_riding_gain(contract, clients, planned.model, planned.training),
            "worth": planned.worth,
            "worth_error": planned.worth_error,
            **({} if planned.rent is None else {"rent": planned.rent}),
        },
        "lies": None if planned.lies is None else [_lie_json(lie) for lie in planned.lies.lies],
        "lies_tried": 0 if planned.lies is None else planned.lies.points,
        "lie_runs": 0 if planned.lies is None else planned.lies.runs,
        "step_size": planned.training.step_size,
        "contract": contract.kind,
        "expected_loss": planned.expected_loss,
        "total_pay": float(deviation.honest_pay.sum()),
        "server_payoff": server_payoff(contract, planned.model, loss_value=planned.loss_value),
        "confirmed_by_search": deviation.confirmed,
        "economics": planned.economics(deviation.honest_pay).document(),
    }


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number_or_dash(value: float) -> str:
    return f"{value:,.2f}" if math.isfinite(value) else "–"


def _lie_json(lie: PilotLie) -> dict[str, object]:
    """A lie that was found on pilot data: the point, the rise of the loss and the gain, for each client."""
    return {
        "words": lie.point.words,
        "kind": lie.point.kind,
        **lie.point.document(),
        "loss_rise": lie.rise.mean,
        "loss_rise_error": lie.rise.error,
        "gain": lie.gain,
        "gain_error": lie.gain_error,
    }


def print_plan(planned: Planned, deviation: Deviation) -> None:
    clients, contract, spread = planned.clients, planned.contract, planned.spread
    floor, slope = labeling_floor(clients, planned.model, planned.training), planned.slope
    cost = planned.cost
    rows = [
        [
            str(i) if clients.name is None else clients.name[i],
            f"{clients.weight[i]:.4g}",
            f"{floor[i]:.1f}",
            f"{contract.batch_size[i]:.0f}",
            f"{cost[i]:,.2f}",
            f"{deviation.honest_pay[i]:,.2f}",
            _number_or_dash(spread[i]),
            _number_or_dash(slope[i]),
            f"{planned.worth[i]:,.0f}",
            f"{CERTAIN * planned.worth_error[i]:,.0f}",
        ]
        for i in range(min(len(clients), ROWS_SHOWN))
    ]
    if len(clients) > ROWS_SHOWN:
        rows.append([f"… {len(clients) - ROWS_SHOWN} more", *[""] * 9])
    rows.append(["total", "", "", "", f"{cost.sum():,.2f}", f"{deviation.honest_pay.sum():,.2f}", *[""] * 4])
    columns = ["client", "weight", "floor", "batch", "cost", "pay", "± pay", "slope", "worth", "±"]
    out = console()
    people = f"{len(clients)} client{'s' * (len(clients) > 1)}"
    out.print(table(f"Plan for {people}, {planned.training.rounds} rounds", columns, rows))
    out.print(
        f"Expected loss {planned.expected_loss:.4f} ({planned.basis}); "
        f"server's payoff {server_payoff(contract, planned.model, loss_value=planned.loss_value):,.2f}.\n"
        "slope: pay lost per unit of test loss; worth: what the loss without her, minus the loss, costs the server."
    )
    samples = planned.test_samples
    known = bool(np.isfinite(spread).all())
    if known and planned.loss_variance > 0 and (deviation.honest_pay > 0).all() and contract.linear() is not None:
        enough = samples_for_share(contract, deviation.honest_pay, planned.loss_variance, share=0.1)
        out.print(
            f"± pay: standard deviation with {samples:,} test sample{'s' * (samples > 1)}; "
            f"it stays within a tenth of everybody's pay from {enough:,} on."
        )
    worst = float(np.max(np.where(deviation.gain > deviation.resolution, deviation.gain, 0.0)))
    evidence = "by search" if deviation.closed_form_gain is None else "formula and search disagree"
    evidence = "formula and search agree" if deviation.confirmed else evidence
    out.print(f"The most anybody gains by lying, on this loss model: {worst:.2f} ({evidence}).")
    if planned.rent is not None:
        rents = ", ".join(
            f"{clients.label(i)} {rent:,.2f}" for i, rent in enumerate(planned.rent[:ROWS_SHOWN].tolist())
        )
        out.print(
            "Costs are private. If everybody states the job's, the rents that make the true cost the best statement, "
            f"without the margin for errors of the loss, are {rents}."
        )
    economics = planned.economics(deviation.honest_pay)
    found = [
        *presence_sentences(clients),
        *worth_warnings(planned.worth, planned.worth_error, cost),
        *lie_sentences(planned.lies),
    ]
    for sentence in (*found, economics.sentence, *economics.warnings, *economics.remarks):
        out.print(sentence)
    if above := planned.above_limit(deviation.honest_pay):
        out.print(
            f"Beware: {above} of {len(clients)} would get no offer: most_expected_pay allows "
            f"{planned.largest_factor:g} times the cost."
        )
    for sentence in idle_warnings(contract, clients, planned.model, planned.training):
        out.print(sentence)
