"""`Texts`: texts with classes, as the set of words in them; the built-in texts.

scikit-learn is imported only when features are made, because that takes over a second.

The set depends on the version of Python: other versions have other docstrings.
"""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from truthfl.contracts.setting import whole_number
from truthfl.errors import InputError
from truthfl.learning.data.datasets import short_reason
from truthfl.learning.models.model import Features
from truthfl.learning.tasks.table_files import MAX_BYTES, complete_labels, csv_rows, not_utf8, write_csv
from truthfl.learning.tasks.task import ReadSamples, TaskOfFiles
from truthfl.learning.training.draws import Purpose, generator
from truthfl.texts import LONGEST_NAME, plain

FEWEST_BUCKETS, MOST_BUCKETS = 16, 65_536
MOST_WORDS = 2
BLOCK = 2000  # texts at a time
OCCURS = 255  # byte of a word that occurs


@dataclass(frozen=True)
class Texts(TaskOfFiles):
    """Texts, each as the set of its words. Only the classes are fitted to the operator's texts.

    label    column of a .csv file, or field of .jsonl lines, with the class
    text     column or field with the text
    buckets  number of positions onto which words are hashed; two words at one position count as one
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


MAX_LETTERS = 20_000


def read_texts(path: Path, text: str = "text", label: str = "label", separator: str | None = None) -> ReadSamples:
    """The texts of a file in its order; lines without a text, or with a text that is too long, are listed as problems.

    .csv    with a header that names the column `text`; the classes are in the column `label`, if there is one
    .jsonl  an object with these fields on each line, or a text alone

    separator  between several classes, which may also be a list in a .jsonl file; None if a text has one class
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise InputError(f"{path} holds no texts; it must be a .csv or .jsonl file.")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB; split it into several files.")
        lines = list(_csv_lines(path, text, label) if suffix == ".csv" else _json_lines(path, text, label, separator))
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({short_reason(error)}); it must be text in UTF-8.") from None
    kept = [(number, found, name) for number, found, name in lines if _fault(found) is None]
    problems = tuple(f"line {number} {fault}" for number, found, _ in lines if (fault := _fault(found)) is not None)
    texts = np.empty(len(kept), dtype=object)
    texts[:] = [_clean(str(found).strip()) for _, found, _ in kept]
    places = tuple(f"line {number}" for number, _, _ in kept)
    labels = complete_labels([_clean(name) for _, _, name in kept], places, path, label)
    read = ReadSamples(texts, labels, (), problems, str(path), places)
    return read if separator is None else read.with_several_labels(separator)


def _csv_lines(path: Path, text: str, label: str) -> Iterator[tuple[int, object, str]]:
    """Number, text and label of each line."""
    rows = csv_rows(path)
    header = [name.strip() for name in rows[0][1]] if rows else []
    if text not in header:
        raise InputError(f"line 1 of {path} has no column {text!r}; it must be a header with that name in it.")
    at, label_at = header.index(text), header.index(label) if label in header else -1
    for number, cells in rows[1:]:
        name = cells[label_at].strip() if 0 <= label_at < len(cells) else ""
        yield number, cells[at] if at < len(cells) else None, name


def _json_lines(path: Path, text: str, label: str, separator: str | None) -> Iterator[tuple[int, object, str]]:
    """Number, text and label of each line that is not blank."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                name = value.get(label) if isinstance(value, dict) else None
                if separator is not None and isinstance(name, list):
                    name = separator.join(str(one).strip() for one in name)
                found = value.get(text) if isinstance(value, dict) else value
                yield number, found, "" if name is None or isinstance(name, dict | list) else str(name).strip()


def _fault(text: object) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return "holds no text."
    if len(text) > MAX_LETTERS:
        return f"has {len(text):,} letters; at most {MAX_LETTERS:,} are shown."
    return None


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


MOST_OF_A_KIND = 1000
KINDS: dict[type[ast.AST], str] = {ast.Module: "module", ast.ClassDef: "class"}
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@lru_cache(maxsize=1)
def docstrings() -> ReadSamples:
    """Docstrings of the standard library of this Python."""
    return docstrings_in(Path(sysconfig.get_path("stdlib")))


def docstrings_in(folder: Path, most: int = MOST_OF_A_KIND) -> ReadSamples:
    """Docstrings of modules, classes, functions and methods, at most this many of each, without duplicates."""
    found: dict[str, tuple[str, str]] = {}  # text: kind and place
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not LEFT_OUT & set(name.parts):
            for kind, line, text in _docstrings_of(path):
                found.setdefault(text, (kind, f"line {line} of {name}"))
    if not found:
        raise InputError(f"{folder} has no Python files with docstrings.")
    draws = generator(0, Purpose.SPLIT)
    texts, kinds = list(found), np.array([kind for kind, _ in found.values()])
    kept: list[int] = []
    for kind in sorted(set(kinds.tolist())):
        positions = np.flatnonzero(kinds == kind)
        kept += sorted(draws.permutation(positions)[:most].tolist())
    raw = np.empty(len(kept), dtype=object)
    raw[:] = [texts[k] for k in sorted(kept)]
    chosen = [found[text] for text in raw]
    return ReadSamples(
        raw, tuple(kind for kind, _ in chosen), file="docstrings", places=tuple(place for _, place in chosen)
    )


def _docstrings_of(path: Path) -> Iterator[tuple[str, int, str]]:
    """Kind, line and text of each docstring in a file; none if it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    yield from _within(tree, "function")


def _within(node: ast.AST, inner: str) -> Iterator[tuple[str, int, str]]:
    """The docstring of this node, and the docstrings of all definitions in it; a function in it is an `inner` one."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        kind = KINDS.get(type(node), inner)
        text = (ast.get_docstring(node) or "").strip()
        if text:
            yield kind, getattr(node, "lineno", 1), text
        inner = "method" if isinstance(node, ast.ClassDef) else "function"
    for child in ast.iter_child_nodes(node):
        yield from _within(child, inner)
