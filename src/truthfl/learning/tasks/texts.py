"""`Texts`: texts with classes, as the words that occur in them.

scikit-learn is imported when features are made, not before: that takes over a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.model import Features
from truthfl.learning.task import ReadSamples
from truthfl.learning.tasks.docstrings import docstrings
from truthfl.learning.tasks.table_files import write_csv
from truthfl.learning.tasks.task_of_files import TaskOfFiles
from truthfl.learning.tasks.text_files import read_texts
from truthfl.mechanism.checks import whole_number
from truthfl.texts import LONGEST_NAME, plain

FEWEST_BUCKETS, MOST_BUCKETS = 16, 65_536
MOST_WORDS = 2
BLOCK = 2000  # texts at a time
OCCURS = 255  # byte of a word that occurs


@dataclass(frozen=True)
class Texts(TaskOfFiles):
    """Texts, each as the set of its words. Nothing is fitted to the operator's texts but the classes.

    label    column of a .csv file, or field of .jsonl lines, with the class
    text     column or field with the text
    buckets  number of positions onto which words are hashed; two words on one count as one
    words    1: single words; 2: pairs of neighbouring words, too
    """

    label: str = "label"
    text: str = "text"
    buckets: int = 1024
    words: int = 1
    sources: ClassVar[tuple[str, ...]] = ("docstrings",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, name in (("label", self.label), ("text", self.text)):
            if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
                raise InputError(f"{field} is {plain(repr(name), 60)}; it must be the name of a column.")
        if self.label == self.text:
            raise InputError(f"label and text are both {self.text!r}; they must be two columns.")
        if not FEWEST_BUCKETS <= whole_number("buckets", self.buckets, at_least=1) <= MOST_BUCKETS:
            raise InputError(f"buckets is {self.buckets}; it must be from {FEWEST_BUCKETS} to {MOST_BUCKETS:,}.")
        if not 1 <= whole_number("words", self.words, at_least=1) <= MOST_WORDS:
            raise InputError(f"words is {self.words}; it must be 1 or {MOST_WORDS}.")

    def read(self, path: Path) -> ReadSamples:
        read = read_texts(path, self.text, self.label, self.separator)
        if not len(read):
            raise InputError(f"{path} has no text; it must have at least one.")
        return read

    def operator_samples(self, source: str) -> ReadSamples:
        if source in self.sources:
            return docstrings()
        if not Path(source).exists():
            raise InputError(f'there is no file {source!r}; source must be a .csv or .jsonl file, or "docstrings".')
        read = self.read(Path(source))
        if read.labels is None:
            raise InputError(f"{source} has no column {self.label!r}; the operator's data must have the true classes.")
        return read

    def features(self, samples: ReadSamples) -> Features:
        from sklearn.feature_extraction.text import HashingVectorizer

        hashed = HashingVectorizer(
            n_features=self.buckets, alternate_sign=False, norm=None, binary=True, ngram_range=(1, self.words)
        )
        made = np.zeros((len(samples), self.buckets), dtype=np.uint8)
        for start in range(0, len(samples), BLOCK):
            rows, columns = hashed.transform(samples.raw[start : start + BLOCK].tolist()).nonzero()
            made[start + rows, columns] = OCCURS
        return made

    def write(self, path: Path, samples: ReadSamples) -> None:
        labels = self.for_file(samples).labels or ("",) * len(samples)
        write_csv(path, (self.text, self.label), samples.raw[:, None], labels)
