"""The results of a simulated job as JSON, tables, plots and an HTML report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.federation.protocol.approval import summary_of
from truthfl.federation.protocol.training_figure import evaluations, write_training_plot
from truthfl.federation.simulated.audition_report import MOST_LIARS, audition_sentences, other_liars
from truthfl.federation.simulated.run_outcome import RunOutcome
from truthfl.files import write_file
from truthfl.job import DataJob
from truthfl.ledger.entry import Entry
from truthfl.ledger.holds import known_model
from truthfl.ledger.terms import Offer
from truthfl.reporting.report import Paragraph, Report, Section, Table, page

RESULTS = "results.json"
COLUMNS = ("client", "behaviour", "batch", "pay", "cost", "payoff", "if honest")
AUDITION_COLUMNS = ("client", "behaviour", "labels", "for labels", "computing", "cost", "payoff", "if honest")


def table_columns(outcome: RunOutcome) -> tuple[str, ...]:
    """The columns of `client_rows`."""
    return AUDITION_COLUMNS if outcome.agreement.terms.has_audition else COLUMNS


def client_rows(outcome: RunOutcome, most: int | None = None) -> list[list[str]]:
    """Return one row of cells per client, and a row with totals.

    most  so many clients have rows; of the others, one row says how many they are. None for all
    """
    audition = outcome.agreement.terms.has_audition
    paid = (outcome.label_pay, outcome.computing_pay) if audition else (outcome.pay,)
    money = (*paid, outcome.cost, outcome.payoff)
    rows = [
        [
            name,
            outcome.behaviour[i],
            str(_samples(outcome, i) if audition else _batch_size(outcome, i)),
            *(f"{values[i]:,.2f}" for values in money),
            "" if np.isnan(outcome.payoff_if_honest[i]) else f"{outcome.payoff_if_honest[i]:,.2f}",
        ]
        for i, name in enumerate(_names(outcome)[:most])
    ]
    missing = len(outcome.behaviour) - len(rows)
    if missing:
        rows.append([f"… {missing:,} more", *[""] * (len(money) + 3)])
    return [*rows, ["total", "", "", *(f"{values.sum():,.2f}" for values in money), ""]]


def _names(outcome: RunOutcome) -> list[str]:
    """The names of all clients of the job, also of those without an offer."""
    assert outcome.view.job is not None
    return list(outcome.view.job.document["job"]["clients"]["name"])


def _samples(outcome: RunOutcome, client: int) -> int:
    offer = outcome.offers[client]
    return 0 if offer is None else offer.client.samples


def _batch_size(outcome: RunOutcome, client: int) -> int:
    offer = outcome.offers[client]
    return 0 if offer is None else offer.client.batch_size


def summary_sentences(job: DataJob, outcome: RunOutcome) -> list[str]:
    """Return the results of server and dishonest clients in sentences."""
    assert outcome.view.test is not None
    loss, expected = outcome.test_loss, outcome.agreement.terms.expected_loss
    liars = np.flatnonzero(~np.isnan(outcome.payoff_if_honest)).tolist()
    loss_cost = job.server.loss_value * loss
    sentences = [
        f"Test loss {loss:.4f} on {job.server.test_samples:,} draws; with everybody honest the contract "
        f"expected {expected:.4f}. Accuracy {outcome.view.test.document['accuracy']:.1%}.",
        f"The server: the loss costs it {loss_cost:,.2f}, it pays {outcome.pay.sum():,.2f}, which makes its payoff "
        f"{-loss_cost - outcome.pay.sum():,.2f}.",
    ]
    if outcome.agreement.terms.has_audition:
        return [*sentences, *audition_sentences(outcome), *(map(_held_sentence, outcome.view.holds.values()))]
    names = _names(outcome)
    for i in liars[:MOST_LIARS]:
        lost = outcome.payoff_if_honest[i] - outcome.payoff[i]
        sentences.append(
            f"{names[i]} ({outcome.behaviour[i]}) is left with {abs(lost):,.2f} "
            f"{'less' if lost > 0 else 'more'} than if she alone had been honest."
        )
    sentences += other_liars(outcome)
    if liars and loss > expected:
        sentences.append(
            "Pay falls for everybody when the loss rises: the contract promises honest clients their cost if the "
            "others are honest too, and no more."
        )
    return sentences


def _held_sentence(entry: Entry) -> str:
    """What became of a solo model that is known, or that an operator would have looked at."""
    name, known = entry.document["client"], entry.document["known"]
    if known is not None:
        return f"{name}'s solo model is nearly {known_model(known)}; it is not paid."
    return (
        f"{name}'s solo model, with a loss of {entry.document['solo_loss']:.2f}, is better than honest ones are once "
        "in 10,000 times. An operator would have been asked whether it is paid; here it is."
    )


def results_document(job: DataJob, outcome: RunOutcome, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the document of results.json; `provenance`: command, seed, version, engine and seconds."""
    view, plan = outcome.view, outcome.view.plans[-1].document
    assert view.test is not None
    evaluated = evaluations(outcome.view)
    return {
        "job": view.name,
        "clients": [
            {
                **_terms(outcome.offers[i]),
                "name": name,
                "behaviour": outcome.behaviour[i],
                "labels": _samples(outcome, i),
                "batch_size": _batch_size(outcome, i),
                "rounds_delivered": view.delivered[name],
                "refused": bool(outcome.refused[i]),
                "stopped_at_gate": bool(outcome.stopped_at_gate[i]),
                "pay": float(outcome.pay[i]),
                "label_pay": float(outcome.label_pay[i]),
                "computing_pay": float(outcome.computing_pay[i]),
                "cost": float(outcome.cost[i]),
                "payoff": float(outcome.payoff[i]),
                "payoff_if_honest": _number_or_none(outcome.payoff_if_honest[i]),
            }
            for i, name in enumerate(_names(outcome))
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
        "economics": summary_of(outcome.agreement, plan, {}, job.server).economics.document(),
        "calibration": {name: plan[name] for name in ("r_squared", "sampling_r_squared", "factor", "standard_error")},
        "by_round": {
            "round": [evaluation["round"] for evaluation in evaluated],
            "test_loss": [evaluation["loss"] for evaluation in evaluated],
            "accuracy": [evaluation["accuracy"] for evaluation in evaluated],
        },
        "made": provenance,
    }


def _terms(offer: Offer | None) -> dict[str, Any]:
    """The terms of pay and the labeling cost in an offer; nothing without one."""
    return {} if offer is None else {**offer.client.pay, "labeling_cost": offer.client.labeling_cost}


def _number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def write_run_report(
    job: DataJob, outcome: RunOutcome, folder: Path, provenance: dict[str, Any], provenance_section: Section
) -> Path:
    """Write plots, report.html and results.json; return the path of report.html."""
    plot = write_training_plot(outcome.view, folder, RESULTS)
    summary = summary_sentences(job, outcome)
    clients = Table(table_columns(outcome), client_rows(outcome))
    report = Report(
        "A job, run",
        summary[0],
        [
            Section(
                "Assignment, pay and payoff",
                [clients, *map(Paragraph, summary[1:])],
            ),
            Section(
                "Training",
                [plot],
            ),
            provenance_section,
        ],
    )
    path = folder / "report.html"
    write_file(path, page(report))
    results = results_document(job, outcome, provenance)
    write_file(folder / RESULTS, json.dumps(results, indent=2, allow_nan=False) + "\n")
    return path
