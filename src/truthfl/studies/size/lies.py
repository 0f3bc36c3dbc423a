"""The lies that the study tries, in whole labels."""

from __future__ import annotations

from truthfl.adversary.lie_point import TRUTH, LiePoint, ReportKind
from truthfl.learning.behaviour import SoloRecipe, Unlabeled

FEWER = (0.1, 0.25, 0.5, 0.75, 0.9)  # shares of labels that are made, the rest left out
MORE = 1.25
HALF = 0.5
LONGER_SHARE = 0.75  # of labels, if the solo model is trained longer


def lies(labels: int) -> tuple[LiePoint, ...]:
    """The truth and the lies of a client with so many labels; shares of labels are of whole ones.

    What `truthfl verify` finds best of each kind at ten clients is among them. With few labels some of them are the
    same, and are tried once.
    """
    half = _whole(HALF, labels)
    fewer = [LiePoint(labels=_whole(share, labels)) for share in FEWER]
    longer = LiePoint(labels=_whole(LONGER_SHARE, labels), recipe=SoloRecipe.LONGER)
    derived = [
        LiePoint(labels=half, rest=rest) for rest in (Unlabeled.PREDICTED, Unlabeled.OWN_MODEL, Unlabeled.NEAREST)
    ]
    points = [
        TRUTH,
        LiePoint(labels=0.0, rest=Unlabeled.PREDICTED),
        LiePoint(labels=0.0, rest=Unlabeled.DRAWN),
        LiePoint(labels=0.0, rest=Unlabeled.DRAWN, scale=0.02, last_scale=0.02),
        LiePoint(labels=0.0, report=ReportKind.LAST_BIT),
        LiePoint(labels=0.0, report=ReportKind.ECHO),
        *(point for point in (*fewer, longer, *derived) if 0.0 < point.labels < 1.0),
        LiePoint(labels=_whole(MORE, labels)),
        LiePoint(report=ReportKind.LAST_BIT),
        LiePoint(batch=0.5),
        LiePoint(batch=2.0),
    ]
    return tuple(dict.fromkeys(point.canonical(solo=True) for point in points))


def _whole(share: float, labels: int) -> float:
    """The share as a number of whole labels; at least one, and not the honest number."""
    number = round(share * labels)
    if number == labels:
        number += -1 if share < 1 else 1
    return max(number, 0) / labels
