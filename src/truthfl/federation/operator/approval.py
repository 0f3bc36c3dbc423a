"""The plan that the operator approves before the first offer, and the files through which the server asks.

The server's terminal and page read the question and write the answer. `truthfl approve` may run under another account.
It answers only by a signed row of the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.amounts import decimal_places
from truthfl.contracts.payoff import PlanEconomics, WarnFactors, plan_economics
from truthfl.files import write_file
from truthfl.job import ServerSettings
from truthfl.ledger.canonical import canonical_bytes, digest, read_document
from truthfl.ledger.job_state import OfferNumbers, numbers_of
from truthfl.ledger.terms import Agreement

FOLDER, QUESTION, ANSWER = "plans", "plan.json", "answer.json"
POLL_SECONDS = 0.25


def show_plan(folder: Path, plan: PlanSummary) -> None:
    """Show the plan to whoever reads `shown_plan`; nobody has answered it yet."""
    (folder / FOLDER / ANSWER).unlink(missing_ok=True)
    write_file(folder / FOLDER / QUESTION, canonical_bytes(plan.document()), private=True)


def ask_by_file(folder: Path, plan: PlanSummary, in_ledger: Callable[[str], bool | None] = lambda _: None) -> bool:
    """Show the plan, and wait for the answer.

    in_ledger  returns the ledger's answer to the plan with this digest; None if there is none
    """
    show_plan(folder, plan)
    place = folder / FOLDER
    while True:
        commanded = in_ledger(digest(plan.document()))
        if commanded is not None:
            return commanded
        try:
            answer = read_document((place / ANSWER).read_bytes())
        except FileNotFoundError:
            time.sleep(POLL_SECONDS)
            continue
        if answer.get("plan") == digest(plan.document()):
            return answer.get("approved") is True
        (place / ANSWER).unlink()


def shown_plan(folder: Path) -> PlanSummary | None:
    """The plan that the server shows; None if there is none."""
    try:
        return summary_from(read_document((folder / FOLDER / QUESTION).read_bytes()))
    except FileNotFoundError:
        return None


def answer_plan(folder: Path, plan: PlanSummary, *, approved: bool) -> None:
    """Write whether the offers of this plan may be sent."""
    answer = {"plan": digest(plan.document()), "approved": approved}
    write_file(folder / FOLDER / ANSWER, canonical_bytes(answer), private=True)


def is_answered(folder: Path, plan: PlanSummary) -> bool:
    """Whether this plan has an answer."""
    try:
        return read_document((folder / FOLDER / ANSWER).read_bytes()).get("plan") == digest(plan.document())
    except FileNotFoundError:
        return False


def clear_plan(folder: Path) -> None:
    """Delete the question of an earlier attempt."""
    (folder / FOLDER / QUESTION).unlink(missing_ok=True)


NOT_APPROVED = "the operator did not approve the plan; no offer was made."


@dataclass(frozen=True)
class PlanSummary:
    """A plan as the operator sees it.

    minor_units     how many of them are one unit of the currency, which says with how many decimals money is shown
    has_cap         whether pay has a cap
    left_out        by name: why an enrolled client is not asked
    worth           what all work together is worth to the operator: loss_value times (untrained_loss − the expected
                    loss); None if the plan does not know
    untrained_loss  the loss of a model that nobody trained; None if the plan does not know
    warn_pay_over_cost, warn_pay_over_worth
                    multiples of cost and of worth above which expected pay is warned of
    warnings        what else speaks against these offers, and the best lie that was found, as `truthfl plan` says it
    """

    job: str
    version: int
    contract: str
    currency: str
    minor_units: int
    has_cap: bool
    offers: tuple[OfferNumbers, ...]
    left_out: Mapping[str, str]
    worth: float | None
    untrained_loss: float | None
    warn_pay_over_cost: float
    warn_pay_over_worth: float
    warnings: tuple[str, ...] = ()

    @property
    def economics(self) -> PlanEconomics:
        """Worth, cost and pay of all offers together, and the warnings."""
        own = [offer.worth for offer in self.offers if offer.worth is not None]
        return plan_economics(
            cost=np.array([offer.cost for offer in self.offers]),
            expected_pay=np.array([offer.expected_pay for offer in self.offers]),
            most_pay=np.array([offer.most for offer in self.offers]),
            has_cap=self.has_cap,
            own_worth=np.array(own) if len(own) == len(self.offers) else None,
            worth=self.worth,
            untrained_loss=self.untrained_loss,
            factors=WarnFactors(self.warn_pay_over_cost, self.warn_pay_over_worth),
            places=decimal_places(self.minor_units),
        )

    @property
    def sentences(self) -> list[str]:
        """What the work is worth and costs, and what speaks against the offers."""
        economics = self.economics
        return [f"{economics.worth_and_cost}.", *economics.warnings, *economics.remarks, *self.warnings]

    @property
    def total_cost(self) -> float:
        return sum(offer.cost for offer in self.offers)

    @property
    def total_expected(self) -> float:
        return sum(offer.expected_pay for offer in self.offers)

    @property
    def total_most(self) -> float:
        return sum(offer.most for offer in self.offers)

    @property
    def largest_factor(self) -> float:
        """The most that anybody is expected to be paid, as a multiple of the cost of their work."""
        return max(offer.expected_pay / offer.cost for offer in self.offers)

    def covers(self, later: PlanSummary) -> bool:
        """Whether approval of this plan covers the later one: it costs no more, in expectation and at most."""
        return later.total_expected <= self.total_expected and later.total_most <= self.total_most

    def document(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return asdict(self)


Approve = Callable[[PlanSummary], bool]
"""Called before offers are sent; returns whether they may be."""


def approve_all(_: PlanSummary) -> bool:
    """For simulations, and for apps whose own code made the contract."""
    return True


def summary_of(
    agreement: Agreement, plan: Mapping[str, Any], left_out: Mapping[str, str], server: ServerSettings
) -> PlanSummary:
    """The summary of these offers; `plan` is the plan's ledger document, which need not tell what the work is worth."""
    terms, offers = agreement.terms, agreement.offers
    own: Sequence[float | None] = plan.get("worth") or [None] * len(offers)
    return PlanSummary(
        job=terms.name,
        version=terms.version,
        contract=terms.contract,
        currency=terms.currency,
        minor_units=terms.minor_units,
        has_cap=offers[0].contract.has_cap,
        offers=tuple(numbers_of(offer, worth) for offer, worth in zip(offers, own, strict=True)),
        left_out=dict(left_out),
        worth=plan.get("worth_of_all"),
        untrained_loss=plan.get("untrained_loss"),
        warn_pay_over_cost=server.warn_pay_over_cost,
        warn_pay_over_worth=server.warn_pay_over_worth,
        warnings=tuple(plan.get("warnings", ())),
    )


def summary_from(document: Mapping[str, Any]) -> PlanSummary:
    """The summary in a document of `PlanSummary.document`."""
    lists = {
        "offers": tuple(OfferNumbers(**offer) for offer in document["offers"]),
        "warnings": tuple(document["warnings"]),
    }
    return PlanSummary(**{**document, **lists})
