"""An offer's pay in plain amounts: what is sure, likely and the most, per sample and per hour of labeling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truthfl.instructions import SECONDS_A_LABEL
from truthfl.ledger.terms import Offer
from truthfl.page.offer_outlook import Spread

LIKELY_DEVIATIONS = 1.96  # 19 of 20 values of a normal distribution are within so many


@dataclass(frozen=True)
class PaySummary:
    """Amounts in the job's currency, all for honest work.

    per_sample    expected pay by the number of samples to label
    least         the lowest pay: exact if it is `sure`; otherwise that of a model that learns nothing
    likely_least, likely_most  between these are 19 of 20 amounts
    most          the highest pay
    pace          seconds for one label; `pace_known` if it is hers, from her last labels
    label_seconds for all labels, at that pace
    per_hour      expected pay by the hours of labeling; what her computer does by itself takes none of her time
    """

    per_sample: float
    least: float
    sure: bool
    likely_least: float
    likely_most: float
    most: float
    pace: float
    pace_known: bool
    label_seconds: float
    per_hour: float


def pay_summary(offer: Offer, spread: Spread, pace: float | None) -> PaySummary:
    """The summary of this offer; `pace` is hers, or None if it is not known."""
    import numpy as np

    with np.errstate(all="ignore"):
        most = float(offer.mechanism.pay_range(0.0, spread.worst_loss)[1][0])
    around = LIKELY_DEVIATIONS * spread.deviation
    samples, seconds = offer.client.samples, SECONDS_A_LABEL if pace is None else pace
    return PaySummary(
        per_sample=spread.expected / samples,
        least=spread.worst,
        sure=spread.negative_chance == 0.0 and spread.worst >= 0.0,
        likely_least=max(spread.expected - around, spread.worst),
        likely_most=min(spread.expected + around, most),
        most=most,
        pace=seconds,
        pace_known=pace is not None,
        label_seconds=samples * seconds,
        per_hour=spread.expected / (samples * seconds) * 3600.0,
    )


def labels_worth(offer: Offer) -> dict[str, Any]:
    """What one label is expected to bring, for the page on which she labels; pay is decided later."""
    return {
        "per_label": offer.expected_pay / offer.client.samples,
        "samples": offer.client.samples,
        "minor_units": offer.job.minor_units,
        "currency": offer.job.currency,
        "audition": offer.job.has_audition,
    }
