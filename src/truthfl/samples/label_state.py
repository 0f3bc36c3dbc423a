"""Current state of a sample's label, computed from the decisions about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """A decision as stored in the table; `undoes` is the number of the decision that it undoes, if any."""

    number: int
    sample: str
    action: str
    label: str | None
    undoes: int | None


class LabelState(NamedTuple):
    """State of one sample.

    label    name of its class; None while it is not labeled
    skipped  number of the decision that skipped it; None if it is not skipped
    """

    label: str | None = None
    skipped: int | None = None
    flagged: bool = False


UNTOUCHED = LabelState()


def label_state(rows: Iterable[Row]) -> LabelState:
    """State of one sample, from its rows in order. Of label and skip, the later one counts; undone ones do not."""
    decisions = list(rows)
    undone = {row.undoes for row in decisions if row.undoes is not None}
    label, skipped, flagged = None, None, False
    for row in decisions:
        if row.number in undone or row.action == "undo":
            continue
        if row.action == "label":
            label, skipped = row.label, None
        elif row.action == "skip":
            label, skipped = None, row.number
        else:
            flagged = row.action == "flag"
    return LabelState(label, skipped, flagged)


def label_states(rows: Iterable[Row]) -> dict[str, LabelState]:
    """State of every sample in these rows, by sample id; the rows must be in order."""
    by_sample: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_sample[row.sample].append(row)
    return {sample: label_state(decisions) for sample, decisions in by_sample.items()}
