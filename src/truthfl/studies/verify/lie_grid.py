"""What a client can do other than she was asked: a grid of joint lies about labels, batch and report. Looks nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

EFFORTS = (1.0, 0.0)
BATCH_SHARES = (1.0, 0.125, 0.25, 0.5, 2.0)
REPORT_SCALES = (1.0, 0.5, 1.5, 2.0)

KINDS = ("no labels", "other batch", "scaled report", "several at once", "empty report")


@dataclass(frozen=True)
class Lie:
    """e, D as a share of D', and γ: what she does where she was asked for (1, 1, 1)."""

    labeling_effort: float
    batch_share: float
    report_scale: float

    @property
    def kind(self) -> str:
        if self.report_scale == 0:
            return "empty report"
        changed = [
            kind
            for kind, value in zip(KINDS, (self.labeling_effort, self.batch_share, self.report_scale), strict=False)
            if value != 1
        ]
        return changed[0] if len(changed) == 1 else "several at once"

    @property
    def description(self) -> str:
        """In a few words."""
        if self.report_scale == 0:
            return "empty report"
        parts = ["no labels"] if self.labeling_effort == 0 else []
        if self.batch_share != 1:
            parts.append(f"batch × {self.batch_share:g}")
        if self.report_scale != 1:
            parts.append(f"report × {self.report_scale:g}")
        return ", ".join(parts) or "the truth"


TRUTH = Lie(1.0, 1.0, 1.0)
EMPTY_REPORT = Lie(0.0, 0.0, 0.0)  # nothing done, the model sent back as it came: with γ = 0 nothing else matters
GRID = (
    *(Lie(*choice) for choice in product(EFFORTS, BATCH_SHARES, REPORT_SCALES) if choice != (1, 1, 1)),
    EMPTY_REPORT,
)
SHORT_GRID = (
    *(Lie(*c) for c in product(EFFORTS, (1.0, 0.25, 2.0), (1.0, 0.5, 2.0)) if c != (1, 1, 1)),
    EMPTY_REPORT,
)
