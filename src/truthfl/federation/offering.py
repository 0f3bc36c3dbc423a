"""The plan, the offers, and the clients' answers; who declines is left out, and the others get new offers.

Looks at `enrolment` (who is there), `messages`, `learning` (the plan) and the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.enrolment import ANSWER_WITHIN, LOOK_EVERY, Roster
from truthfl.federation.messages import LABELS, OFFER, paper_in, question
from truthfl.job import DataJob, Participants
from truthfl.learning.planning import Plan
from truthfl.learning.scene import ServerSide
from truthfl.ledger.contents import Contents, contents, offer_key
from truthfl.ledger.documents import LossShare, Offer, answer_fault, offer_from
from truthfl.ledger.entry import Item
from truthfl.ledger.pay import DROPPING_OUT, FORMULA, Terms

MakePlan = Callable[[DataJob, ServerSide], Plan]


def agree(roster: Roster, make_plan: MakePlan, *, seed: int, commitment: str, operator_key: str) -> list[Offer]:
    """Offers to everybody until all who were made one accept it."""
    found = contents(roster.job_name, roster.book.entries(roster.job_name))
    names = [name for name in roster.job.clients.name if name in roster.described]
    version = 1
    while True:
        offers = _written(found, version)
        if not offers:
            job = _for(roster, names)
            plan = make_plan(job, job.server_side())
            offers = _offers(roster, job, plan, version, seed, commitment, operator_key)
            roster.book.append_all([Item(roster.job_name, "plan", str(version), planned(plan)), *_items(offers)])
        declined = _declined(roster, found, offers)
        if not declined:
            return offers
        names = [offer.client for offer in offers if offer.client not in declined]
        if not names:
            raise InputError("every client declined the offer; there is nobody to train with.")
        version += 1


def wait_for_labels(roster: Roster, offers: list[Offer], tell: Callable[[int], None]) -> None:
    """Until everybody has labeled, or time is up; `tell` hears how many have."""
    waiting = {offer.client: offer for offer in offers}
    deadline = time.monotonic() + roster.job.server.label_seconds
    while True:
        questions = [
            question(LABELS, roster.node_of[name], {"offer": offer.hash})
            for name, offer in waiting.items()
            if name in roster.node_of
        ]
        name_of = {node: name for name, node in roster.node_of.items()}
        for reply in roster.grid.send_and_receive(questions, timeout=ANSWER_WITHIN):
            name = name_of.get(reply.metadata.src_node_id)
            if name in waiting and not reply.has_error() and _said(reply, "ready") is True:
                del waiting[name]
        tell(len(offers) - len(waiting))
        if not waiting or time.monotonic() >= deadline:
            return
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()


def planned(plan: Plan) -> dict[str, object]:
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


def _for(roster: Roster, names: list[str]) -> DataJob:
    """The job with those who are there: at most the samples and the costs that the operator knows of."""
    known, place = roster.job.clients, roster.job.clients.name.index
    rows = [place(name) for name in names]
    told = [roster.described[name] for name in names]
    clients = Participants(
        name=names,
        dataset_size=[min(known.dataset_size[row], one["samples"]) for row, one in zip(rows, told, strict=True)],
        labeling_cost=[_least(known.labeling_cost[r], one, "labeling_cost") for r, one in zip(rows, told, strict=True)],
        sample_cost=[_least(known.sample_cost[r], one, "sample_cost") for r, one in zip(rows, told, strict=True)],
        behaviour=[known.behaviour[row] for row in rows],
    )
    return roster.job.with_clients(clients)


def _least(known: float, told: dict[str, object], field: str) -> float:
    asked = told.get(field)
    return float(known) if asked is None else min(float(known), float(asked))  # type: ignore[arg-type]


def _offers(
    roster: Roster, job: DataJob, plan: Plan, version: int, seed: int, commitment: str, operator_key: str
) -> list[Offer]:
    contract, model, server = plan.contract, plan.calibration.model, job.server
    side = job.server_side()
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
            operator_key=operator_key,
            samples=job.clients.dataset_size[i],
            classes=side.test.classes,
            batch_size=int(contract.batch_size[i]),
            rounds=plan.training.rounds,
            local_steps=plan.training.local_steps,
            step_size=plan.training.step_size,
            seed=seed,
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
            commitment=commitment,
            test_samples=server.test_samples,
            label_seconds=server.label_seconds,
            round_seconds=server.round_seconds,
            currency=server.currency,
            formula=FORMULA,
            dropping_out=DROPPING_OUT,
        )
        for i, name in enumerate(job.clients.name)
    ]


def _written(found: Contents, version: int) -> list[Offer]:
    papers = [entry.document for key, entry in found.offers.items() if key.startswith(f"{version}/")]
    return sorted((offer_from(paper) for paper in papers), key=lambda offer: offer.index)


def _items(offers: list[Offer]) -> list[Item]:
    return [Item(offer.job, "offer", offer_key(offer), offer.document()) for offer in offers]


def _declined(roster: Roster, found: Contents, offers: list[Offer]) -> set[str]:
    """Ask until everybody has answered or time is up; who has not answered by then has declined."""
    declined = {o.client for o in offers if offer_key(o) in found.answers and not _accepts(found, o)}
    waiting = {offer.client: offer for offer in offers if offer_key(offer) not in found.answers}
    deadline = time.monotonic() + roster.job.server.answer_seconds
    while waiting:
        there = {roster.node_of[name]: offer for name, offer in waiting.items() if name in roster.node_of}
        questions = [question(OFFER, node, offer.document()) for node, offer in there.items()]
        for reply in roster.grid.send_and_receive(questions, timeout=ANSWER_WITHIN):
            offer = there.get(reply.metadata.src_node_id)
            if offer is None or offer.client not in waiting or reply.has_error():
                continue
            paper = _said(reply, "answer")
            if not isinstance(paper, dict):
                continue
            fault = answer_fault(paper, offer)
            if fault is not None:
                _reject(roster, offer, f"answer: {fault}")
                continue
            roster.book.append(roster.job_name, "answer", offer_key(offer), paper)
            if paper["document"]["kind"] == "refusal":
                declined.add(offer.client)
            del waiting[offer.client]
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()
    for offer in waiting.values():
        _reject(roster, offer, "no answer in time")
    return declined | set(waiting)


def _accepts(found: Contents, offer: Offer) -> bool:
    return bool(found.answers[offer_key(offer)].document["document"]["kind"] == "acceptance")


def _reject(roster: Roster, offer: Offer, reason: str) -> None:
    said = {"stage": "offer", "round": None, "client": offer.client, "node": None, "reason": reason}
    roster.book.append(roster.job_name, "rejection", f"offer/{offer_key(offer)}/{time.time_ns()}", said)


def _said(reply: Message, field: str) -> Any:
    """What a stranger sent, or None if it cannot be read."""
    try:
        return paper_in(reply).get(field)
    except InputError:
        return None
