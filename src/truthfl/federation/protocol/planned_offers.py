"""Plan a job for the enrolled clients and make their offers.

Imports `enrolment`, `promise`, `adversary.pilot_lies`, `job`, `learning` and the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truthfl.adversary.pilot_lies import PilotLies, search_on_pilot
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.job import DataJob, Participants
from truthfl.learning.audition_details import AuditionDetails
from truthfl.learning.federations import ServerSide
from truthfl.learning.planning import Plan
from truthfl.ledger.terms import Agreement
from truthfl.ledger.tried_lies import TriedLie

MakePlan = Callable[[DataJob, ServerSide], Plan]


def planned_offers(
    roster: Roster, job: DataJob, make_plan: MakePlan, opening: Opening, names: list[str], version: int
) -> tuple[dict[str, Any], Agreement]:
    """Return the plan's ledger document for these clients, without the terms, and their offers."""
    planned_job = _with_enrolled_clients(roster, job, names)
    side = planned_job.server_side()
    plan = make_plan(planned_job, side)
    found = search_on_pilot(plan.side, plan)
    audition = plan.audition
    promise = Promise(
        plan.clients,
        plan.training,
        plan.calibration.model,
        plan.contract,
        plan.loss_error,
        lies=_lies_by_client(plan, found),
        lies_tried=found.points,
        recipe=None if audition is None else audition.recipe.document(),
        report_bound=plan.report_bound,
        aggregation=planned_job.server.aggregation,
        audition_cost=() if audition is None else audition.measurement.audition_cost.tolist(),
    )
    samples = planned_job.server.test_samples
    task = TrainingTask(planned_job.trained_model.document(), side.test.images.shape[1:], side.test.classes, samples)
    worth = planned_job.server.loss_value * found.absence.mean
    document = _plan_document(plan) | {"worth": worth.tolist()}
    if audition is not None:
        asked = plan.clients.name or ()
        document["audition"] = _audition_document(audition, [name for name in names if name not in asked])
    return document, agreement_of(promise, roster, opening, task, version)


def _lies_by_client(plan: Plan, found: PilotLies) -> list[tuple[TriedLie, ...]]:
    batches = [lie.point.batch_size(plan.contract.batch_size, plan.clients.dataset_size) for lie in found.lies]
    return [
        tuple(
            TriedLie(
                kind=lie.point.kind,
                words=lie.point.words,
                labels=lie.point.labels,
                batch_size=int(batch[client]),
                delivered=lie.delivered,
                loss_rise=float(lie.rise.mean[client]),
                loss_rise_error=float(lie.rise.error[client]),
                solo_rise=lie.solo_rise,
                solo_rise_error=lie.solo_rise_error,
            )
            for lie, batch in zip(found.lies, batches, strict=True)
        )
        for client in range(len(plan.clients))
    ]


def _plan_document(plan: Plan) -> dict[str, Any]:
    calibration = plan.calibration
    return {
        "step_size": plan.training.step_size,
        "expected_loss": calibration.model.truthful_loss(plan.contract.batch_size),
        "loss_error": plan.loss_error,
        "loss_variance": plan.loss_variance,
        "r_squared": calibration.r_squared,
        "sampling_r_squared": calibration.sampling_r_squared,
        "factor": calibration.factor.tolist(),
        "standard_error": calibration.standard_error.tolist(),
    }


def _audition_document(audition: AuditionDetails, left_out: list[str]) -> dict[str, Any]:
    """How the plan of an audition came about, and the names of the clients who are not asked."""
    solo, joint = audition.solo, audition.joint
    return {
        "recipe": audition.recipe.document(),
        "solo": {"labels": solo.labels.tolist(), "loss": solo.level(solo.labels).tolist()},
        "joint": {"curve": float(joint.curve), "error": float(joint.error)},
        "left_out": left_out,
    }


def _with_enrolled_clients(roster: Roster, job: DataJob, names: list[str]) -> DataJob:
    """The job with these clients only, each with the lower of her own and the job's sample numbers and costs."""
    clients = job.clients
    rows = [clients.name.index(name) for name in names]
    enrolled = [(row, roster.descriptions[name]) for row, name in zip(rows, names, strict=True)]
    return job.with_clients(
        Participants(
            name=names,
            dataset_size=[min(clients.dataset_size[row], own["samples"]) for row, own in enrolled],
            labeling_cost=[_lower(clients.labeling_cost[row], own.get("labeling_cost")) for row, own in enrolled],
            sample_cost=[_lower(clients.sample_cost[row], own.get("sample_cost")) for row, own in enrolled],
            behaviour=[clients.behaviour[row] for row in rows],
            participation=[float(clients.participation[row]) for row in rows],
        )
    )


def _lower(job_cost: float, stated_cost: float | None) -> float:
    return float(job_cost) if stated_cost is None else min(float(job_cost), float(stated_cost))
