"""From a job's plan to its offers: the calibrated contract, made anew for those who take part.

Looks at `enrolment` (what clients said of themselves), `promise` and `learning` (the plan).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.job import DataJob, Participants
from truthfl.learning.federations import ServerSide
from truthfl.learning.planning import Plan
from truthfl.ledger.terms import Agreement

MakePlan = Callable[[DataJob, ServerSide], Plan]


def planned_offers(
    roster: Roster, job: DataJob, make_plan: MakePlan, opening: Opening, names: list[str], version: int
) -> tuple[dict[str, Any], Agreement]:
    """What the plan for these clients rests on, and their offers."""
    some = _for(roster, job, names)
    side = some.server_side()
    plan = make_plan(some, side)
    promise = Promise(plan.clients, plan.training, plan.calibration.model, plan.contract, plan.loss_error)
    task = TrainingTask(asdict(some.model), side.test.images.shape[1:], side.test.classes, some.server.test_samples)
    return _planned(plan), agreement_of(promise, roster, opening, task, version)


def _planned(plan: Plan) -> dict[str, Any]:
    """What the plan rests on, for the book."""
    found = plan.calibration
    return {
        "step_size": plan.training.step_size,
        "expected_loss": found.model.truthful_loss(plan.contract.batch_size),
        "loss_error": plan.loss_error,
        "loss_variance": plan.loss_variance,
        "r_squared": found.r_squared,
        "sampling_r_squared": found.sampling_r_squared,
        "factor": found.factor.tolist(),
        "standard_error": found.standard_error.tolist(),
    }


def _for(roster: Roster, job: DataJob, names: list[str]) -> DataJob:
    """The job with those who are there: at most the samples and the costs that the operator knows of."""
    known, place = job.clients, job.clients.name.index
    rows = [place(name) for name in names]
    told = [roster.described[name] for name in names]
    clients = Participants(
        name=names,
        dataset_size=[min(known.dataset_size[row], one["samples"]) for row, one in zip(rows, told, strict=True)],
        labeling_cost=[_least(known.labeling_cost[r], one, "labeling_cost") for r, one in zip(rows, told, strict=True)],
        sample_cost=[_least(known.sample_cost[r], one, "sample_cost") for r, one in zip(rows, told, strict=True)],
        behaviour=[known.behaviour[row] for row in rows],
        participation=[float(known.participation[row]) for row in rows],
    )
    return job.with_clients(clients)


def _least(known: float, told: dict[str, object], field: str) -> float:
    asked = told.get(field)
    return float(known) if asked is None else min(float(known), float(asked))  # type: ignore[arg-type]
