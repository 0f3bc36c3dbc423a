"""Prints the plan of an audition contract as tables or JSON, for `truthfl plan`."""

from __future__ import annotations

from typing import Any

import numpy as np

from truthfl.adversary.pilot_lies import PilotLies
from truthfl.adversary.plan_warnings import audition_warnings, lie_sentences, presence_sentences
from truthfl.cli.output import console, table
from truthfl.job import ServerSettings
from truthfl.learning.audition_details import AuditionDetails
from truthfl.learning.plan_worth import plan_worth
from truthfl.learning.planning import Plan
from truthfl.learning.recipe import Recipe
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_deviation import best_choice
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.economics import PlanEconomics, plan_economics
from truthfl.mechanism.observation import Observation
from truthfl.mechanism.setting import batch_price

ROWS_SHOWN = 40
FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


def details_of(plan: Plan) -> AuditionDetails:
    """How the plan came about."""
    assert plan.audition is not None
    return plan.audition


def costs(plan: Plan) -> FloatArray:
    """The cost of each client's honest work: labels, training alone, rounds."""
    computing = batch_price(plan.clients, plan.training) * plan.contract.batch_size
    return np.asarray(plan.clients.labeling_cost + details_of(plan).measurement.audition_cost + computing)


def expected_pay(plan: Plan) -> tuple[FloatArray, FloatArray]:
    """What each client is paid for labels and for computing, if all losses are as expected."""
    contract = plan.contract
    assert isinstance(contract, Audition)
    expected = Observation(contract.expected_joint_loss(Observation(0.0)))
    return contract.label_pay(expected), contract.computing_pay(expected)


def economics(plan: Plan, lies: PilotLies, server: ServerSettings) -> PlanEconomics:
    """Worth, cost and pay of all work."""
    contract, worth = plan.contract, plan_worth(plan, server.loss_value, lies.absence.mean)
    label_pay, computing_pay = expected_pay(plan)
    return plan_economics(
        cost=costs(plan),
        expected_pay=label_pay + computing_pay,
        most_pay=contract.pay_range(0.0, plan.expected_loss)[1],
        has_cap=True,
        own_worth=worth.own,
        worth=worth.all_work,
        untrained_loss=worth.untrained_loss,
        factors=server.warn_factors,
    )


def largest_gain(plan: Plan) -> FloatArray | None:
    """What each client gains at most by other labels or batches, on the curves; None for a custom contract."""
    contract = plan.contract
    return best_choice(details_of(plan).inputs, contract).gain if type(contract) is Audition else None


def audition_json(plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings) -> dict[str, Any]:
    """Everything of the plan as JSON values."""
    details, contract = details_of(plan), plan.contract
    assert isinstance(contract, Audition)
    gain, (label_pay, computing_pay) = largest_gain(plan), expected_pay(plan)
    on_curves = {} if gain is None else {"largest_gain_on_the_curves": gain}
    return {
        "contract": contract.kind,
        "clients": {
            "name": plan.clients.name,
            **contract.terms(),
            "batch_size": contract.batch_size,
            "cost": costs(plan),
            "expected_pay": label_pay + computing_pay,
            "most_pay": contract.pay_range(0.0, plan.expected_loss)[1],
            "worth": details.worth,
            **on_curves,
            "not_computing_gains": details.plan.unproven,
        },
        "left_out": left_out,
        "recipe": details.recipe.document(),
        "solo_curve": {
            "labels": details.solo.labels,
            "loss": details.solo.level(details.solo.labels),
            "spread": details.solo.spread(details.solo.labels),
            "slope": details.solo.slope(details.solo.labels),
            "slope_error": details.solo.slope_error(details.solo.labels),
        },
        "joint_curve": {"curve": details.joint.curve, "error": details.joint.error},
        "labels_bought": [_bought(plan, factor) for factor in FACTORS],
        "lies": [
            {
                "words": lie.point.words,
                "kind": lie.point.kind,
                "solo_rise": lie.solo_rise,
                "loss_rise": lie.rise.mean,
                "gain": lie.gain,
                "gain_error": lie.gain_error,
            }
            for lie in lies.lies
        ],
        "lies_tried": lies.points,
        "step_size": plan.training.step_size,
        "expected_loss": plan.expected_loss,
        "total_pay": float((label_pay + computing_pay).sum()),
        "economics": economics(plan, lies, server).document(),
    }


def _bought(plan: Plan, factor: float) -> dict[str, float]:
    """Loss, cost and pay if this factor of the labels were bought, and what that leaves the server with."""
    details = details_of(plan)
    loss, cost, pay = details.at_labels(factor)
    labels = float(np.rint(details.labels * factor).sum())
    server = details.inputs.loss_value * loss + pay
    return {"factor": factor, "labels": labels, "loss": loss, "cost": cost, "label_pay": pay, "server_cost": server}


def print_audition(
    plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings, *, pictures: bool = True
) -> None:
    """Two tables and some sentences. `pictures`: whether that is what clients have."""
    details, contract, clients = details_of(plan), plan.contract, plan.clients
    assert isinstance(contract, Audition)
    cost, (label_pay, computing_pay) = costs(plan), expected_pay(plan)
    most = contract.pay_range(0.0, plan.expected_loss)[1]
    deviation = contract.deviation(plan.expected_loss, plan.loss_error)
    rows = [
        [
            str(i) if clients.name is None else clients.name[i],
            f"{contract.labels[i]:.0f}",
            f"{contract.batch_size[i]:.0f}",
            f"{cost[i]:,.2f}",
            f"{label_pay[i]:,.2f}",
            f"{computing_pay[i]:,.2f}",
            f"{deviation[i]:,.2f}",
            f"{most[i]:,.2f}",
            f"{details.worth[i]:,.0f}",
        ]
        for i in range(min(len(clients), ROWS_SHOWN))
    ]
    if len(clients) > ROWS_SHOWN:
        rows.append([f"… {len(clients) - ROWS_SHOWN} more", *[""] * 8])
    sums = (label_pay.sum(), computing_pay.sum())
    rows.append(
        [
            "total",
            f"{contract.labels.sum():,.0f}",
            "",
            f"{cost.sum():,.2f}",
            *(f"{s:,.2f}" for s in sums),
            "",
            f"{most.sum():,.2f}",
            "",
        ]
    )
    columns = ["client", "labels", "batch", "cost", "for labels", "computing", "± pay", "most", "worth"]
    out, count = console(), len(clients)
    title = f"Plan for {count} client{'s' * (count > 1)}, {plan.training.rounds} rounds, contract {contract.kind}"
    out.print(table(title, columns, rows))
    bought = [_bought(plan, factor) for factor in FACTORS]
    best = min(row["server_cost"] for row in bought)
    out.print(
        table(
            "Labels bought",
            ["of the plan", "labels", "joint loss", "cost", "pay for them", "loss and pay", ""],
            [
                [
                    f"{row['factor']:.0%}",
                    f"{row['labels']:,.0f}",
                    f"{row['loss']:.4f}",
                    f"{row['cost']:,.0f}",
                    _amount(row["label_pay"]),
                    _amount(row["server_cost"]),
                    "least" if row["server_cost"] == best else "",
                ]
                for row in bought
            ],
        )
    )
    for sentence in sentences(plan, lies, left_out, server, pictures=pictures):
        out.print(sentence)


def recipe_words(recipe: Recipe, *, pictures: bool) -> str:
    """How a client trains alone."""
    shifts = f", {'with' if recipe.shifts else 'without'} shifted copies" if pictures else ""
    return f"{recipe.steps} steps of {recipe.batch_size}{shifts}"


def _amount(value: float) -> str:
    """A whole amount; a dash for labels that no pay elicits on these curves."""
    return f"{value:,.0f}" if np.isfinite(value) else "–"


def sentences(
    plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings, *, pictures: bool = True
) -> list[str]:
    """What an operator should know besides the tables. `pictures`: whether that is what clients have."""
    details, contract = details_of(plan), plan.contract
    assert isinstance(contract, Audition)
    of_curves, recipe, sums = largest_gain(plan), details.recipe, economics(plan, lies, server)
    result = [
        f"Expected joint loss {plan.expected_loss:.4f}; honest pay is {sums.pay_over_cost:.2f} times its cost. A "
        f"client's own model is expected at a loss of {contract.solo_level.min():.3f} to "
        f"{contract.solo_level.max():.3f} ± {contract.solo_spread.mean():.3f}, trained in "
        f"{recipe_words(recipe, pictures=pictures)}.",
        "± pay: standard deviation; most: no client is paid more; worth: what the loss without her labels costs more.",
    ]
    if of_curves is not None:
        most = max(float(of_curves.max()), 0.0)
        result.append(f"The most anybody gains by other labels or batches, on these curves: {most:.2f}.")
    result += presence_sentences(plan.clients)
    if left_out:
        names = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
        result.append(
            f"Not asked: {names}. Their labels are worth less than their price, or they hold too few samples."
        )
    if contract.joint_slope.max() == 0:
        result.append("The joint loss does not show the batch size: computing is paid a fixed amount.")
    return [*result, *audition_warnings(plan), sums.sentence, *sums.warnings, *sums.remarks, *lie_sentences(lies)]
