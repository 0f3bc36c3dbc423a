"""The kinds of jobs of a soak: what is learned, from which data, under which contract.

All are small: planned and trained in seconds.
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

    use        the task's name, as of [task] and truthfl join --task; "" for pictures
    source     of its data; "weather" are rows with several labels, which we make
    rounds     at most, so that it is planned in seconds
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
        """How the names of participants' files end."""
        return "csv" if self.use else "npz"

    @property
    def task_words(self) -> list[object]:
        """The options of truthfl join that name the task."""
        if not self.use:
            return []
        return ["--task", "job.toml" if self.more_task else self.use]

    def write(self, folder: Path, rounds: int, number: int = 0) -> None:
        """Write the job, and what it needs, into its folder.

        number  of the folder's job: each has another test set, since those of earlier jobs in a ledger are published
        """
        source = str(_write_weather(folder / "days.csv")) if self.source == "weather" else self.source
        if self.use.endswith(".py:Mine"):
            (folder / "mine.py").write_text(OWN_TASK, encoding="utf-8")
        task = f'[task]\nuse = "{self.use}"\n{self.more_task}' if self.use else '[model]\nkind = "softmax"'
        job = JOB.format(
            task=task,
            source=source,
            pilot=self.pilot,
            test=self.test,
            seed=crc32(f"{folder} {number}".encode()),
            rounds=rounds,
            step_size=self.step_size,
            contract=self.contract,
            size=self.size,
            label_cost=self.label_cost,
        )
        (folder / "job.toml").write_text(job, encoding="utf-8")


SEVERAL = 'several_labels = true\nlabel_separator = ";"'
_ROWS = {"source": "breast_cancer", "pilot": 250, "test": 150, "size": 40}
KINDS = (
    Kind("pictures, LCEME", "lceme", label_cost=0.3, rounds=200),
    Kind("pictures, audition", "audition", rounds=200),
    Kind("tables, LCEME", "lceme", "tables", label_cost=0.3, **_ROWS),
    Kind("tables, audition", "audition", "tables", **_ROWS),
    Kind("texts, LCEME", "lceme", "texts", "docstrings", pilot=300, test=200, size=60, label_cost=0.3),
    Kind("own task, audition", "audition", "mine.py:Mine", **_ROWS),
    Kind("several labels, audition", "audition", "tables", "weather", SEVERAL, 200, 150, 40, 1.0, rounds=15),
)


def _write_weather(path: Path) -> Path:
    """Days with temperature, wind and rain, and all words that are true of them."""
    draws, words = random.Random(1), ("hot", "windy", "wet")
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("temperature", "wind", "rain", "label"))
        for _ in range(700):
            numbers = [draws.gauss(0, 1) for _ in words]
            true = [word for word, value in zip(words, numbers, strict=True) if value > 0]
            rows.writerow((*(f"{value:.4f}" for value in numbers), ";".join(true) or "dull"))
    return path
