"""What a job that was run came to, as plain values, files and a page. Looks at `embedded` and `studies` (pages)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.embedded import Outcome
from truthfl.job import DataJob
from truthfl.learning.behaviours import BEHAVIOURS
from truthfl.learning.planning import Plan
from truthfl.mechanism.checks import FloatArray
from truthfl.studies.figure import Figure, Panel, Series, figure_csv
from truthfl.studies.plots import figure_pictures, panel_svg
from truthfl.studies.report import Paragraph, Plot, Report, Section, Table, page

COLUMNS = ("client", "behaviour", "batch", "pay", "cost", "payoff", "if honest")


def client_rows(plan: Plan, outcome: Outcome) -> list[list[str]]:
    """One row per client, and the total."""
    settled, names = outcome.settled, plan.clients.name or ()
    rows = [
        [
            names[i],
            outcome.behaviour[i],
            f"{plan.contract.batch_size[i]:.0f}",
            f"{settled.pay[i]:,.2f}",
            f"{settled.cost[i]:,.2f}",
            f"{settled.payoff[i]:,.2f}",
            "" if np.isnan(outcome.honest[i]) else f"{outcome.honest[i]:,.2f}",
        ]
        for i in range(len(names))
    ]
    totals = (settled.pay.sum(), settled.cost.sum(), settled.payoff.sum())
    return [*rows, ["total", "", "", *(f"{one:,.2f}" for one in totals), ""]]


def sentences(job: DataJob, plan: Plan, outcome: Outcome) -> list[str]:
    """What the numbers say."""
    settled, expected = outcome.settled, plan.calibration.model.truthful_loss(plan.contract.batch_size)
    seen = outcome.trained.watched["test"]
    liars = [i for i, name in enumerate(outcome.behaviour) if not BEHAVIOURS[name].truthful]
    worth = -job.server.loss_value * settled.test_loss
    told = [
        f"Test loss {settled.test_loss:.4f} on {job.server.test_samples:,} draws; with everybody honest the contract "
        f"expected {expected:.4f}. Accuracy {seen.accuracy[0, -1]:.1%}.",
        f"The server: the loss costs it {-worth:,.2f}, it pays {settled.pay.sum():,.2f}, which makes its payoff "
        f"{worth - settled.pay.sum():,.2f}.",
    ]
    for i in liars:
        lost = outcome.honest[i] - settled.payoff[i]
        name = (plan.clients.name or ())[i]
        told.append(
            f"{name} ({outcome.behaviour[i]}) is left with {abs(lost):,.2f} {'less' if lost > 0 else 'more'} than if "
            "she alone had been honest."
        )
    if liars and settled.test_loss > expected:
        told.append(
            "Pay falls for everybody when the loss rises: the contract promises honest clients their cost if the "
            "others are honest too, and no more."
        )
    return told


def as_plain(job: DataJob, plan: Plan, outcome: Outcome, made: dict[str, Any]) -> dict[str, Any]:
    """Everything, for results.json."""
    settled, seen, contract = outcome.settled, outcome.trained.watched["test"], plan.contract
    return {
        "clients": [
            {
                "name": (plan.clients.name or ())[i],
                "behaviour": outcome.behaviour[i],
                "batch_size": int(contract.batch_size[i]),
                "slope": float(contract.slope[i]),
                "base": float(contract.base[i]),
                "labeling_cost": float(contract.labeling_cost[i]),
                "refused": bool(settled.refused[i]),
                "pay": float(settled.pay[i]),
                "cost": float(settled.cost[i]),
                "payoff": float(settled.payoff[i]),
                "payoff_if_honest": None if np.isnan(outcome.honest[i]) else float(outcome.honest[i]),
            }
            for i in range(len(outcome.behaviour))
        ],
        "server": {
            "test_loss": settled.test_loss,
            "expected_loss": plan.calibration.model.truthful_loss(contract.batch_size),
            "loss_error": plan.loss_error,
            "accuracy": float(seen.accuracy[0, -1]),
            "step_size": plan.training.step_size,
            "loss_value": job.server.loss_value,
            "total_pay": float(settled.pay.sum()),
            "payoff": float(-job.server.loss_value * settled.test_loss - settled.pay.sum()),
        },
        "calibration": {
            "r_squared": plan.calibration.r_squared,
            "sampling_r_squared": plan.calibration.sampling_r_squared,
            "factor": plan.calibration.factor.tolist(),
            "standard_error": plan.calibration.standard_error.tolist(),
        },
        "by_round": {
            "round": outcome.trained.rounds.tolist(),
            "test_loss": seen.loss[0].tolist(),
            "accuracy": seen.accuracy[0].tolist(),
        },
        "made": made,
    }


def by_round(outcome: Outcome) -> Figure:
    """Loss and accuracy on the way."""
    seen, rounds = outcome.trained.watched["test"], tuple(outcome.trained.rounds.astype(float).tolist())

    def line(title: str, label: str, values: FloatArray) -> Panel:
        line = tuple(values.tolist())
        return Panel(title, "round", label, (Series("this job", rounds, line, line, line),))

    return Figure(
        number=1,
        title="Training",
        caption="Loss and accuracy of the common model on the test set, round by round.",
        panels=(
            line("Test loss", "loss (nats per sample)", seen.loss[0]),
            line("Accuracy", "share of test samples", seen.accuracy[0]),
        ),
    )


def publish(job: DataJob, plan: Plan, outcome: Outcome, folder: Path, made: dict[str, Any], last: Section) -> Path:
    """Write results.json, the picture and the page; the page's path."""
    figure = by_round(outcome)
    png, svg = figure_pictures(figure)
    files = ("training.png", "training.svg", "training.csv", "results.json")
    report = Report(
        "A job, run",
        sentences(job, plan, outcome)[0],
        [
            Section(
                "Assignment, pay and payoff",
                [Table(COLUMNS, client_rows(plan, outcome)), *map(Paragraph, sentences(job, plan, outcome)[1:])],
            ),
            Section(
                "Training",
                [Plot([panel_svg(p, f"run{k}") for k, p in enumerate(figure.panels)], figure.caption, files)],
            ),
            last,
        ],
    )
    try:
        (folder / "training.png").write_bytes(png)
        (folder / "training.svg").write_text(svg, encoding="utf-8")
        (folder / "training.csv").write_text(figure_csv(figure), encoding="utf-8")
        text = json.dumps(as_plain(job, plan, outcome, made), indent=2, allow_nan=False)
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        path = folder / "report.html"
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder} cannot be written to ({error.strerror}); name another folder.") from None
    return path
