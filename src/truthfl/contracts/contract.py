"""`Mechanism`, the interface of contracts, and `Observation`, from which they pay. docs/mechanism.md, section 7.

Effort, batches and labels are not observed. Observed are the final test loss, the delivered reports, the clients'
claims, the models that they train alone and, for some mechanisms, contributions.

A mechanism is a frozen dataclass that derives from `Mechanism`: its fields are the assigned batch sizes and its terms,
one number per client each. `registry` finds it by its kind. docs/mechanism.md, section 7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.lceme.assignment import optimal_batch_sizes
from truthfl.contracts.lceme.loss_model import LossModel
from truthfl.contracts.setting import Clients, FloatArray, Training
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.contracts.audition.plan import AuditionMeasurement
    from truthfl.contracts.lceme.private_costs import CostDistribution


class Evidence(Enum):
    """A kind of evidence that a mechanism can need. Jobs collect those in `COLLECTED_BY_JOBS`."""

    TEST_LOSS = "the test loss"
    DELIVERED_ROUNDS = "delivered rounds"
    CLAIMED_BATCH = "claimed batch sizes"
    LEAVE_ONE_OUT = "leave-one-out contributions"
    SHAPLEY = "shapley contributions"
    SOLO_LOSS = "solo models"


ALWAYS_COLLECTED = frozenset({Evidence.TEST_LOSS, Evidence.DELIVERED_ROUNDS})
COLLECTED_BY_JOBS = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}  # solo models if the mechanism needs them
CONTRIBUTIONS = frozenset({Evidence.LEAVE_ONE_OUT, Evidence.SHAPLEY})


@dataclass(frozen=True)
class Observation:
    """The observation from which client i is paid, at position i of each field; fields broadcast to (…, N).

    In a job all positions hold the same observation. To compute the pay of each client if she alone deviated, position
    i holds the observation of the scenario in which client i deviates.

    test_loss           loss of the final model on the test sample
    claimed_batch_size  the batch size that the client claims to have used
    contribution        loss drop credited to her, by the `Evidence` that the mechanism needs
    total_contribution  sum of all positive contributions
    contribution_error  standard error of her contribution; 0 where it is exact
    delivered, asked    number of rounds in which her report was accepted and in which she was asked; None: all rounds
    solo_loss           loss of the model that she trained alone; NaN if there is none, None for the expected one
    level_shift         shift of the expected solo loss, in standard deviations, by `peer_level.peer_shifts`
    present_labels      her labels and those of the others who took part, each times the share of rounds delivered;
                        None for all labels
    loss_rise           by how much the expected joint loss is higher because rounds did not change the model
    """

    test_loss: ArrayLike
    claimed_batch_size: ArrayLike = np.nan
    contribution: ArrayLike = np.nan
    total_contribution: ArrayLike = np.nan
    contribution_error: ArrayLike = 0.0
    delivered: ArrayLike | None = None
    asked: ArrayLike | None = None
    solo_loss: ArrayLike | None = None
    level_shift: ArrayLike = 0.0
    present_labels: ArrayLike | None = None
    loss_rise: ArrayLike = 0.0


NOT_TERMS = ("batch_size", "name")
LOSSES_TRIED = 101


@dataclass(frozen=True, eq=False)
class PlanInputs:
    """The arguments of `Mechanism.plan`.

    clients, loss_model, training
    loss_value   κ, the value of one unit of loss to the server, in money
    budget       upper limit of total expected pay; None for no limit
    margin       money added to each client's pay
    confidence   probability with which honest pay is not below its cost
    loss_error   function from batch sizes to the standard deviation of the loss at settlement around the expected loss
    audition     what the audition contract needs besides; None for other contracts
    cost_distribution  of private sample costs, for a contract with a screening menu; None if costs are known
    stated       (clients,) who states her own cost, which is then her `sample_cost`; None for all
    """

    clients: Clients
    loss_model: LossModel
    training: Training
    loss_value: float
    budget: float | None = None
    margin: float = 0.0
    confidence: float = 0.95
    loss_error: Callable[[FloatArray], float] = lambda _: 0.0
    audition: AuditionMeasurement | None = None
    cost_distribution: CostDistribution | None = None
    stated: NDArray[np.bool_] | None = None

    def best_batch_sizes(self) -> FloatArray:
        """The server's best batch sizes D' on the loss model, within the budget."""
        return optimal_batch_sizes(
            self.clients,
            self.loss_model,
            self.training,
            loss_value=self.loss_value,
            budget=self.budget,
            margin=self.margin,
        ).astype(float)


@dataclass(frozen=True)
class LinearPay:
    """Pay that falls linearly with the loss that a client causes, and rises linearly with the claimed batch size.

    slope       Φ_i, money lost per unit of loss caused
    claim_rate  money per claimed sample
    """

    slope: float | FloatArray
    claim_rate: float | FloatArray = 0.0


@dataclass(frozen=True)
class CalculationStep:
    """One line of a receipt: a formula in words, the same formula with numbers, and its result.

    name   of the step among those of its kind of mechanism, for a page that has the formula in other languages
    """

    formula: str
    numbers: tuple[float | int | str, ...]
    result: float
    name: str = ""


class Mechanism(ABC):
    """One way of paying N clients, announced beforehand together with the batch sizes it asks for.

    kind          its name in job files and offers
    name          its name in tables
    needs         the evidence that pay depends on
    formula       its pay in one line, for the offer
    dropping_out  consequences of a late, missing or refused report, for the offer
    has_cap       whether no test loss makes it pay more than an amount in the terms, which `pay_range` gives
    rescales      whether in a round the reports that are taken count for those that are missing too
    batch_size    D', the assigned batch sizes
    """

    kind: ClassVar[str]
    has_cap: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED
    formula: ClassVar[str] = "pay as the contract's own code computes it"
    dropping_out: ClassVar[str] = (
        "In a round in which a report is late, missing or refused, the others' reports keep their weights and hers "
        "counts as no change. An empty report is refused. Pay is the amount times the share of the rounds she was "
        "asked in whose report was taken."
    )
    name: str
    batch_size: FloatArray

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.kind

    @classmethod
    def plan(cls, inputs: PlanInputs) -> Self:  # noqa: ARG003
        """The mechanism for these clients: batch sizes and terms."""
        raise InputError(f"the contract {cls.kind!r} has no plan; it can be studied, but not offered.")

    @abstractmethod
    def pay(self, observation: Observation) -> FloatArray:
        """The pay of each client in the job's money, before rounding; an array (…, N)."""

    def passes(self, observation: Observation) -> NDArray[np.bool_]:  # noqa: ARG002
        """Whether each client takes part in the joint training; under most mechanisms all do."""
        return np.ones(np.shape(self.batch_size), dtype=bool)

    def require_sound_terms(self) -> None:  # noqa: B027  (most mechanisms have nothing to check)
        """Raise `InputError` if terms in an untrusted offer do not mean what the mechanism says of them."""

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:
        """The lowest and the highest pay of each client who delivers all rounds, for test losses between these two.

        Computed on a grid of losses, unless the mechanism overrides this.
        """
        pay = self.pay(Observation(np.linspace(lowest_loss, highest_loss, LOSSES_TRIED)[:, None]))
        return pay.min(axis=0), pay.max(axis=0)

    def deviation(self, expected_loss: float, loss_error: float) -> FloatArray:
        """The standard deviation of each client's pay if all are honest.

        Half of the difference of pay between one standard deviation of the test loss up and down, unless the mechanism
        overrides this.
        """
        low, high = (self.pay(Observation(expected_loss + sign * loss_error)) for sign in (-1.0, 1.0))
        return np.asarray(np.abs(low - high) / 2.0)

    def explanation(self, money: Callable[[float], str]) -> list[str]:  # noqa: ARG002
        """Sentences that explain to the only client of this mechanism how her pay is determined."""
        return [f"{self.formula[:1].upper()}{self.formula[1:]}."]

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        """The steps of the computation of the pay of the only client of this mechanism."""
        return [CalculationStep(self.formula, (), float(np.ravel(self.pay(observation))[0]))]

    def renamed(self, name: str) -> Self:
        """The same mechanism with another name in tables."""
        other = copy(self)
        object.__setattr__(other, "name", name)
        return other

    def linear(self) -> LinearPay | None:
        """Slope and claim rate if pay is linear in both, so that the best deviation has a formula; else None."""
        return None

    def terms(self) -> dict[str, FloatArray]:
        """The terms of the offers: every field but batch size and name, one number per client."""
        shape = np.shape(self.batch_size)
        return {
            field.name: np.broadcast_to(np.asarray(getattr(self, field.name), dtype=float), shape)
            for field in fields(self)  # type: ignore[arg-type]
            if field.name not in NOT_TERMS
        }

    @classmethod
    def for_one(cls, batch_size: float, terms: Mapping[str, Any]) -> Self:
        """The mechanism of a single client, from the terms in her offer."""
        wanted = {field.name for field in fields(cls)} - set(NOT_TERMS)  # type: ignore[arg-type]
        if set(terms) != wanted:
            raise InputError(
                f"the terms of a {cls.kind!r} offer are {', '.join(sorted(terms)) or 'missing'}; "
                f"they must be {', '.join(sorted(wanted))}."
            )
        try:
            arrays = {name: np.array([float(value)]) for name, value in terms.items()}
        except (TypeError, ValueError):
            raise InputError(f"the terms of a {cls.kind!r} offer are not all numbers.") from None
        return cls(batch_size=np.array([float(batch_size)]), **arrays)  # type: ignore[call-arg]


def delivered_share(amount: FloatArray, observation: Observation) -> FloatArray:
    """The amount times the share of rounds that were delivered; 0 for a client who was never asked."""
    if observation.delivered is None or observation.asked is None:
        return amount
    delivered, asked = np.asarray(observation.delivered, dtype=float), np.asarray(observation.asked, dtype=float)
    counted = amount * delivered
    shared: FloatArray = np.zeros(np.broadcast(counted, asked).shape)
    np.divide(counted, asked, out=shared, where=asked > 0)
    return shared


def require_sound(mechanism: Mechanism, clients: Clients, expected_loss: float) -> None:
    """Raise `InputError` unless batches are whole and within the data, and terms and expected pay are finite.

    Pay is not checked if it needs evidence that jobs do not collect.
    """
    count, kind = len(clients), mechanism.kind
    batches = np.asarray(mechanism.batch_size, dtype=float)
    if batches.shape != (count,):
        raise InputError(f"mechanism {kind!r} plans batch sizes of shape {batches.shape}; it must be ({count},).")
    bad = ~((batches >= 1) & (batches == np.floor(batches)) & (batches <= clients.dataset_size))
    if bad.any():
        who = int(np.argmax(bad))
        raise InputError(
            f"mechanism {kind!r} plans a batch size of {batches[who]:g} for {clients.label(who)}; it must be a whole "
            f"number from 1 to {clients.dataset_size[who]}."
        )
    try:
        terms = mechanism.terms()
    except ValueError:
        raise InputError(f"mechanism {kind!r} has terms that are not one number per client.") from None
    pay = np.asarray(mechanism.pay(Observation(expected_loss)), dtype=float)
    if pay.shape != (count,):
        raise InputError(f"mechanism {kind!r} pays an array of shape {pay.shape}; it must be ({count},).")
    amounts = {f"the term {name!r}": term for name, term in terms.items()}
    if not mechanism.needs - COLLECTED_BY_JOBS:  # other evidence is not known when a job is planned
        amounts["the pay"] = pay
    for what, values in amounts.items():
        if not np.isfinite(values).all():
            who = int(np.argmin(np.isfinite(values)))
            raise InputError(f"mechanism {kind!r}: {what} of {clients.label(who)} is {values[who]}; it must be finite.")


def require_collected(mechanism: type[Mechanism]) -> None:
    """Raise `InputError` unless jobs collect all evidence that this mechanism needs.

    Solo models are made and tested by the terms of an audition, so that who pays by them derives from `Audition`.
    """
    from truthfl.contracts.audition.pay import Audition

    missing = mechanism.needs - COLLECTED_BY_JOBS
    if missing:
        what = " and ".join(sorted(evidence.value for evidence in missing))
        raise InputError(
            f"the contract {mechanism.kind!r} pays by {what}, which a job does not collect; it can be verified "
            "(truthfl verify), but not run."
        )
    if Evidence.SOLO_LOSS not in mechanism.needs:
        return
    if not issubclass(mechanism, Audition):
        raise InputError(
            f"the contract {mechanism.kind!r} pays by solo models and does not derive from Audition, whose terms say "
            "how they are made and tested: derive it from Audition, or pay by other evidence."
        )
    if mechanism.pay is not Audition.pay:
        raise InputError(
            f"the contract {mechanism.kind!r} has a pay of its own; pay is label_pay + computing_pay, which receipts "
            "show one by one: change these."
        )
