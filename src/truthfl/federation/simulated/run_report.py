"""What a job that was run came to, as plain values, files and a page. Looks at `embedded` and `studies` (pages)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.federation.simulated.embedded import RESULTS, RunOutcome
from truthfl.files import write_file
from truthfl.job import DataJob
from truthfl.reporting.figure import Figure, Panel, Series, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page

COLUMNS = ("client", "behaviour", "batch", "pay", "cost", "payoff", "if honest")


def client_rows(outcome: RunOutcome) -> list[list[str]]:
    """One row per client, and the total."""
    rows = [
        [
            offer.client.name,
            outcome.behaviour[i],
            str(offer.client.batch_size),
            f"{outcome.pay[i]:,.2f}",
            f"{outcome.cost[i]:,.2f}",
            f"{outcome.payoff[i]:,.2f}",
            "" if np.isnan(outcome.honest[i]) else f"{outcome.honest[i]:,.2f}",
        ]
        for i, offer in enumerate(outcome.agreed.offers)
    ]
    totals = (outcome.pay.sum(), outcome.cost.sum(), outcome.payoff.sum())
    return [*rows, ["total", "", "", *(f"{one:,.2f}" for one in totals), ""]]


def sentences(job: DataJob, outcome: RunOutcome) -> list[str]:
    """What the numbers say."""
    assert outcome.found.test is not None
    loss, offers = outcome.test_loss, outcome.agreed.offers
    expected = outcome.agreed.terms.expected_loss
    liars = np.flatnonzero(~np.isnan(outcome.honest)).tolist()
    worth = -job.server.loss_value * loss
    told = [
        f"Test loss {loss:.4f} on {job.server.test_samples:,} draws; with everybody honest the contract "
        f"expected {expected:.4f}. Accuracy {outcome.found.test.document['accuracy']:.1%}.",
        f"The server: the loss costs it {-worth:,.2f}, it pays {outcome.pay.sum():,.2f}, which makes its payoff "
        f"{worth - outcome.pay.sum():,.2f}.",
    ]
    for i in liars:
        lost = outcome.honest[i] - outcome.payoff[i]
        told.append(
            f"{offers[i].client.name} ({outcome.behaviour[i]}) is left with {abs(lost):,.2f} "
            f"{'less' if lost > 0 else 'more'} than if she alone had been honest."
        )
    if liars and loss > expected:
        told.append(
            "Pay falls for everybody when the loss rises: the contract promises honest clients their cost if the "
            "others are honest too, and no more."
        )
    return told


def as_plain(job: DataJob, outcome: RunOutcome, made: dict[str, Any]) -> dict[str, Any]:
    """Everything, for results.json."""
    found, plan = outcome.found, outcome.found.plans[-1].document
    assert found.test is not None
    looks = [entry.document for entry in found.rounds if "loss" in entry.document]
    return {
        "job": found.name,
        "clients": [
            {
                "name": offer.client.name,
                "behaviour": outcome.behaviour[i],
                "batch_size": offer.client.batch_size,
                **offer.client.pay,
                "labeling_cost": offer.client.labeling_cost,
                "rounds_delivered": found.delivered[offer.client.name],
                "refused": bool(outcome.refused[i]),
                "pay": float(outcome.pay[i]),
                "cost": float(outcome.cost[i]),
                "payoff": float(outcome.payoff[i]),
                "payoff_if_honest": None if np.isnan(outcome.honest[i]) else float(outcome.honest[i]),
            }
            for i, offer in enumerate(outcome.agreed.offers)
        ],
        "server": {
            "test_loss": outcome.test_loss,
            "expected_loss": plan["expected_loss"],
            "loss_error": plan["loss_error"],
            "accuracy": found.test.document["accuracy"],
            "step_size": plan["step_size"],
            "loss_value": job.server.loss_value,
            "total_pay": float(outcome.pay.sum()),
            "payoff": float(-job.server.loss_value * outcome.test_loss - outcome.pay.sum()),
        },
        "calibration": {name: plan[name] for name in ("r_squared", "sampling_r_squared", "factor", "standard_error")},
        "by_round": {
            "round": [look["round"] for look in looks],
            "test_loss": [look["loss"] for look in looks],
            "accuracy": [look["accuracy"] for look in looks],
        },
        "made": made,
    }


def by_round(outcome: RunOutcome) -> Figure:
    """Loss and accuracy on the way."""
    looks = [entry.document for entry in outcome.found.rounds if "loss" in entry.document]
    rounds = tuple(float(look["round"]) for look in looks)

    def line(title: str, label: str, values: tuple[float, ...]) -> Panel:
        return Panel(title, "round", label, (Series("this job", rounds, values, values, values),))

    return Figure(
        number=1,
        title="Training",
        caption="Loss and accuracy of the common model on the test set, round by round.",
        panels=(
            line("Test loss", "loss (nats per sample)", tuple(look["loss"] for look in looks)),
            line("Accuracy", "share of test samples", tuple(look["accuracy"] for look in looks)),
        ),
    )


def write_run_report(job: DataJob, outcome: RunOutcome, folder: Path, made: dict[str, Any], last: Section) -> Path:
    """Write the picture, the page and, last, the results, which say that the job is over; the page's path."""
    figure = by_round(outcome)
    png, svg = figure_pictures(figure)
    files = ("training.png", "training.svg", "training.csv", RESULTS)
    told = sentences(job, outcome)
    report = Report(
        "A job, run",
        told[0],
        [
            Section("Assignment, pay and payoff", [Table(COLUMNS, client_rows(outcome)), *map(Paragraph, told[1:])]),
            Section(
                "Training",
                [Plot([panel_svg(p, f"run{k}") for k, p in enumerate(figure.panels)], figure.caption, files)],
            ),
            last,
        ],
    )
    path = folder / "report.html"
    write_file(folder / "training.png", png)
    write_file(folder / "training.svg", svg)
    write_file(folder / "training.csv", figure_csv(figure))
    write_file(path, page(report))
    write_file(folder / RESULTS, json.dumps(as_plain(job, outcome, made), indent=2, allow_nan=False) + "\n")
    return path
