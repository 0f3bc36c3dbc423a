"""A contract with clients (`Promise`), converted to offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truthfl.contracts.contract import Contract, Evidence, require_collected, require_sound
from truthfl.contracts.formulas import COMMON
from truthfl.contracts.setting import Clients, Training
from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import Roster
from truthfl.instructions import Instructions
from truthfl.learning.tasks.task_choice import PICTURES
from truthfl.ledger.settlement import early_end_in_words
from truthfl.ledger.terms import (
    MEAN,
    PADDED,
    Agreement,
    ClientTerms,
    JobTerms,
    Offer,
    TriedLie,
    require_sound_start,
)


@dataclass(frozen=True)
class Opening:
    """Values fixed when a job is opened: the seed, the commitment to the test draw, the operator's public keys."""

    seed: int
    commitment: str
    operator_key: str
    agreement_key: str

    def document(self) -> dict[str, Any]:
        """The values in the job's ledger entry. The agreement key is in the terms."""
        return {"seed": self.seed, "commitment": self.commitment, "operator_key": self.operator_key}


@dataclass(frozen=True)
class TrainingTask:
    """The model in plain values, the shape of a sample, the names of the classes, the number of test draws, the task.

    task, instructions  as in `JobTerms`
    """

    model: Mapping[str, Any]
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    test_samples: int
    task: Mapping[str, Any] | None = None
    instructions: Instructions | None = None


@dataclass(frozen=True, eq=False)
class Promise:
    """A contract with clients, and the training for which it pays.

    clients     with their names, weights, costs and sizes
    contract    the contract that pays them
    expected_loss  of the joint model if all are honest; `loss_error` is the loss's standard deviation around it
    lies        for each client the lies that were found best, if any were searched; lies_tried: how many were tried
    report_bounds, aggregation, masked, loss_by_rounds   see `JobTerms`
    stated      for each client whether they stated the sample cost, if any did
    recipe      of solo training, for a contract that pays by solo models; audition_cost: what it costs each client
    start, solo_bound   see `JobTerms`
    """

    clients: Clients
    training: Training
    contract: Contract
    expected_loss: float
    loss_error: float = 0.0
    lies: Sequence[tuple[TriedLie, ...]] = ()
    lies_tried: int = 0
    recipe: Mapping[str, Any] | None = None
    audition_cost: Sequence[float] = ()
    report_bounds: tuple[tuple[int, float], ...] = ()
    aggregation: str = MEAN
    masked: bool = False
    loss_by_rounds: tuple[float, ...] = ()
    stated: Sequence[bool] = ()
    start: str = COMMON
    solo_bound: float = 0.0


def agreement_of(promise: Promise, roster: Roster, opening: Opening, task: TrainingTask, version: int) -> Agreement:
    """Return the job's terms and one offer to each of the promise's clients."""
    require_collected(type(promise.contract))
    require_sound(promise.contract, promise.clients, promise.expected_loss)
    if (Evidence.SOLO_LOSS in promise.contract.needs) != (promise.recipe is not None):
        raise InputError(
            f"the contract is {promise.contract.kind!r}; it must have a recipe just if it pays by models that clients "
            "train alone."
        )
    terms = _job_terms(promise, roster, opening, task, version)
    require_sound_start(terms)
    return Agreement(terms, tuple(Offer(terms, client) for client in _client_terms(promise, roster)))


def _job_terms(promise: Promise, roster: Roster, opening: Opening, task: TrainingTask, version: int) -> JobTerms:
    early_end = early_end_in_words(type(promise.contract), promise.loss_by_rounds)
    return JobTerms(
        name=roster.job_name,
        version=version,
        contract=promise.contract.kind,
        formula=promise.contract.formula,
        dropping_out=" ".join((promise.contract.dropping_out, early_end)),
        operator_key=opening.operator_key,
        model=task.model,
        image_shape=task.image_shape,
        task=task.task,
        instructions=task.instructions,
        picture_fit=PADDED if task.task is None or task.task["name"] == PICTURES.name else "",
        classes=task.classes,
        rounds=promise.training.rounds,
        local_steps=promise.training.local_steps,
        step_size=promise.training.step_size,
        momentum=promise.training.momentum,
        seed=opening.seed,
        expected_loss=promise.expected_loss,
        loss_error=promise.loss_error,
        commitment=opening.commitment,
        test_samples=task.test_samples,
        label_seconds=roster.server.label_seconds,
        round_seconds=roster.server.round_seconds,
        currency=roster.server.currency,
        minor_units=roster.server.minor_units,
        payment_note=roster.server.payment_note,
        lies_tried=promise.lies_tried,
        recipe=promise.recipe,
        agreement_key=opening.agreement_key,
        report_bounds=promise.report_bounds,
        aggregation=promise.aggregation,
        masked=promise.masked,
        least_participation=float(promise.clients.participation.min()),
        rescales=promise.contract.rescales,
        loss_by_rounds=promise.loss_by_rounds,
        audition_seconds=0.0 if promise.recipe is None else roster.server.audition_seconds,
        start=promise.start,
        solo_bound=promise.solo_bound,
        calibrated=promise.contract.is_calibrated,
    )


def _client_terms(promise: Promise, roster: Roster) -> list[ClientTerms]:
    clients, lies = promise.clients, promise.lies or [()] * len(promise.clients)
    audition_cost = promise.audition_cost or [0.0] * len(clients)
    stated = promise.stated or [False] * len(clients)
    terms = promise.contract.terms()
    pay = np.stack(list(terms.values()), axis=1).tolist() if terms else [[]] * len(clients)
    return [
        ClientTerms(
            name=name,
            index=i,
            public_key=roster.descriptions[name]["public_key"],
            samples=int(clients.dataset_size[i]),
            batch_size=int(promise.contract.batch_size[i]),
            weight=float(clients.weight[i]),
            participation=float(clients.participation[i]),
            labeling_cost=float(clients.labeling_cost[i]),
            sample_cost=float(clients.sample_cost[i]),
            pay=dict(zip(terms, pay[i], strict=True)),
            audition_cost=float(audition_cost[i]),
            lies=lies[i],
            stated=stated[i],
        )
        for i, name in enumerate(clients.name or ())
    ]
