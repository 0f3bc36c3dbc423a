"""From a job's plan to its offers: the calibrated contract, made anew for those who take part.

Looks at `enrolment` (what clients said of themselves), `learning` (the plan) and the ledger's papers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from truthfl.federation.enrolment import Roster
from truthfl.job import DataJob, Participants
from truthfl.learning.planning import Plan
from truthfl.learning.scene import ServerSide
from truthfl.ledger.documents import LossShare, Offer
from truthfl.ledger.pay import DROPPING_OUT, FORMULA, Terms

MakePlan = Callable[[DataJob, ServerSide], Plan]


@dataclass(frozen=True)
class Opening:
    """What is fixed when a job is opened, and stands in every offer: seed, commitment, the operator's public key."""

    seed: int
    commitment: str
    operator_key: str


def planned_offers(
    roster: Roster, job: DataJob, make_plan: MakePlan, opening: Opening, names: list[str], version: int
) -> tuple[dict[str, Any], list[Offer]]:
    """What the plan for these clients rests on, and their offers."""
    some = _for(roster, job, names)
    side = some.server_side()
    plan = make_plan(some, side)
    return _planned(plan), _offers(roster, some, side, plan, opening, version)


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
    )
    return job.with_clients(clients)


def _least(known: float, told: dict[str, object], field: str) -> float:
    asked = told.get(field)
    return float(known) if asked is None else min(float(known), float(asked))  # type: ignore[arg-type]


def _offers(roster: Roster, job: DataJob, side: ServerSide, plan: Plan, opening: Opening, version: int) -> list[Offer]:
    contract, model, server = plan.contract, plan.calibration.model, job.server
    shares = np.stack(
        [model.sampling, model.labeling, model.reporting, model.reporting_sampling, model.reporting_labeling], axis=1
    ).tolist()
    return [
        Offer(
            job=roster.job_name,
            version=version,
            client=name,
            index=i,
            public_key=roster.described[name]["public_key"],
            operator_key=opening.operator_key,
            samples=job.clients.dataset_size[i],
            classes=side.test.classes,
            batch_size=int(contract.batch_size[i]),
            rounds=plan.training.rounds,
            local_steps=plan.training.local_steps,
            step_size=plan.training.step_size,
            seed=opening.seed,
            model=asdict(job.model),
            image_shape=side.test.images.shape[1:],
            weight=float(plan.clients.weight[i]),
            participation=1.0,
            terms=Terms(
                float(contract.base[i]), float(contract.slope[i]), float(contract.labeling_cost[i]), server.minor_units
            ),
            sample_cost=float(plan.clients.sample_cost[i]),
            expected_loss=model.truthful_loss(contract.batch_size),
            loss_error=plan.loss_error,
            loss_share=LossShare(*shares[i]),
            commitment=opening.commitment,
            test_samples=server.test_samples,
            label_seconds=server.label_seconds,
            round_seconds=server.round_seconds,
            currency=server.currency,
            formula=FORMULA,
            dropping_out=DROPPING_OUT,
        )
        for i, name in enumerate(job.clients.name)
    ]
