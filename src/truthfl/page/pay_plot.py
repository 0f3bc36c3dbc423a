"""Data of the plots of pay: by test loss, or by the loss of her own model if there is an audition.

A plot has a curve [[loss, pay]], the range of 19 in 20 honest jobs (band), points with names, the title of the losses
and the currency (axes), and the loss above which she is stopped (limit; None without an audition). Names and the title
are keys of the catalogues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from truthfl.ledger.solo_evidence import SoloEvidence, expected_solo_loss
from truthfl.ledger.terms import Offer
from truthfl.page.audition_terms import audition_numbers, expected_evidence

CURVE_STEPS = 40
BESIDE_LIMIT = 1e-9  # relative distance of the points of the curve on both sides of the limit


def offer_plot(offer: Offer) -> dict[str, Any]:
    """The plot of an offer, with one point for honest work."""
    evidence = expected_evidence(offer)
    if evidence is None:
        return _by_test_loss(offer, {"plot.honest_work": offer.job.expected_loss})
    expected = expected_solo_loss(offer, 0.0)
    return _by_solo_loss(offer, offer.job.expected_loss, None, evidence, {"plot.honest_work": expected})


def receipt_plot(
    offer: Offer, test_loss: float, rounds: tuple[int, int] | None, evidence: SoloEvidence | None
) -> dict[str, Any]:
    """The plot of a receipt, with a point for what was expected and one for what came out.

    rounds    delivered and asked; None if she took no part: the line then is that of those who deliver all
    evidence  of her audition; None without one
    """
    if evidence is None:
        return _by_test_loss(offer, {"plot.expected": offer.job.expected_loss, "plot.this_job": test_loss})
    points = {"plot.expected": expected_solo_loss(offer, evidence.level_shift)}
    if evidence.solo_loss is not None:
        points["plot.your_model"] = float(evidence.solo_loss)
    return _by_solo_loss(offer, test_loss, rounds, evidence, points)


def _by_test_loss(offer: Offer, points: Mapping[str, float]) -> dict[str, Any]:
    job = offer.job
    band = [job.expected_loss - 2 * job.loss_error, job.expected_loss + 2 * job.loss_error]
    return _plot(offer, "plot.test_loss", offer.amount, points, band, None)


def _by_solo_loss(
    offer: Offer,
    test_loss: float,
    rounds: tuple[int, int] | None,
    evidence: SoloEvidence,
    points: Mapping[str, float],
) -> dict[str, Any]:
    terms, (delivered, asked) = audition_numbers(offer), rounds or (1, 1)
    level = expected_solo_loss(offer, evidence.level_shift)
    band = [level - 2 * terms["solo_spread"], level + 2 * terms["solo_spread"]]

    def pay(solo_loss: float) -> float:
        return offer.amount(test_loss, delivered, asked, replace(evidence, solo_loss=solo_loss))

    return _plot(offer, "plot.own_loss", pay, points, band, level + terms["gate"])


def _plot(
    offer: Offer,
    title: str,
    pay: Callable[[float], float],
    points: Mapping[str, float],
    band: list[float],
    limit: float | None,
) -> dict[str, Any]:
    """The plot; the last point is emphasized."""
    beside = [] if limit is None else [limit - BESIDE_LIMIT * abs(limit), limit + BESIDE_LIMIT * abs(limit)]
    return {
        "curve": [[loss, pay(loss)] for loss in sorted([*_grid([*points.values(), *band, *beside]), *beside])],
        "band": band,
        "limit": limit,
        "points": [
            {"loss": loss, "pay": pay(loss), "name": name, "key": name == list(points)[-1]}
            for name, loss in points.items()
        ],
        "axes": {"loss": title, "pay": offer.job.currency},
    }


def _grid(losses: list[float]) -> list[float]:
    """Equally distant losses; their range contains these losses with a margin."""
    margin = 0.06 * ((max(losses) - min(losses)) or 1.0)
    first, last = max(0.0, min(losses) - margin), max(losses) + 3 * margin
    return [first + (last - first) * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)]
