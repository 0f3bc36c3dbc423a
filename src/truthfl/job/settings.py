"""Settings of the operator: sections [server] and [contract] of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.instructions import SECONDS_A_LABEL
from truthfl.job.cost_distribution import cost_distribution
from truthfl.job.size_limits import SECONDS
from truthfl.learning.aggregation import MEAN, is_own, require_aggregation
from truthfl.mechanism.audition_plan import MOST_PAY
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import (
    number,
    whole_number,
)
from truthfl.mechanism.economics import WARN_PAY_OVER_COST, WARN_PAY_OVER_WORTH, WarnFactors
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.registry import find_mechanism
from truthfl.texts import LONGEST_PAYMENT_NOTE, is_plain, plain

BOUNDS = {"paper": paper_bound, "sound": sound_bound}
DEFAULT_CONTRACT = "audition"  # of jobs on data
CONSTANTS_CONTRACT = "lceme"  # of jobs without data
BUDGET_BOUNDS = ("expected", "caps")
LONGEST_CURRENCY = 20
# Currencies of ISO 4217 that have no hundredths.
WHOLE = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split())  # noqa: SIM905
THOUSANDTHS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())  # noqa: SIM905


def _is_word(text: str) -> bool:
    """Whether it is short, and printable characters without spaces."""
    return 0 < len(text) <= LONGEST_CURRENCY and text.isprintable() and not any(map(str.isspace, text))


def usual_minor_units(currency: str) -> int:
    """How many minor units one unit of this currency has; 1 if it is no code of three capital letters."""
    if len(currency) != 3 or not (currency.isascii() and currency.isalpha() and currency.isupper()):
        return 1
    return 1 if currency in WHOLE else 1000 if currency in THOUSANDTHS else 100


@dataclass(frozen=True)
class ServerSettings:
    """The fields of section [server].

    loss_value         κ, the value of one unit of loss to the operator, in money
    bound              of a `ConstantsJob`: the loss model to plan on, "paper" or "sound"
    budget             upper limit of total pay: expected pay, or with budget_bounds = "caps" the most that can be paid;
                       None for no limit
    fewest_samples     of a `DataJob`: who joins with fewer samples, and fewer than her dataset_size, is not taken in
    most_pay           of a `DataJob`: the largest cap of a client's pay, as a multiple of the cost of her work
    most_expected_pay  of a `DataJob` whose contract has no cap: the largest expected pay, as such a multiple
    warn_pay_over_cost   the plan warns if expected pay of all is above this multiple of what their work costs
    warn_pay_over_worth  the plan warns if expected pay is above this multiple of what the work is worth to the operator
    margin             money added to each client's base pay
    confidence         of a `DataJob`: the probability with which the margin keeps honest pay from falling below cost
    test_samples       number of test samples over which the final loss is averaged
    aggregation        how the reports of a round are combined: "mean", "trimmed", "median", or by a Flower strategy,
                       "FILE.py:NAME"
    cost_distribution  of the contract "lceme": the distribution of private sample costs, by the name and the parameters
                       of a SciPy distribution; None if the costs of [clients] are known
    loss_variance      of a `ConstantsJob`: variance of the loss between test samples
    currency           name of the money
    minor_units        number of the ledger's whole units in one unit of the job's money; by default what the currency
                       has: 100 for EUR and other codes of ISO 4217, 1 for JPY and the like, 1000 for KWD and the like,
                       and 1 for a currency that is no such code
    payment_note       how and when clients are paid, for them to read: at most 300 letters, in the signed offers
    enrol_seconds, answer_seconds, label_seconds, audition_seconds, round_seconds
                       time limits for clients to enrol, to answer an offer, to label, to send the solo model, to report
    """

    loss_value: float = 1.0
    bound: str = "paper"
    budget: float | None = None
    budget_bounds: str = "expected"
    fewest_samples: int = 10
    most_pay: float = MOST_PAY
    most_expected_pay: float = 30.0
    warn_pay_over_cost: float = WARN_PAY_OVER_COST
    warn_pay_over_worth: float = WARN_PAY_OVER_WORTH
    margin: float = 0.0
    confidence: float = 0.95
    test_samples: int = 1
    aggregation: str = MEAN
    cost_distribution: Mapping[str, Any] | None = None
    loss_variance: float = 0.0
    currency: str = "cent"
    minor_units: int = None  # type: ignore[assignment]  # follows from the currency
    payment_note: str = ""
    enrol_seconds: float = 600.0
    answer_seconds: float = 86_400.0
    label_seconds: float = 604_800.0
    audition_seconds: float = 3600.0
    round_seconds: float = 600.0

    def __post_init__(self) -> None:
        number("loss_value", self.loss_value, positive=True)
        if self.budget is not None:
            number("budget", self.budget, positive=True)
        number("margin", self.margin)
        whole_number("test_samples", self.test_samples, at_least=1)
        number("loss_variance", self.loss_variance, at_least=0.0)
        whole_number("fewest_samples", self.fewest_samples, at_least=1)
        for field in ("most_pay", "most_expected_pay"):
            if (factor := number(field, getattr(self, field))) <= 1.0:
                raise InputError(f"{field} is {factor:g}; it must be above 1, for pay covers cost and a margin.")
        for field in ("warn_pay_over_cost", "warn_pay_over_worth"):
            number(field, getattr(self, field), positive=True)
        if self.budget_bounds not in BUDGET_BOUNDS:
            raise InputError(
                f"budget_bounds is {self.budget_bounds!r}; it must be one of {', '.join(map(repr, BUDGET_BOUNDS))}."
            )
        require_aggregation(self.aggregation)
        if self.cost_distribution is not None:
            cost_distribution(self.cost_distribution)
        for field in SECONDS:
            number(field, getattr(self, field), positive=True)
        if not isinstance(self.currency, str) or not _is_word(self.currency):
            raise InputError(
                f"currency is {str(self.currency)[:LONGEST_CURRENCY]!a}; it must be three letters, as EUR, or a word "
                f"of at most {LONGEST_CURRENCY} letters without spaces and control characters."
            )
        if self.minor_units is None:
            object.__setattr__(self, "minor_units", usual_minor_units(self.currency))
        whole_number("minor_units", self.minor_units, at_least=1)
        if not is_plain(self.payment_note, LONGEST_PAYMENT_NOTE):
            raise InputError(
                f"payment_note is {plain(repr(self.payment_note), 60)}; it must be a text of at most "
                f"{LONGEST_PAYMENT_NOTE} letters in one line, without control characters."
            )
        if not 0.5 <= number("confidence", self.confidence) < 1.0:
            raise InputError(f"confidence is {self.confidence:g}; it must be a number from 0.5 up to, but not, 1.")
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise InputError(f"bound is {self.bound!r}; it must be one of {', '.join(map(repr, BOUNDS))}.")

    def label_time_warnings(self, most_labels: int) -> list[str]:
        """What to say if somebody who labels so many samples by hand has too little time."""
        needed = SECONDS_A_LABEL * most_labels
        if needed <= self.label_seconds:
            return []
        return [
            f"Beware: up to {most_labels:,} labels at {SECONDS_A_LABEL:g} seconds each take {needed:,.0f} seconds, and "
            f"label_seconds is {self.label_seconds:,.0f}: who labels by hand will not be done in time."
        ]

    @property
    def warn_factors(self) -> WarnFactors:
        """The multiples above which expected pay is warned of."""
        return WarnFactors(self.warn_pay_over_cost, self.warn_pay_over_worth)

    def document(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = asdict(self)
        if is_own(self.aggregation):
            from truthfl.learning.own_strategy import portable

            values["aggregation"] = portable(self.aggregation)
        return values


@dataclass(frozen=True)
class ContractChoice:
    """The fields of section [contract]: the kind of a registered mechanism."""

    kind: str = CONSTANTS_CONTRACT

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(f"kind is {self.kind!r}; it must be a text.")
        find_mechanism(self.kind)

    @property
    def mechanism(self) -> type[Mechanism]:
        return find_mechanism(self.kind)
