"""What is promised to those who take part, and the offers that say so. Looks at `enrolment`, the mechanism, papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from truthfl.federation.protocol.enrolment import Roster
from truthfl.ledger.documents import LossShare, Offer
from truthfl.ledger.terms import DROPPING_OUT, FORMULA, Terms
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.setting import Clients, Training


@dataclass(frozen=True)
class Opening:
    """What is fixed when a job is opened, and stands in every offer: seed, commitment, the operator's public key."""

    seed: int
    commitment: str
    operator_key: str


@dataclass(frozen=True)
class Task:
    """What is trained and tested: the model in plain values, the shape of its pictures, the classes, the test draws."""

    model: Mapping[str, Any]
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    test_samples: int


@dataclass(frozen=True, eq=False)
class Promise:
    """A contract with some clients, the loss model it rests on, and how sure that is.

    clients     with their names, weights, costs and sizes
    loss_error  the standard deviation of the loss around what the model expects of honest work
    """

    clients: Clients
    training: Training
    loss_model: LossModel
    contract: Contract
    loss_error: float = 0.0

    @property
    def expected_loss(self) -> float:
        return self.loss_model.truthful_loss(self.contract.batch_size)


def offers_of(promise: Promise, roster: Roster, opening: Opening, task: Task, version: int) -> list[Offer]:
    """One offer to each of the promise's clients."""
    clients, contract, model, server = promise.clients, promise.contract, promise.loss_model, roster.server
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
            samples=int(clients.dataset_size[i]),
            classes=task.classes,
            batch_size=int(contract.batch_size[i]),
            rounds=promise.training.rounds,
            local_steps=promise.training.local_steps,
            step_size=promise.training.step_size,
            seed=opening.seed,
            model=task.model,
            image_shape=task.image_shape,
            weight=float(clients.weight[i]),
            participation=1.0,
            terms=Terms(
                base=float(contract.base[i]),
                slope=float(contract.slope[i]),
                labeling_cost=float(contract.labeling_cost[i]),
                minor_units=server.minor_units,
            ),
            sample_cost=float(clients.sample_cost[i]),
            expected_loss=promise.expected_loss,
            loss_error=promise.loss_error,
            loss_share=LossShare(*shares[i]),
            commitment=opening.commitment,
            test_samples=task.test_samples,
            label_seconds=server.label_seconds,
            round_seconds=server.round_seconds,
            currency=server.currency,
            formula=FORMULA,
            dropping_out=DROPPING_OUT,
        )
        for i, name in enumerate(clients.name or ())
    ]
