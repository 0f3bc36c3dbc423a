"""The results of a simulated job: sentences, JSON, tables, plots and an HTML report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.contract import Observation
from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError
from truthfl.federation.operator.approval import summary_of
from truthfl.federation.operator.kept_jobs import Draws
from truthfl.federation.operator.served_report import (
    evaluations,
    part_columns,
    part_words,
    round_zero_sentences,
    without_calibration,
    write_training_plot,
)
from truthfl.federation.protocol.final_model import solo_file
from truthfl.federation.protocol.offers import left_out_of
from truthfl.federation.simulated.participants import has_solo_models
from truthfl.federation.simulated.payoff import (
    audition_costs,
    audition_payoffs_if_honest,
    costs,
    joint_payoffs_if_honest,
)
from truthfl.files import write_file
from truthfl.job import DataJob
from truthfl.learning.data.datasets import read_npy
from truthfl.learning.data.federations import SimulatedFederation
from truthfl.learning.people.behaviours import behaviour
from truthfl.ledger.entry import Entry
from truthfl.ledger.evidence import expected_solo_loss, highest_passing_loss
from truthfl.ledger.held_models import known_model
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import Settled, read_settlement
from truthfl.ledger.terms import Agreement, Offer
from truthfl.reporting.report import Paragraph, Report, Section, Table, page


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """A finished simulated job. Money is in the job's currency; arrays have one value per client of the job.

    view              the ledger's entries of the job
    behaviour         the name of each client's behaviour
    refused           whether none of the reports that the client was asked for was taken
    pay, cost         what the client is paid, and what their work really costs; 0 for clients whom the plan did not ask
    payoff_if_honest  the payoff if this client alone had been honest instead; NaN for honest clients
    offers            the offer; None for clients whom the plan did not ask
    stopped_at_gate   whether the client did not pass the audition
    parts             of pay by name, before rounding; none if the contract has none
    """

    view: JobView
    behaviour: tuple[str, ...]
    refused: NDArray[np.bool_]
    pay: FloatArray
    cost: FloatArray
    payoff_if_honest: FloatArray
    offers: tuple[Offer | None, ...]
    stopped_at_gate: NDArray[np.bool_]
    parts: dict[str, FloatArray]

    @property
    def agreement(self) -> Agreement:
        assert self.view.agreement is not None
        return self.view.agreement

    @property
    def payoff(self) -> FloatArray:
        return self.pay - self.cost

    @property
    def test_loss(self) -> float:
        assert self.view.test is not None
        return float(self.view.test.document["loss"])


def outcome_of(job: DataJob, federation: SimulatedFederation, view: JobView, draws: Draws, models: Path) -> RunOutcome:
    """The outcome of a finished job; what liars would have had is trained again, with the draws of the job.

    models  the folder of its published models
    """
    agreement, behaviours = view.agreement, tuple(map(behaviour, job.clients.behaviour))
    left_out = left_out_of(view.plans[-1].document) if view.plans else {}
    names = [name for name in job.clients.name if name not in left_out]
    if agreement is None or [offer.client.name for offer in agreement.offers] != names:
        raise InputError("a simulated job has all of its clients; this ledger has another number of offers.")
    asked = [i for i, name in enumerate(job.clients.name) if name not in left_out]
    settlements = [read_settlement(view.settlements[offer.client.name]) for offer in agreement.offers]
    own = tuple(behaviours[i] for i in asked)
    if has_solo_models(job):
        passed = {settled.client for settled in settlements if settled.passed}
        cost = audition_costs(agreement, own, set(view.commitments), passed)
        solo_loss = {settled.client: settled.solo_loss for settled in settlements}
        trained_alone = read_npy(solo_file(models, view.name))
        if_honest = audition_payoffs_if_honest(job, federation, agreement, own, solo_loss, trained_alone, draws)
    else:
        cost = costs(agreement, own)
        if_honest = joint_payoffs_if_honest(job, federation, agreement, own, draws)

    def of_all(values: Sequence[float], otherwise: float = 0.0) -> FloatArray:
        """The values of those with an offer at their positions among all clients."""
        result = np.full(len(behaviours), otherwise, dtype=float)
        result[asked] = values
        return result

    offers: list[Offer | None] = [None] * len(behaviours)
    for position, offer in zip(asked, agreement.offers, strict=True):
        offers[position] = offer
    never_honest = np.array([np.nan if kind.truthful else 0.0 for kind in behaviours])
    return RunOutcome(
        view=view,
        behaviour=tuple(kind.name for kind in behaviours),
        refused=of_all([one.delivered == 0 and one.passed is not False for one in settlements]).astype(bool),
        pay=of_all([settled.pay / job.server.minor_units for settled in settlements]),
        cost=of_all(cost.tolist()),
        payoff_if_honest=np.where([offer is None for offer in offers], never_honest, of_all(if_honest.tolist())),
        offers=tuple(offers),
        stopped_at_gate=of_all([settled.passed is False for settled in settlements]).astype(bool),
        parts={name: of_all([settled.parts[name] for settled in settlements]) for name in part_words(agreement)},
    )


MOST_LIARS = 20  # dishonest clients who get a sentence
MOST_NAMED = 20  # clients named in a sentence


def other_liars(outcome: RunOutcome) -> list[str]:
    """A sentence on the dishonest clients without their own sentence, if there are any."""
    gained = (outcome.payoff - outcome.payoff_if_honest)[~np.isnan(outcome.payoff_if_honest)][MOST_LIARS:]
    if not len(gained):
        return []
    return [
        f"{len(gained):,} more were dishonest, and {int((gained > 0).sum()):,} of these are left with more than if "
        "they alone had been honest; results.json has them all."
    ]


def audition_sentences(outcome: RunOutcome) -> list[str]:
    """What became of each liar and why, who was not asked, and how the expected loss followed those who took part."""
    liars = np.flatnonzero(~np.isnan(outcome.payoff_if_honest)).tolist()
    sentences = []
    for i in liars[:MOST_LIARS]:
        offer = outcome.offers[i]
        if offer is not None:
            settled = read_settlement(outcome.view.settlements[offer.client.name])
            sentences.append(_liar_sentence(outcome, i, offer, settled))
    sentences += other_liars(outcome)
    left_out = left_out_of(outcome.view.plans[-1].document)
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, own in left_out.items() if own == reason]
        others = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        sentences.append(f"Not asked, for {reason}: {', '.join(names[:MOST_NAMED])}{others}.")
    return [*sentences, _expected_loss_sentence(outcome)]


def _liar_sentence(outcome: RunOutcome, client: int, offer: Offer, settled: Settled) -> str:
    who = f"{offer.client.name} ({outcome.behaviour[client]})"
    lost = outcome.payoff_if_honest[client] - outcome.payoff[client]
    left = f"are left with {abs(lost):,.2f} {'less' if lost > 0 else 'more'} than if they had been honest"
    if settled.solo_loss is None or settled.level_shift is None:
        reason = outcome.view.auditions[offer.client.name].document["reason"].rstrip(".")
        return f"{who} was stopped at the audition. {reason}; they are paid {outcome.pay[client]:,.2f} and {left}."
    expected = expected_solo_loss(offer, settled.level_shift)
    if not settled.passed:
        limit = highest_passing_loss(offer, settled.level_shift)
        return (
            f"{who} was stopped at the audition: the model's loss is {settled.solo_loss:.2f}, above {limit:.2f} "
            f"it is far worse than honest ones; they are paid {outcome.pay[client]:,.2f} and {left}."
        )
    missing = settled.asked - settled.delivered
    reports = f", and {missing} of {settled.asked} reports were refused" if missing else ""
    words = part_words(outcome.agreement)
    paid = " and ".join(f"{outcome.parts[name][client]:,.2f} for {what}" for name, what in words.items())
    return (
        f"{who} passed the audition: the model's loss is {settled.solo_loss:.2f}, {expected:.2f} was expected"
        f"{reports}; they are paid {paid or f'{outcome.pay[client]:,.2f}'}, and {left}."
    )


def _expected_loss_sentence(outcome: RunOutcome) -> str:
    """How many of the labels took part, and the joint loss that is expected with these."""
    offers = outcome.agreement.offers
    all_labels = sum(offer.client.samples for offer in offers)
    present = math.fsum(outcome.view.delivered_labels.values())
    taking_part = outcome.view.taking_part
    if taking_part and taking_part.offers and taking_part.terms.starts_from_solo_models and not outcome.view.rounds:
        return "No round took place: the model is the mean of the solo models of those who passed."
    if present == 0:
        return "No report of anybody was taken: the model that was tested is the one from which training starts."
    observed = Observation(0.0, present_labels=present, loss_rise=outcome.view.loss_rise)
    expected = offers[0].contract.expected_joint_loss(observed)
    paid = "." if expected is None else f"; computing is paid by the loss that is expected of these, {expected[0]:.4f}."
    return f"{present:,.0f} of {all_labels:,} labels took part in the joint training{paid}"


RESULTS = "results.json"


def table_columns(outcome: RunOutcome) -> tuple[str, ...]:
    """The columns of `client_rows`."""
    paid = part_columns(outcome.agreement) or ["pay"]
    work = "labels" if outcome.agreement.terms.has_solo_models else "batch"
    return "client", "behaviour", work, *paid, "cost", "payoff", "if honest"


def client_rows(outcome: RunOutcome, most: int | None = None) -> list[list[str]]:
    """Return one row of cells per client, and a row with totals.

    most  number of clients with rows; one more row counts the others. None for all
    """
    audition = outcome.agreement.terms.has_solo_models
    paid = tuple(outcome.parts.values()) or (outcome.pay,)
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
        f"Test loss {loss:.4f} on {job.server.test_samples:,} draws{without_calibration(outcome.view)}; with everybody "
        f"honest the contract expected {expected:.4f}. Accuracy {outcome.view.test.document['accuracy']:.1%}.",
        *round_zero_sentences(outcome.view),
        f"The server: the loss costs it {loss_cost:,.2f}, it pays {outcome.pay.sum():,.2f}, which makes its payoff "
        f"{-loss_cost - outcome.pay.sum():,.2f}.",
    ]
    if outcome.agreement.terms.has_solo_models:
        return [*sentences, *audition_sentences(outcome), *(map(_held_sentence, outcome.view.holds.values()))]
    names = _names(outcome)
    for i in liars[:MOST_LIARS]:
        lost = outcome.payoff_if_honest[i] - outcome.payoff[i]
        sentences.append(
            f"{names[i]} ({outcome.behaviour[i]}) is left with {abs(lost):,.2f} "
            f"{'less' if lost > 0 else 'more'} than if they alone had been honest."
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
        f"{name}'s solo model, with a loss of {entry.document['solo_loss']:.2f}, is far better than honest ones "
        "usually are. An operator would have been asked whether it is paid; here it is."
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
                **{name: float(values[i]) for name, values in outcome.parts.items()},
                "cost": float(outcome.cost[i]),
                "payoff": float(outcome.payoff[i]),
                "payoff_if_honest": _number_or_none(outcome.payoff_if_honest[i]),
            }
            for i, name in enumerate(_names(outcome))
        ],
        "server": {
            "test_loss": outcome.test_loss,
            **({"raw_test_loss": view.test.document["raw_loss"]} if "raw_loss" in view.test.document else {}),
            "expected_loss": plan["expected_loss"],
            "loss_error": plan["loss_error"],
            "accuracy": view.test.document["accuracy"],
            "step_size": plan["step_size"],
            "loss_value": job.server.loss_value,
            "total_pay": float(outcome.pay.sum()),
            "payoff": float(-job.server.loss_value * outcome.test_loss - outcome.pay.sum()),
        },
        "economics": summary_of(outcome.agreement, plan, {}, job.server).economics.document(),
        **({"calibration": plan["calibration"]} if "calibration" in plan else {}),
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
