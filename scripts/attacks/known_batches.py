"""An operator who gathers sums of many rounds from nearly one model, and solves for single samples.

Sums are linear in the samples' gradients. An operator who knows each batch's samples thus has a system of equations
whose unknowns are the gradients of all samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.federation import Federation
from attacks.jobs import SAMPLES, job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person

ATTACK, ROUNDS = "masks-known-batches", 240
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 120"
PEOPLE = tuple(Person(name, patch="diary") for name in ("Ada", "Ben", "Cleo"))
ATTACKS = {
    ATTACK: f"the operator solves {ROUNDS} sums from one model for all samples, with the batches of the job's seed"
}


def run(folder: Path, _: set[str]) -> Iterator[Outcome]:
    """Compare the solution, and the sums, with how Ada's reports differ from their mean."""
    made = Federation(folder, job_text([one.name for one in PEOPLE], rounds=ROUNDS, server=SERVER), PEOPLE)
    assert len(PEOPLE) * SAMPLES < ROUNDS, "so many unknowns"
    with made.running("known-batches"):
        made.wait_for_end()
    found, sums = (np.load(folder / "seen" / f"{ATTACK}-{what}.npy") for what in ("Ada", "sums"))
    true = np.array([np.load(folder / "seen" / f"true-Ada-{round_}.npy") for round_ in range(len(found))], float)
    solved, summed = _likeness(found, true), _likeness(sums, true)
    yield outcome(
        ATTACK,
        held=len(found) == ROUNDS and solved < summed,
        happened=f"from {len(found)} sums of {len(PEOPLE)}: what is solved for has a correlation of {solved:.2f} with "
        f"what is special in Ada's reports; the sums themselves have {summed:.2f}",
    )


def _likeness(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """The mean over rounds of the correlation between both, each as its difference from its own mean."""
    pairs = zip(found - found.mean(axis=0), true - true.mean(axis=0), strict=True)
    return float(np.mean([np.corrcoef(one, other)[0, 1] for one, other in pairs]))


STAGE = Stage("operators: known batches", ATTACKS, run)
