"""`SoloEvidence`: what a contract with an audition pays by besides the joint test, and how it follows from all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truthfl.coded_text import coded
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.ledger.terms import Offer
    from truthfl.mechanism.audition import Audition
    from truthfl.mechanism.observation import Observation

# Why there is no solo loss, in the reason of an audition's entry.
NO_LABELS, LATE, NOT_OPENED = "labels were not there in time", "no commitment in time", "it was not opened in time"
NO_MODEL = {
    NO_LABELS: coded("reason.no_labels", "No model was taken: labels were not there in time."),
    LATE: coded("reason.no_commitment", "No model was taken: no commitment in time."),
    NOT_OPENED: coded("reason.not_opened", "No model was taken: it was not opened in time."),
}


@dataclass(frozen=True)
class SoloEvidence:
    """The evidence for one client's pay.

    solo_loss       test loss of the model that she trained alone; None if there is none
    level_shift     shift of the expected solo loss by those of the others, in standard deviations
    present_labels  her labels and those of the others who passed, each times the share of rounds delivered
    loss_rise       of the expected joint loss, because rounds did not change the model
    """

    solo_loss: float | None
    level_shift: float
    present_labels: float
    loss_rise: float = 0.0


def no_model_reason(reason: str) -> str:
    """The reason of an audition's entry without a solo loss, with its form if it is one of the usual ones."""
    return next((told for told in NO_MODEL.values() if told == reason), reason)


def audition_of(offer: Offer) -> Audition:
    """The terms of this offer's audition."""
    from truthfl.mechanism.audition import Audition

    if not isinstance(offer.mechanism, Audition):
        raise InputError(f"the contract {offer.job.contract!r} has no terms of an audition; a job cannot run it.")
    return offer.mechanism


def level_shifts(offers: Sequence[Offer], solo_loss: Mapping[str, float | None]) -> dict[str, float]:
    """The shift of each client's expected solo loss, by name; solo_loss has those of all clients, None for none."""
    import numpy as np

    from truthfl.mechanism.peer_level import peer_shifts

    terms = [audition_of(offer) for offer in offers]
    losses = np.array([_number(solo_loss[offer.client.name]) for offer in offers])
    level = np.array([float(one.solo_level[0]) for one in terms])
    spread = np.array([float(one.solo_spread[0]) for one in terms])
    shifts = peer_shifts((losses - level) / spread)
    return {offer.client.name: float(shift) for offer, shift in zip(offers, shifts, strict=True)}


def passes(offer: Offer, solo_loss: float | None, level_shift: float) -> bool:
    """Whether a client with this solo loss takes part in the joint training."""
    return bool(audition_of(offer).passes(_solo_observation(solo_loss, level_shift))[0])


def is_too_good(offer: Offer, solo_loss: float | None, level_shift: float) -> bool:
    """Whether the operator looks at a solo model with this loss before it is paid."""
    return bool(audition_of(offer).too_good(_solo_observation(solo_loss, level_shift))[0])


def expected_solo_loss(offer: Offer, level_shift: float) -> float:
    """The solo loss that is expected of her, given those of the others."""
    return float(audition_of(offer).expected_solo_loss(_solo_observation(None, level_shift))[0])


def label_and_computing_pay(
    offer: Offer, test_loss: float, delivered: int, asked: int, evidence: SoloEvidence
) -> tuple[float, float]:
    """The two parts of pay, in the job's currency, not rounded."""
    observed = observation_of(test_loss, delivered, asked, evidence)
    terms = audition_of(offer)
    return float(terms.label_pay(observed)[0]), float(terms.computing_pay(observed)[0])


def observation_of(
    test_loss: float, delivered: float | None, asked: int | None, evidence: SoloEvidence | None
) -> Observation:
    """The observation that the mechanism pays by; without evidence, the expected solo loss and all labels."""
    from truthfl.mechanism.observation import Observation

    if evidence is None:
        return Observation(test_loss, delivered=delivered, asked=asked)
    return Observation(
        test_loss,
        delivered=delivered,
        asked=asked,
        solo_loss=_number(evidence.solo_loss),
        level_shift=evidence.level_shift,
        present_labels=evidence.present_labels,
        loss_rise=evidence.loss_rise,
    )


def _solo_observation(solo_loss: float | None, level_shift: float) -> Observation:
    from truthfl.mechanism.observation import Observation

    return Observation(0.0, solo_loss=_number(solo_loss), level_shift=level_shift)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
