"""Evidence of solo models, which pay uses besides the joint test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truthfl.coded_text import coded

if TYPE_CHECKING:
    from truthfl.contracts.contract import Observation
    from truthfl.ledger.terms import Offer


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

    solo_loss       test loss of the model that the client trained alone; None if there is none
    level_shift     shift of the expected solo loss by the others' solo losses, in standard deviations
    present_labels  labels of the client and the others who passed, each times the share of rounds delivered; None for
                    all labels
    loss_rise       of the expected joint loss, due to rounds that did not change the model
    """

    solo_loss: float | None
    level_shift: float
    present_labels: float | None
    loss_rise: float = 0.0


def no_model_reason(reason: str) -> str:
    """The reason of an audition's entry without a solo loss, with its form if it is one of the usual ones."""
    return next((told for told in NO_MODEL.values() if told == reason), reason)


def level_shifts(offers: Sequence[Offer], solo_loss: Mapping[str, float | None]) -> dict[str, float]:
    """The shift of each client's expected solo loss, by name; solo_loss has all clients' losses, None for none."""
    import numpy as np

    from truthfl.contracts.solo import peer_shifts

    terms = [offer.contract.stage for offer in offers]
    losses = np.array([_number(solo_loss[offer.client.name]) for offer in offers])
    level = np.array([float(one.level[0]) for one in terms])
    spread = np.array([float(one.spread[0]) for one in terms])
    shifts = peer_shifts((losses - level) / spread)
    return {offer.client.name: float(shift) for offer, shift in zip(offers, shifts, strict=True)}


def passes(offer: Offer, solo_loss: float | None, level_shift: float) -> bool:
    """Whether a client with this solo loss takes part in the joint training."""
    return bool(offer.contract.passes(_solo_observation(solo_loss, level_shift))[0])


def is_too_good(offer: Offer, solo_loss: float | None, level_shift: float) -> bool:
    """Whether the operator decides on a solo model with this loss before it is paid."""
    return bool(offer.contract.too_good(_solo_observation(solo_loss, level_shift))[0])


def expected_solo_loss(offer: Offer, level_shift: float) -> float:
    """The expected solo loss, given those of the others."""
    return float(offer.contract.expected_solo_loss(_solo_observation(None, level_shift))[0])


def highest_passing_loss(offer: Offer, level_shift: float) -> float:
    """The highest solo loss of a client who takes part in the joint training, given those of the others."""
    return expected_solo_loss(offer, level_shift) + float(offer.contract.stage.gate[0])


def pay_parts(
    offer: Offer, test_loss: float, delivered: int, asked: int, evidence: SoloEvidence | None
) -> dict[str, float]:
    """The parts of pay by name, in the job's currency, not rounded."""
    observed = observation_of(test_loss, delivered, asked, evidence)
    return {name: float(values[0]) for name, values in offer.contract.parts(observed).items()}


def observation_of(
    test_loss: float, delivered: float | None, asked: int | None, evidence: SoloEvidence | None
) -> Observation:
    """The observation that the contract pays by; without evidence, the expected solo loss and all labels."""
    from truthfl.contracts.contract import Observation
    from truthfl.contracts.solo import SoloResult

    if evidence is None:
        return Observation(test_loss, delivered=delivered, asked=asked)
    return Observation(
        test_loss,
        delivered=delivered,
        asked=asked,
        present_labels=evidence.present_labels,
        loss_rise=evidence.loss_rise,
        solo=SoloResult(_number(evidence.solo_loss), evidence.level_shift),
    )


def _solo_observation(solo_loss: float | None, level_shift: float) -> Observation:
    from truthfl.contracts.contract import Observation
    from truthfl.contracts.solo import SoloResult

    return Observation(0.0, solo=SoloResult(_number(solo_loss), level_shift))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
