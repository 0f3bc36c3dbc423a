"""The kinds of jobs in a soak: what is learned, from which data, under which contract.

All are planned and trained in seconds. Jobs under LCEME have long steps and large pilots, so that the loss clearly
depends on the batch size on every machine; otherwise there may be no plan.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

NAMES = ("Ada", "Ben", "Cleo")
OWN_TASK = '''"""A task of the operator's own: rows of a table."""

from truthfl.simulate import Tables


class Mine(Tables):
    pass
'''
JOB = """
{task}

[data]
source = "{source}"
pilot_samples = {pilot}
test_samples = {test}
seed = {seed}

[training]
rounds = {rounds}
step_size = {step_size}

[server]
loss_value = 20000.0
most_pay = 8.0
most_expected_pay = 100.0
test_samples = 2000
enrol_seconds = 120
answer_seconds = 120
label_seconds = 120
audition_seconds = 60
round_seconds = 30

[contract]
kind = "{contract}"

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = {size}
label_cost = {label_cost}
sample_cost = 0.01
"""


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    use        the task's name, as in [task] and truthfl join --task; "" for pictures
    source     of its data; sources in `MADE` are generated tables
    rounds     at most, so that planning takes seconds
    """

    name: str
    contract: str
    use: str = ""
    source: str = "digits"
    more_task: str = ""
    pilot: int = 600
    test: int = 400
    size: int = 60
    step_size: float = 0.5
    label_cost: float = 1.0
    rounds: int = 60

    @property
    def shares(self) -> str:
        """The suffix of participants' files."""
        return "csv" if self.use else "npz"

    @property
    def task_words(self) -> list[object]:
        """The options of truthfl join that name the task."""
        if not self.use:
            return []
        return ["--task", "job.toml" if self.more_task else self.use]

    def write(self, folder: Path, rounds: int, number: int = 0) -> None:
        """Write the job and the files it needs to its folder.

        folder  has the job's name: a soak with the same seed has the same samples everywhere
        number  of the folder's job: each has a new test set, since earlier jobs' test sets in a ledger are published
        """
        made = MADE.get(self.source)
        source = self.source if made is None else str(made(folder / f"{self.source}.csv"))
        if self.use.endswith(".py:Mine"):
            (folder / "mine.py").write_text(OWN_TASK, encoding="utf-8")
        task = f'[task]\nuse = "{self.use}"\n{self.more_task}' if self.use else '[model]\nkind = "softmax"'
        job = JOB.format(
            task=task,
            source=source,
            pilot=self.pilot,
            test=self.test,
            seed=crc32(f"{folder.name} {number}".encode()),
            rounds=rounds,
            step_size=self.step_size,
            contract=self.contract,
            size=self.size,
            label_cost=self.label_cost,
        )
        (folder / "job.toml").write_text(job, encoding="utf-8")


def _write_weather(path: Path) -> Path:
    """Days with temperature, wind and rain, and all words that apply to them."""
    draws, words = random.Random(1), ("hot", "windy", "wet")
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("temperature", "wind", "rain", "label"))
        for _ in range(700):
            numbers = [draws.gauss(0, 1) for _ in words]
            true = [word for word, value in zip(words, numbers, strict=True) if value > 0]
            rows.writerow((*(f"{value:.4f}" for value in numbers), ";".join(true) or "dull"))
    return path


def _write_parts(path: Path) -> Path:
    """Parts with many measures, of four classes that no single measure identifies."""
    draws = random.Random(2)
    centres = [[draws.gauss(0, 0.5) for _ in range(40)] for _ in range(4)]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((*(f"measure {column}" for column in range(40)), "label"))
        for number in range(1400):
            measures = [f"{draws.gauss(centre, 1):.4f}" for centre in centres[number % 4]]
            rows.writerow((*measures, "ABCD"[number % 4]))
    return path


MADE = {"weather": _write_weather, "parts": _write_parts}
SEVERAL = 'several_labels = true\nlabel_separator = ";"'
_ROWS = {"source": "breast_cancer", "pilot": 250, "test": 150, "size": 40}
KINDS = (
    Kind("pictures, LCEME", "lceme", source="mnist", pilot=1000, label_cost=0.3, step_size=2.0),
    Kind("pictures, audition", "audition", rounds=200),
    Kind("tables, LCEME", "lceme", "tables", "parts", pilot=800, label_cost=0.3, step_size=3.0),
    Kind("tables, audition", "audition", "tables", **_ROWS),
    Kind("texts, LCEME", "lceme", "texts", "docstrings", pilot=500, test=200, label_cost=0.3, step_size=6.0),
    Kind("own task, audition", "audition", "mine.py:Mine", **_ROWS),
    Kind("several labels, audition", "audition", "tables", "weather", SEVERAL, 200, 150, 40, 1.0, rounds=15),
)
