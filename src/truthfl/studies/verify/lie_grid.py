"""A grid of lies about labels, batch and report: `Behaviour`s given by (e, D, γ). Imports `learning.behaviour`."""

from __future__ import annotations

from itertools import product

from truthfl.learning.behaviour import Behaviour, from_strategy

EFFORTS = (1.0, 0.0)
BATCH_SHARES = (1.0, 0.125, 0.25, 0.5, 2.0)
REPORT_SCALES = (1.0, 0.5, 1.5, 2.0)

KINDS = ("no labels", "other batch", "scaled report", "several at once", "empty report")


def lie(labeling_effort: float, batch_share: float, report_scale: float) -> Behaviour:
    """The behaviour with labeling effort e, D as a share of D', and γ; named after its differences from (1, 1, 1)."""
    parts = ["no labels"] if labeling_effort == 0 else []
    if 0 < labeling_effort < 1:
        parts.append(f"labels × {labeling_effort:g}")
    if batch_share != 1:
        parts.append(f"batch × {batch_share:g}")
    if report_scale != 1:
        parts.append(f"report × {report_scale:g}")
    return from_strategy(
        ", ".join(parts) or "the truth",
        labeling_effort=labeling_effort,
        batch_share=batch_share,
        report_scale=report_scale,
    )


def kind_of(behaviour: Behaviour) -> str:
    """The element of `KINDS` that a lie belongs to."""
    if behaviour.reports_nothing:
        return "empty report"
    honest = (behaviour.labels_honestly, behaviour.computes_honestly, behaviour.reports_honestly)
    changed = [kind for kind, kept in zip(KINDS, honest, strict=False) if not kept]
    return changed[0] if len(changed) == 1 else "several at once"


TRUTH = lie(1.0, 1.0, 1.0)
EMPTY_REPORT = from_strategy("empty report", labeling_effort=0.0, batch_share=0.0, report_scale=0.0, computes=False)
GRID = (
    *(lie(*choice) for choice in product(EFFORTS, BATCH_SHARES, REPORT_SCALES) if choice != (1, 1, 1)),
    EMPTY_REPORT,
)
SHORT_GRID = (
    *(lie(*c) for c in product(EFFORTS, (1.0, 0.25, 2.0), (1.0, 0.5, 2.0)) if c != (1, 1, 1)),
    EMPTY_REPORT,
)
