"""The results of a simulated job as JSON, tables, plots and an HTML report.

Imports `embedded`, `files`, `job` and `reporting`.
"""

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
    """Return one row of cells per client, and a row with totals."""
    rows = [
        [
            offer.client.name,
            outcome.behaviour[i],
            str(offer.client.batch_size),
            f"{outcome.pay[i]:,.2f}",
            f"{outcome.cost[i]:,.2f}",
            f"{outcome.payoff[i]:,.2f}",
            "" if np.isnan(outcome.payoff_if_honest[i]) else f"{outcome.payoff_if_honest[i]:,.2f}",
        ]
        for i, offer in enumerate(outcome.agreement.offers)
    ]
    totals = (outcome.pay.sum(), outcome.cost.sum(), outcome.payoff.sum())
    return [*rows, ["total", "", "", *(f"{total:,.2f}" for total in totals), ""]]


def summary_sentences(job: DataJob, outcome: RunOutcome) -> list[str]:
    """Return the results of server and dishonest clients in sentences."""
    assert outcome.view.test is not None
    loss, offers = outcome.test_loss, outcome.agreement.offers
    expected = outcome.agreement.terms.expected_loss
    liars = np.flatnonzero(~np.isnan(outcome.payoff_if_honest)).tolist()
    loss_cost = job.server.loss_value * loss
    sentences = [
        f"Test loss {loss:.4f} on {job.server.test_samples:,} draws; with everybody honest the contract "
        f"expected {expected:.4f}. Accuracy {outcome.view.test.document['accuracy']:.1%}.",
        f"The server: the loss costs it {loss_cost:,.2f}, it pays {outcome.pay.sum():,.2f}, which makes its payoff "
        f"{-loss_cost - outcome.pay.sum():,.2f}.",
    ]
    for i in liars:
        lost = outcome.payoff_if_honest[i] - outcome.payoff[i]
        sentences.append(
            f"{offers[i].client.name} ({outcome.behaviour[i]}) is left with {abs(lost):,.2f} "
            f"{'less' if lost > 0 else 'more'} than if she alone had been honest."
        )
    if liars and loss > expected:
        sentences.append(
            "Pay falls for everybody when the loss rises: the contract promises honest clients their cost if the "
            "others are honest too, and no more."
        )
    return sentences


def results_document(job: DataJob, outcome: RunOutcome, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the document of results.json; `provenance`: command, seed, version, engine and seconds."""
    view, plan = outcome.view, outcome.view.plans[-1].document
    assert view.test is not None
    evaluations = [entry.document for entry in view.rounds if "loss" in entry.document]
    return {
        "job": view.name,
        "clients": [
            {
                "name": offer.client.name,
                "behaviour": outcome.behaviour[i],
                "batch_size": offer.client.batch_size,
                **offer.client.pay,
                "labeling_cost": offer.client.labeling_cost,
                "rounds_delivered": view.delivered[offer.client.name],
                "refused": bool(outcome.refused[i]),
                "pay": float(outcome.pay[i]),
                "cost": float(outcome.cost[i]),
                "payoff": float(outcome.payoff[i]),
                "payoff_if_honest": _number_or_none(outcome.payoff_if_honest[i]),
            }
            for i, offer in enumerate(outcome.agreement.offers)
        ],
        "server": {
            "test_loss": outcome.test_loss,
            "expected_loss": plan["expected_loss"],
            "loss_error": plan["loss_error"],
            "accuracy": view.test.document["accuracy"],
            "step_size": plan["step_size"],
            "loss_value": job.server.loss_value,
            "total_pay": float(outcome.pay.sum()),
            "payoff": float(-job.server.loss_value * outcome.test_loss - outcome.pay.sum()),
        },
        "calibration": {name: plan[name] for name in ("r_squared", "sampling_r_squared", "factor", "standard_error")},
        "by_round": {
            "round": [evaluation["round"] for evaluation in evaluations],
            "test_loss": [evaluation["loss"] for evaluation in evaluations],
            "accuracy": [evaluation["accuracy"] for evaluation in evaluations],
        },
        "made": provenance,
    }


def _number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def training_figure(outcome: RunOutcome) -> Figure:
    """Return a figure of test loss and accuracy by round."""
    evaluations = [entry.document for entry in outcome.view.rounds if "loss" in entry.document]
    rounds = tuple(float(evaluation["round"]) for evaluation in evaluations)

    def line(title: str, label: str, values: tuple[float, ...]) -> Panel:
        return Panel(title, "round", label, (Series("this job", rounds, values, values, values),))

    return Figure(
        number=1,
        title="Training",
        caption="Loss and accuracy of the common model on the test set, round by round.",
        panels=(
            line("Test loss", "loss (nats per sample)", tuple(evaluation["loss"] for evaluation in evaluations)),
            line("Accuracy", "share of test samples", tuple(evaluation["accuracy"] for evaluation in evaluations)),
        ),
    )


def write_run_report(
    job: DataJob, outcome: RunOutcome, folder: Path, provenance: dict[str, Any], provenance_section: Section
) -> Path:
    """Write plots, report.html and results.json; return the path of report.html.

    results.json is written last: `embedded` takes a job without it for unfinished.
    """
    figure = training_figure(outcome)
    png, svg = figure_pictures(figure)
    files = ("training.png", "training.svg", "training.csv", RESULTS)
    summary = summary_sentences(job, outcome)
    report = Report(
        "A job, run",
        summary[0],
        [
            Section("Assignment, pay and payoff", [Table(COLUMNS, client_rows(outcome)), *map(Paragraph, summary[1:])]),
            Section(
                "Training",
                [Plot([panel_svg(p, f"run{k}") for k, p in enumerate(figure.panels)], figure.caption, files)],
            ),
            provenance_section,
        ],
    )
    path = folder / "report.html"
    write_file(folder / "training.png", png)
    write_file(folder / "training.svg", svg)
    write_file(folder / "training.csv", figure_csv(figure))
    write_file(path, page(report))
    results = results_document(job, outcome, provenance)
    write_file(folder / RESULTS, json.dumps(results, indent=2, allow_nan=False) + "\n")
    return path
