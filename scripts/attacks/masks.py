"""Operators against masks: a real federation of five whose operator wants single reports, alone and with Emil.

The operator runs changed code (`dishonest.masks`). The participants run truthfl unchanged and keep their own changes,
to compare them with what the operator recovered. The operator can read Emil's home.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.federation import Federation
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, not_defended, outcome
from attacks.people import Person
from truthfl.ledger.terms import MOST_OTHER_SUMS, MOST_SUMS

ROUNDS = 16
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 120"
PEOPLE = tuple(Person(name, patch="diary") for name in ("Ada", "Ben", "Cleo", "Dora", "Emil"))
ROUND_OF = {  # from 0, as in `dishonest.masks`
    "masks-two-weights": 1,
    "masks-left-out": 2,
    "masks-two-lists": 3,
    "masks-counters": 4,
    "masks-partition": 5,
    "masks-partition-with-emil": 6,
    "masks-second-offer": 0,
    "masks-same-seed": 0,
    "masks-seed-beyond": 0,
    "masks-other-bounds": 0,
    "masks-all-weight": 0,
    "masks-weights-in-offers": 0,
}
UNCHANGED, WITHOUT_ADA = 8, 9
ATTACKS = {
    "masks-two-weights": "the operator sends terms with twice the weight and asks for a round again",
    "masks-left-out": "the operator asks for an opened round again without Ada, and has Emil's keys",
    "masks-two-lists": "the operator tells each participant that another one is missing, and has Emil's keys",
    "masks-counters": "the operator raises and lowers counters and sends models 100 bounds away",
    "masks-partition": "the operator has one part of the participants open one list, and the rest another",
    "masks-partition-with-emil": "the same, with Emil's keys",
    "masks-seed-itself": "the operator gives Emil the number at which the share of a mask is its seed",
    "masks-second-offer": "the operator makes new offers of the job to all but Ada and asks for the first round",
    "masks-same-seed": "the same with a new job that has the old one's seed",
    "masks-seed-beyond": "the same with a seed that is larger by 2^64",
    "masks-other-bounds": "the operator gives all but Ada an offer with bounds of 100 million times the length",
    "masks-all-weight": "the operator tells Ada that Ada has all the weight",
    "masks-weights-in-offers": "the operator's offers give Ada 0.999996 of the weight, and the others a millionth each",
    "masks-average": "the operator says that all sums are too long, for means of many with and without Ada",
    "masks-difference": "the operator says that a sum is too long and takes the next from the same model without Ada",
}
SIZE = 650
CHANCE = 4.0 / np.sqrt(SIZE)
SAME_BATCHES = 0.9  # with the same batches, the difference of two sums correlates with a report more than this
Array = NDArray[np.float64]


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation with all attacks, and judge the requested ones."""
    made = Federation(folder, job_text([one.name for one in PEOPLE], rounds=ROUNDS, server=SERVER), PEOPLE)
    with made.running("masks"):
        made.wait_for_end()
    lines = (folder / "notes.jsonl").read_text(encoding="utf-8").splitlines()
    noted = [json.loads(line) for line in lines]
    for attack, judge in JUDGES.items():
        if attack in names:
            yield judge(made, attack, [one for one in noted if one["attack"] == attack])


def recovered_nothing(expected: str) -> Callable[[Federation, str, list[dict[str, str]]], Outcome]:
    """No estimate resembles the true report, and somebody refused with this reason."""

    def judge(made: Federation, attack: str, noted: list[dict[str, str]]) -> Outcome:
        likeness = _likeness(made, attack)
        said = sorted({one["reply"] for one in noted if expected in one["reply"]})
        held = bool(said) and max(likeness.values(), default=0.0) < CHANCE
        words = f"most like a report of {len(likeness)} estimates: {max(likeness.values(), default=0.0):.3f}"
        words = words if likeness else "there is nothing to estimate a report from"
        answered = sum(one["reply"] == "done" for one in noted)
        return outcome(
            attack,
            held,
            f"{words} (chance is below {CHANCE:.2f}); {answered} of {len(noted)} queries were "
            f"answered; {said[0] if said else 'nobody refused'}",
        )

    return judge


def with_emil(made: Federation, attack: str, noted: list[dict[str, str]]) -> Outcome:
    """Single reports stay hidden, but the sum of Ada's and Ben's does not."""
    single = recovered_nothing("")(made, attack, noted)
    if single.verdict != outcome(attack, held=True, happened="").verdict:
        return single
    both = np.load(made.folder / "seen" / f"{attack}-both.npy")
    true = [_true(made, name, ROUND_OF[attack]) for name in ("Ada", "Ben")]
    error = float(np.abs(both - true[0] - true[1]).max() / np.abs(true[0] + true[1]).max())
    if error > 1e-3:
        return outcome(attack, held=True, happened=f"{single.happened}; also the sum of two stays hidden")
    return not_defended(attack, f"single reports stay hidden, the sum of Ada's and Ben's is seen: {single.happened}")


def same_seed(made: Federation, attack: str, _: list[dict[str, str]]) -> Outcome:
    """A new job has other batches, even under the old seed: its sum is for another round from the same model."""
    like = _likeness(made, attack)["Ada"]
    happened = f"with other batches the difference of two jobs' sums correlates by {like:.2f} with Ada's report"
    return not_defended(attack, happened) if like < SAME_BATCHES else outcome(attack, held=False, happened=happened)


def seed_itself(_: Federation, attack: str, noted: list[dict[str, str]]) -> Outcome:
    said = [one["reply"] for one in noted]
    held = len(said) == len(PEOPLE) - 1 and all("otherwise than from 0 on" in one for one in said)
    return outcome(attack, held, f"all {len(said)} refuse: {said[0] if said else 'nobody was asked'}")


def difference(made: Federation, attack: str, _: list[dict[str, str]]) -> Outcome:
    """Two sums from one model, with and without Ada: the others' batches differ, which partly hides Ada's report."""
    sums = [_seen(made, "with-Ada", UNCHANGED), _seen(made, "without-Ada", WITHOUT_ADA)]
    like = abs(float(np.corrcoef(sums[0] - sums[1], _true(made, "Ada", UNCHANGED))[0, 1]))
    told = re.search(r"your computer sent \d+ reports that are not counted", made.log("Ada"))
    if not told:
        return outcome(attack, held=False, happened="Ada was not told that one of Ada's reports is not counted")
    return not_defended(
        attack, f"the difference has a correlation of {like:.2f} with Ada's report; Ada is told afterwards"
    )


def average(made: Federation, attack: str, _: list[dict[str, str]]) -> Outcome:
    """For rounds from one model, nodes open few sums, and one of other people."""
    counts = [len(list((made.folder / "seen").glob(f"{which}-Ada-*.npy"))) for which in ("with", "without")]
    refused = f"{MOST_SUMS} sums were opened from this model"
    return outcome(
        attack,
        held=sum(counts) <= MOST_SUMS
        and counts[1] <= MOST_OTHER_SUMS
        and any(refused in reason for reason in made.reasons("Ben")),
        happened=f"of {ROUNDS - UNCHANGED} rounds from one model {counts[0]} sums with Ada and {counts[1]} without Ada "
        f"are opened; then Ben's computer answers, by the ledger: {refused}",
    )


def _seen(made: Federation, which: str, round_: int) -> Array:
    return np.load(made.folder / "seen" / f"{which}-{round_}.npy")


def _likeness(made: Federation, attack: str) -> dict[str, float]:
    """By name: the correlation of the operator's estimate of a participant's change with the true change."""
    found = {}
    for person in PEOPLE:
        path = made.folder / "seen" / f"{attack}-{person.name}.npy"
        if path.exists():
            estimate, true = np.load(path).astype(float), _true(made, person.name, ROUND_OF[attack])
            found[person.name] = abs(float(np.corrcoef(estimate, true)[0, 1])) if estimate.any() else 0.0
    return found


def _true(made: Federation, name: str, round_: int) -> Array:
    """A participant's own change in a round, as the participant kept it."""
    return np.load(made.folder / "seen" / f"true-{name}-{round_}.npy").astype(float)


JUDGES = {
    "masks-two-weights": recovered_nothing("which is not theirs"),
    "masks-left-out": recovered_nothing("another list of who is missing"),
    "masks-two-lists": recovered_nothing("is not signed by all"),
    "masks-counters": recovered_nothing("that changed the model; after those before"),
    "masks-partition": recovered_nothing("reports would be in the sum"),
    "masks-partition-with-emil": with_emil,
    "masks-seed-itself": seed_itself,
    "masks-second-offer": recovered_nothing("were answered under another offer"),
    "masks-same-seed": same_seed,
    "masks-seed-beyond": recovered_nothing("its seed is no whole number"),
    "masks-other-bounds": recovered_nothing("accepted other terms of the job"),
    "masks-all-weight": recovered_nothing("which is not theirs"),
    "masks-weights-in-offers": recovered_nothing("so a sum would show a report"),
    "masks-average": average,
    "masks-difference": difference,
}
STAGE = Stage("operators: masks", ATTACKS, run)
