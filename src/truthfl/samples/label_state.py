"""Where a sample stands, from the decisions about it: labeled, skipped, flagged, or untouched. Looks nowhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """A decision as it is written down; `undoes` is the number of another."""

    number: int
    sample: str
    action: str
    label: str | None
    undoes: int | None


@dataclass(frozen=True)
class Standing:
    """label: the class she gave, if she did; skipped: the number of the decision that skipped it, if one did."""

    label: str | None = None
    skipped: int | None = None
    flagged: bool = False


NOTHING = Standing()


def standing(rows: Iterable[Row]) -> Standing:
    """Of one sample, from its rows in order. Of label and skip, the later counts; what was undone does not."""
    made = list(rows)
    undone = {row.undoes for row in made if row.undoes is not None}
    label, skipped, flagged = None, None, False
    for row in made:
        if row.number in undone or row.action == "undo":
            continue
        if row.action == "label":
            label, skipped = row.label, None
        elif row.action == "skip":
            label, skipped = None, row.number
        else:
            flagged = row.action == "flag"
    return Standing(label, skipped, flagged)


def all_standing(rows: Iterable[Row]) -> dict[str, Standing]:
    """Of every sample, from all rows in order."""
    by_sample: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_sample[row.sample].append(row)
    return {sample: standing(made) for sample, made in by_sample.items()}
