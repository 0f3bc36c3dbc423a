"""The best lies ex post: for each client on each measured split, the lie that gained most there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.studies.verify.verification import LieMeasurement


@dataclass(frozen=True)
class BestInHindsight:
    """The best lie of one case: `gain` is a share of honest pay, 0 if no lie gained.

    draw, split  of the data
    """

    draw: int
    split: int
    client: str
    lie: str
    gain: float


def best_in_hindsight(measurement: LieMeasurement, rule: int) -> list[BestInHindsight]:
    """The best lie of each measured case under a rule."""
    gains = measurement.gains[rule]
    best = gains.gain.argmax(axis=0)
    found = []
    for number, case in enumerate(measurement.cases):
        gain = float(gains.gain[best[number], number]) / gains.unit
        words = measurement.points[best[number]].words if gain > 0 else "the truth"
        client = measurement.test.name_on(case.place.draw, case.client)
        found.append(BestInHindsight(case.place.draw, case.place.split, client, words, max(gain, 0.0)))
    return found


def summary_rows(found: Sequence[BestInHindsight]) -> list[list[str]]:
    """One row per lie that was best somewhere: the lie, in how many cases it was best, its mean gain in these."""
    gains: dict[str, list[float]] = {}
    for each in found:
        gains.setdefault(each.lie, []).append(each.gain)
    ordered = sorted(gains.items(), key=lambda item: (-len(item[1]), item[0]))
    return [[lie, str(len(values)), f"{np.mean(values):.0%}"] for lie, values in ordered]
