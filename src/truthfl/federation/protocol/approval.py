"""What the operator approves before the first offer: who would be asked what, for how much.

Imports the ledger's `terms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from truthfl.ledger.terms import Agreement, Offer

NOT_APPROVED = "the operator did not approve the plan; no offer was made."


@dataclass(frozen=True)
class PlannedOffer:
    """One client's offer in a few numbers; money is in the job's currency.

    most  her cap; under a contract without one, what she would be paid for a perfect model, with a loss of 0
    """

    client: str
    labels: int
    batch_size: int
    cost: float
    expected_pay: float
    most: float


@dataclass(frozen=True)
class PlanSummary:
    """A plan for the operator's eyes.

    has_cap   whether pay has a cap
    left_out  by name: why a client who enrolled is not asked
    """

    job: str
    version: int
    contract: str
    currency: str
    has_cap: bool
    offers: tuple[PlannedOffer, ...]
    left_out: Mapping[str, str]

    @property
    def total_expected(self) -> float:
        return sum(offer.expected_pay for offer in self.offers)

    @property
    def total_most(self) -> float:
        return sum(offer.most for offer in self.offers)

    @property
    def largest_factor(self) -> float:
        """The most that anybody is expected to be paid, as a multiple of the cost of her work."""
        return max(offer.expected_pay / offer.cost for offer in self.offers)

    def covers(self, later: PlanSummary) -> bool:
        """Whether who approved this plan has approved the later one: it costs no more, in expectation and at most."""
        return later.total_expected <= self.total_expected and later.total_most <= self.total_most

    def document(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return asdict(self)


Approve = Callable[[PlanSummary], bool]
"""Called before offers are sent; returns whether they may be."""


def approve_all(_: PlanSummary) -> bool:
    """For simulations, and for apps whose own code made the contract."""
    return True


def summary_of(agreement: Agreement, left_out: Mapping[str, str]) -> PlanSummary:
    """The summary of these offers."""
    terms, offers = agreement.terms, agreement.offers
    return PlanSummary(
        job=terms.name,
        version=terms.version,
        contract=terms.contract,
        currency=terms.currency,
        has_cap=offers[0].mechanism.has_cap,
        offers=tuple(map(_planned_offer, offers)),
        left_out=dict(left_out),
    )


def summary_from(document: Mapping[str, Any]) -> PlanSummary:
    """The summary in a document of `PlanSummary.document`."""
    return PlanSummary(**{**document, "offers": tuple(PlannedOffer(**offer) for offer in document["offers"])})


def _planned_offer(offer: Offer) -> PlannedOffer:
    most = offer.mechanism.pay_range(0.0, offer.job.expected_loss)[1]
    return PlannedOffer(
        client=offer.client.name,
        labels=offer.client.samples,
        batch_size=offer.client.batch_size,
        cost=offer.cost,
        expected_pay=offer.expected_pay,
        most=float(most[0]),
    )
