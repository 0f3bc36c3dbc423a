"""`Contract`, the single interface of contracts, and `Observation`, which determines pay. docs/mechanism.md, section 7.

A contract covers everything from measuring to explaining. `plan_on` measures and plans on the operator's data. The
object has the terms. `pay` and `parts` compute money from an observation. `explanation` and `calculation` explain it.
Callers never ask which contract it is.

Effort, batches and labels are not observed. Observed are the final test loss, the delivered reports, the clients'
claims, the models that they train alone and, under some contracts, contributions.

A contract is a frozen dataclass that derives from `Contract`: its fields are the assigned batch sizes and its terms,
one number per client each. `registry` finds it by its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.lceme.assignment import optimal_batch_sizes
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, FloatArray, Training, number, whole_number
from truthfl.contracts.solo import SOLO_DROPPING_OUT, SOLO_TERMS, SoloResult, SoloStage
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.contracts.planning import PilotSide, Plan


class Evidence(Enum):
    """A kind of evidence that a contract can need. Jobs collect the kinds in `COLLECTED_BY_JOBS`."""

    TEST_LOSS = "the test loss"
    DELIVERED_ROUNDS = "delivered rounds"
    CLAIMED_BATCH = "claimed batch sizes"
    LEAVE_ONE_OUT = "leave-one-out contributions"
    SHAPLEY = "shapley contributions"
    SOLO_LOSS = "solo models"


ALWAYS_COLLECTED = frozenset({Evidence.TEST_LOSS, Evidence.DELIVERED_ROUNDS})
COLLECTED_BY_JOBS = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}  # solo models if the contract needs them
CONTRIBUTIONS = frozenset({Evidence.LEAVE_ONE_OUT, Evidence.SHAPLEY})


@dataclass(frozen=True)
class Contribution:
    """The loss drop credited to a client, by the `Evidence` that the contract needs; fields as of `Observation`.

    own    of the client
    total  sum of all positive ones
    error  standard error of `own`; 0 where it is exact
    """

    own: ArrayLike
    total: ArrayLike
    error: ArrayLike = 0.0


@dataclass(frozen=True)
class Observation:
    """The observation that determines client i's pay, at position i of each field; fields broadcast to (…, N).

    In a job all positions hold the same observation. To compute the pay of each client if they alone deviated, position
    i holds the observation of the scenario in which client i deviates.

    test_loss           loss of the final model on the test sample
    delivered, asked    number of rounds in which the report was accepted, and the client was asked; None: all
    present_labels      labels of the client and the others who took part, each times their share of rounds delivered;
                        None for all labels
    loss_rise           by how much the expected joint loss rises because rounds did not change the model

    Only where the contract's `needs` have it:

    solo                test of the models that clients trained alone; None stands for the expected losses
    claimed_batch_size  the batch size that the client claims to have used
    contribution        what the client added to the joint model
    """

    test_loss: ArrayLike
    delivered: ArrayLike | None = None
    asked: ArrayLike | None = None
    present_labels: ArrayLike | None = None
    loss_rise: ArrayLike = 0.0
    solo: SoloResult | None = None
    claimed_batch_size: ArrayLike | None = None
    contribution: Contribution | None = None


NOT_TERMS = ("batch_size", "name")
LOSSES_TRIED = 101
MOST_PAY = 3.0
BUDGET_BOUNDS = ("expected", "caps")


class CostDistribution(Protocol):
    """The methods used of a frozen continuous SciPy distribution."""

    def support(self) -> tuple[float, float]: ...
    def cdf(self, x: FloatArray) -> FloatArray: ...
    def pdf(self, x: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class People:
    """The clients of a planned job, (clients,) each.

    dataset_size       how many samples they hold
    labeling_cost      cost of labeling all these samples
    sample_cost        cost of one sample in a gradient
    participation      the share of rounds in which they are asked
    stated             whether they state their own cost, which is then their `sample_cost`; None: all do
    cost_distribution  of private sample costs, for a contract with a screening menu; None if costs are known
    """

    dataset_size: NDArray[np.int64]
    labeling_cost: FloatArray
    sample_cost: FloatArray
    participation: FloatArray
    name: tuple[str, ...] | None = None
    stated: NDArray[np.bool_] | None = None
    cost_distribution: CostDistribution | None = None


@dataclass(frozen=True)
class Prices:
    """The operator's prices.

    loss_value         κ, the value of one unit of loss to the server, in money
    budget             upper limit of total pay; None for no limit
    budget_bounds      what the budget bounds: "expected" pay, or the sum of "caps"
    margin             money added to each client's pay
    confidence         probability with which honest pay is not below its cost
    most_pay           the largest cap, as a multiple of the cost of honest work
    test_samples       number of draws in the test at settlement
    """

    loss_value: float = 1.0
    budget: float | None = None
    budget_bounds: str = "expected"
    margin: float = 0.0
    confidence: float = 0.95
    most_pay: float = MOST_PAY
    test_samples: int = 1

    def __post_init__(self) -> None:
        number("loss_value", self.loss_value, positive=True)
        if self.budget is not None:
            number("budget", self.budget, positive=True)
        if self.budget_bounds not in BUDGET_BOUNDS:
            raise InputError(
                f"budget_bounds is {self.budget_bounds!r}; it must be one of {', '.join(map(repr, BUDGET_BOUNDS))}."
            )
        number("margin", self.margin)
        if not 0.5 <= number("confidence", self.confidence) < 1.0:
            raise InputError(f"confidence is {self.confidence:g}; it must be a number from 0.5 up to, but not, 1.")
        require_multiple("most_pay", self.most_pay)
        whole_number("test_samples", self.test_samples, at_least=1)


def require_multiple(field: str, value: float) -> None:
    """Raise `InputError` unless a limit of pay, as a multiple of cost, is above 1."""
    if (factor := number(field, value)) <= 1.0:
        raise InputError(f"{field} is {factor:g}; it must be above 1, for pay covers cost and a margin.")


@dataclass(frozen=True, eq=False)
class SoloPilot:
    """What the pilot says of training alone: what to expect of the models, and what it costs each client."""

    stage: SoloStage
    cost: FloatArray


@dataclass(frozen=True, eq=False)
class PlanInputs:
    """The arguments of `Contract.plan`.

    clients, loss_model, training, prices
    loss_error   function from batch sizes to the standard deviation of the loss at settlement around the expected loss
    cost_distribution, stated   of private costs, as in `People`
    solo         of models trained alone on all samples; None if the contract does not need them
    """

    clients: Clients
    loss_model: LossModel
    training: Training
    prices: Prices
    loss_error: Callable[[FloatArray], float] = lambda _: 0.0
    cost_distribution: CostDistribution | None = None
    stated: NDArray[np.bool_] | None = None
    solo: SoloPilot | None = None

    def best_batch_sizes(self) -> FloatArray:
        """The server's best batch sizes D' on the loss model, within the budget."""
        return optimal_batch_sizes(
            self.clients,
            self.loss_model,
            self.training,
            loss_value=self.prices.loss_value,
            budget=self.prices.budget,
            margin=self.prices.margin,
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

    formula   a `coded` text, if the page has it in other languages
    """

    formula: str
    numbers: tuple[float | int | str, ...]
    result: float


class Contract(ABC):
    """One way of paying N clients, announced in advance together with the batch sizes that it asks for.

    A contract whose `needs` include solo models has the fields `solo_level`, `solo_spread` and `gate`, as in
    `SoloStage`. Without a solo loss (NaN), pay must be finite.

    kind          its name in job files and offers
    name          its name in tables
    study_name    its name in tables of several contracts that pay for the same job
    needs         the evidence that pay depends on
    recipe        how clients train alone, as in `Recipe.document`; None: tuned on pilot data
    formula       its pay in one line, for the offer
    dropping_out  consequences of a late, missing or refused report, for the offer
    formula_keys, dropping_out_key   the same in the page's catalogues; empty if they have no translation
    part_words    the parts of pay by name, in words that follow "for"; empty if pay has no parts
    has_cap       whether pay is limited for every test loss by an amount in the terms; `pay_range` returns it
    rescales      whether the accepted reports of a round also count for the missing ones
    counts_loss_rise  whether its formula has `loss_rise`; under other contracts the tested loss counts as lower
    pays_by_joint_loss  whether pay depends on the joint model's test
    is_calibrated  whether the joint model is tested, and published, with a calibration fitted on pilot data
    screens       whether it has a menu of contracts for private costs
    batch_size    D', the assigned batch sizes
    """

    kind: ClassVar[str]
    study_name: ClassVar[str]
    has_cap: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    counts_loss_rise: ClassVar[bool] = False
    pays_by_joint_loss: ClassVar[bool] = True
    is_calibrated: ClassVar[bool] = False
    screens: ClassVar[bool] = False
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED
    recipe: ClassVar[Mapping[str, Any] | None] = None
    formula: ClassVar[str] = "pay as the contract's own code computes it"
    formula_keys: ClassVar[tuple[str, ...]] = ()
    dropping_out: ClassVar[str] = (
        "A report that is late, missing or refused counts as no change in its round, and the others' reports keep "
        "their weights. An empty report is refused. Pay is the amount times the share of the participant's requested "
        "reports that were taken."
    )
    dropping_out_key: ClassVar[str] = "terms.dropping_out"
    part_words: ClassVar[Mapping[str, str]] = {}
    name: str
    batch_size: FloatArray

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if "name" not in own:
            cls.name = cls.kind
        if "study_name" not in own:
            cls.study_name = cls.name
        if Evidence.SOLO_LOSS in cls.needs and cls.dropping_out == Contract.dropping_out:
            cls.dropping_out, cls.dropping_out_key = f"{SOLO_DROPPING_OUT} {Contract.dropping_out}", ""
        for words, key, none in (("formula", "formula_keys", ()), ("dropping_out", "dropping_out_key", "")):
            if words in own and key not in own:  # a translation is valid only for the words that it translates
                setattr(cls, key, none)

    @classmethod
    def plan_on(cls, pilot: PilotSide, people: People, prices: Prices) -> Plan:
        """The plan of a job on the operator's own data.

        By default: measure the loss model and, if needed, the expectations of solo models; then call `plan`.
        """
        from truthfl.contracts.planning import plan_on_loss_model

        return plan_on_loss_model(cls, pilot, people, prices)

    @classmethod
    def plan(cls, inputs: PlanInputs) -> Self:  # noqa: ARG003
        """The contract for these clients: batch sizes and terms."""
        raise InputError(f"the contract {cls.kind!r} has no plan; it can be studied, but not offered.")

    @classmethod
    def rents(cls, inputs: PlanInputs) -> FloatArray | None:  # noqa: ARG003
        """What each client is paid above cost so that they state their true cost; None if costs are known."""
        return None

    @abstractmethod
    def pay(self, observation: Observation) -> FloatArray:
        """The pay of each client in the job's money, before rounding; an array (…, N)."""

    def pay_at(self, test_loss: ArrayLike) -> FloatArray:
        """Pay if the loss is this and nobody does less than asked; NaN if it needs what jobs do not collect."""
        if self.needs <= COLLECTED_BY_JOBS:
            return np.asarray(self.pay(Observation(test_loss)), dtype=float)
        return np.full(np.broadcast_shapes(np.shape(test_loss), np.shape(self.batch_size)), np.nan)

    def parts(self, observation: Observation) -> dict[str, FloatArray]:  # noqa: ARG002
        """Pay in parts by name, which add up to `pay`; empty if it has none."""
        return {}

    def most_parts(self) -> dict[str, FloatArray]:
        """The most that each part of pay can be, by name."""
        return {}

    @property
    def solo(self) -> SoloStage | None:
        """What is expected of solo models; None if it needs none."""
        if Evidence.SOLO_LOSS not in self.needs:
            return None
        level, spread, gate = (np.asarray(getattr(self, name), dtype=float) for name in SOLO_TERMS)
        return SoloStage(level, spread, gate)

    @property
    def stage(self) -> SoloStage:
        """What is expected of solo models; `InputError` if it needs none."""
        if self.solo is None:
            raise InputError(f"the contract {self.kind!r} expects nothing of solo models.")
        return self.solo

    def expected_solo_loss(self, observation: Observation) -> FloatArray:
        """The expected solo loss of each client, given the others' solo losses."""
        stage, seen = self.stage, observation.solo
        return np.asarray(stage.level + stage.spread * np.asarray(seen.level_shift if seen else 0.0, dtype=float))

    def passes(self, observation: Observation) -> NDArray[np.bool_]:
        """Whether each client takes part in the joint training; if no solo models are tested, all do.

        A client without a solo loss (NaN) does not.
        """
        if self.solo is None or observation.solo is None:
            return np.ones(np.shape(self.batch_size), dtype=bool)
        excess = np.asarray(observation.solo.loss, dtype=float) - self.expected_solo_loss(observation)
        with np.errstate(invalid="ignore"):
            return np.asarray(excess <= self.stage.gate)

    def too_good(self, observation: Observation) -> NDArray[np.bool_]:
        """Whether a solo model is so much better than expected that the operator checks it before it is paid."""
        if self.solo is None or observation.solo is None:
            return np.zeros(np.shape(self.batch_size), dtype=bool)
        below = self.expected_solo_loss(observation) - np.asarray(observation.solo.loss, dtype=float)
        with np.errstate(invalid="ignore"):
            return np.asarray(below > self.stage.gate)

    def expected_joint_loss(self, observation: Observation) -> FloatArray | None:  # noqa: ARG002
        """The joint loss on which pay is based, for the clients who took part; None: the offer's."""
        return None

    def require_sound_terms(self) -> None:
        """Raise `InputError` if terms in an untrusted offer do not mean what the contract says of them."""
        if self.solo is None:
            return
        for name, values in zip(SOLO_TERMS, (self.solo.level, self.solo.spread, self.solo.gate), strict=True):
            if not np.isfinite(values).all():
                raise InputError(f"the offer's {name} is not finite.")
        if (self.solo.spread <= 0).any():
            raise InputError("the offer's solo_spread is not above 0.")
        if (self.solo.gate < 0).any():
            raise InputError(f"the offer's gate is {self.solo.gate.min()}; it must be a number from 0 on.")

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:
        """The lowest and the highest pay of each client who delivers all rounds, for test losses between these two.

        Computed on a grid of losses, unless the contract overrides it.
        """
        pay = self.pay_at(np.linspace(lowest_loss, highest_loss, LOSSES_TRIED)[:, None])
        return pay.min(axis=0), pay.max(axis=0)

    def deviation(self, expected_loss: float, loss_error: float) -> FloatArray:
        """The standard deviation of each client's pay if all are honest.

        Half of the difference of pay between one standard deviation of the test loss up and down, unless the contract
        overrides it.
        """
        low, high = (self.pay_at(expected_loss + sign * loss_error) for sign in (-1.0, 1.0))
        return np.asarray(np.abs(low - high) / 2.0)

    def explanation(self, money: Callable[[float], str]) -> list[str]:  # noqa: ARG002
        """Sentences that explain to the only client of this contract how their pay is determined."""
        return [f"{self.formula[:1].upper()}{self.formula[1:]}."]

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        """The steps of the computation of the pay of the only client of this contract."""
        return [CalculationStep(self.formula, (), float(np.ravel(self.pay(observation))[0]))]

    def renamed(self, name: str) -> Self:
        """The same contract with a different name in tables."""
        if name == self.name:
            return self
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
        """The contract of a single client, from the terms in their offer."""
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


def require_sound(contract: Contract, clients: Clients, expected_loss: float) -> None:
    """Raise `InputError` unless batches are whole and within the data, and terms and expected pay are finite.

    Pay is not checked if it needs evidence that jobs do not collect.
    """
    count, kind = len(clients), contract.kind
    batches = np.asarray(contract.batch_size, dtype=float)
    if batches.shape != (count,):
        raise InputError(f"the contract {kind!r} plans batch sizes of shape {batches.shape}; it must be ({count},).")
    bad = ~((batches >= 1) & (batches == np.floor(batches)) & (batches <= clients.dataset_size))
    if bad.any():
        who = int(np.argmax(bad))
        raise InputError(
            f"the contract {kind!r} plans a batch size of {batches[who]:g} for {clients.label(who)}; it must be a "
            f"whole number from 1 to {clients.dataset_size[who]}."
        )
    try:
        terms = contract.terms()
    except ValueError:
        raise InputError(f"the contract {kind!r} has terms that are not one number per client.") from None
    amounts = {f"the term {name!r}": term for name, term in terms.items()}
    if contract.needs <= COLLECTED_BY_JOBS:
        pay = amounts["the pay"] = contract.pay_at(expected_loss)
        if pay.shape != (count,):
            raise InputError(f"the contract {kind!r} pays an array of shape {pay.shape}; it must be ({count},).")
    if contract.solo is not None:
        nobody = Observation(expected_loss, delivered=0, asked=0, solo=SoloResult(np.full(count, np.nan)))
        amounts["the pay without a solo model"] = np.asarray(contract.pay(nobody), dtype=float)
    for what, values in amounts.items():
        if not np.isfinite(values).all():
            who = int(np.argmin(np.isfinite(values)))
            raise InputError(
                f"the contract {kind!r}: {what} of {clients.label(who)} is {values[who]}; it must be finite."
            )


def require_collected(contract: type[Contract]) -> None:
    """Raise `InputError` unless jobs collect all evidence that this contract needs, by terms that say how."""
    missing = contract.needs - COLLECTED_BY_JOBS
    if missing:
        what = " and ".join(sorted(evidence.value for evidence in missing))
        raise InputError(
            f"the contract {contract.kind!r} pays by {what}, which a job does not collect; it can be verified "
            "(truthfl verify), but not run."
        )
    lacking = [name for name in SOLO_TERMS if name not in {field.name for field in fields(contract)}]  # type: ignore[arg-type]
    if Evidence.SOLO_LOSS in contract.needs and lacking:
        raise InputError(
            f"the contract {contract.kind!r} pays by solo models, and its terms lack {', '.join(lacking)}: what is "
            "expected of these models, which a participant must know."
        )
