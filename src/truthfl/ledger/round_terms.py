"""The terms of messages and reports: keys, the bounds of reports, how reports are combined."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import nlargest
from itertools import pairwise

from truthfl.errors import InputError

MEAN, OWN = "mean", "own"
AGGREGATIONS = (MEAN, "trimmed", "median", OWN)
PADDED = "padded"  # how pictures are fitted: scaled with their proportions, in the middle of black
FEWEST_MASKED = 3  # reports in a sum
NOT_IN_TIME, NOT_CONNECTED = "no report in time", "not connected"  # why a report is missing that did not come
MOST_OF_ALL, MOST_OF_SUM = 0.5, 0.6  # the share that one report may have, of all weight and of an opened sum's
MOST_SUMS, MOST_OTHER_SUMS = 5, 1  # opened from one model with a node's help; and of other people than the first
MOST_OF_TWO = 0.9  # the share that two reports may have together, of either
LONGEST_TASK_NAME = 100
MOST_LOSSES = 1_000  # in a table of losses by rounds
MOST_BOUNDS = 100  # in a table of bounds
KEY_DIGITS, HEX_DIGITS = 64, frozenset("0123456789abcdef")
WEIGHT_ROUNDING = 1e-9


def loss_rise(loss_by_rounds: Sequence[float], rounds: int, changed: int) -> float:
    """By how much a job's expected loss is higher if only so many of its rounds changed the model.

    loss_by_rounds  the rise if training ends after 0, 1/k, 2/k, … of all rounds, in between on straight lines; none
                    given: 0
    """
    if not loss_by_rounds or not rounds:
        return 0.0
    place = min(changed / rounds, 1.0) * (len(loss_by_rounds) - 1)
    before = min(int(place), len(loss_by_rounds) - 2)
    share = place - before
    return (1.0 - share) * loss_by_rounds[before] + share * loss_by_rounds[before + 1]


def bound_of_round(bounds: Sequence[tuple[int, float]], changed: int) -> float:
    """The largest length of a report's change that is taken after so many rounds that changed the model; 0 for none.

    bounds   as in `JobTerms`; in between on straight lines, and the last one for all later rounds
    changed  the number of earlier rounds of the job that changed the model; rounds that were skipped do not count, for
             they leave the model, and the lengths of honest reports, as they were
    """
    if not bounds:
        return 0.0
    places, values = zip(*bounds, strict=True)
    after = bisect_right(places, changed)
    if after == len(places):
        return float(values[-1])
    share = (changed - places[after - 1]) / (places[after] - places[after - 1])
    return float((1.0 - share) * values[after - 1] + share * values[after])


def sums_fault(lists: Sequence[Sequence[int]], missing: Sequence[int] | None = None) -> str | None:
    """In words, why no more sums are opened from a model; None if there may be one more.

    lists    who was missing in each sum that was opened from it
    missing  who would be missing in the next one; None if it is not known yet
    """
    if len(lists) >= MOST_SUMS:
        return f"{MOST_SUMS} sums were opened from this model"
    others = sum(one != lists[0] for one in lists)
    if missing is not None and lists and missing != lists[0] and others >= MOST_OTHER_SUMS:
        return "sums of other people were opened from this model"
    return None


def weights_fault(weights: Iterable[float], most: float) -> str | None:
    """In words, why a sum with these weights would show a report in it; None if it does not.

    most  the share that one report may have
    """
    known = list(weights)
    first, *second = nlargest(2, known)
    whole = math.fsum(known) * (1.0 + WEIGHT_ROUNDING)
    if first > most * whole:
        return f"one person has {first / whole:.3g} of the weight; one may have {most:g}"
    if first + sum(second) > MOST_OF_TWO * whole:
        return f"two people have {(first + sum(second)) / whole:.3g} of the weight; two may have {MOST_OF_TWO:g}"
    return None


def list_digest(missing: Iterable[int]) -> str:
    """The digest of a list of who is missing, by index, as receipts have it."""
    return sha256(",".join(map(str, sorted(missing))).encode()).hexdigest()


def _are_bounds(bounds: object) -> bool:
    """Whether these are no pairs, or pairs of a number of rounds, rising from 0, and a positive number."""
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) > MOST_BOUNDS:
        return False
    if not all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in bounds):
        return False
    sound = all(type(place) is int and type(bound) in (int, float) and 0 < bound < math.inf for place, bound in bounds)
    places = [place for place, _ in bounds]
    return sound and (not places or (places[0] == 0 and all(a < b for a, b in pairwise(places))))


def require_sound_loss_by_rounds(values: object) -> None:
    """Raise InputError unless these are no numbers, or several from 0 on, the last of them 0."""
    sound = (
        isinstance(values, Sequence)
        and len(values) <= MOST_LOSSES
        and all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
    )
    if not sound or (values and (len(values) < 2 or values[-1] != 0)):  # type: ignore[arg-type,index]
        raise InputError("this is no offer: its loss_by_rounds are not numbers from 0 on that end with 0.")


def require_sound_task(task: object) -> None:
    """Raise InputError unless this is None, or a task with its name, document, digest and revision."""
    if task is None:
        return
    sound = isinstance(task, Mapping) and set(task) == {"name", "document", "digest", "revision"}
    if not sound or not (
        isinstance(task["name"], str)  # type: ignore[index]
        and task["name"].isprintable()  # type: ignore[index]
        and 0 < len(task["name"]) <= LONGEST_TASK_NAME  # type: ignore[index]
        and isinstance(task["document"], Mapping)  # type: ignore[index]
        and isinstance(task["digest"], str)  # type: ignore[index]
        and type(task["revision"]) is int  # type: ignore[index]
    ):
        raise InputError("this is no offer: its task has no name, document, digest and revision.")


def require_sound_round_terms(agreement_key: object, bounds: object, aggregation: object, masked: object) -> None:
    """Raise InputError unless these terms of an offer are sound."""
    key = agreement_key
    if not isinstance(key, str) or len(key) != KEY_DIGITS or not set(key) <= HEX_DIGITS:
        raise InputError(f"this is no offer: its agreement_key has not {KEY_DIGITS} hexadecimal digits.")
    if not _are_bounds(bounds):
        raise InputError("this is no offer: its report_bounds are not pairs of a rising number of rounds, and a bound.")
    if aggregation not in AGGREGATIONS or type(masked) is not bool:
        raise InputError("this is no offer: it does not say in a known way how reports are combined.")
    if masked and not (bounds and aggregation == MEAN):
        raise InputError("this is no offer: masked reports need bounds and the mean of reports.")
