"""What there is to label: samples that are known by their content, and where they are read from. Looks at `errors`.

A sample's content gives it its id, so labels stay with their pictures when files are added, renamed or moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from truthfl.errors import InputError

if TYPE_CHECKING:  # a page of pictures in a folder needs no arrays
    import numpy as np
    from numpy.typing import NDArray

ID_LETTERS = 32

Kind = Literal["picture", "text"]
Pixels: TypeAlias = "NDArray[np.uint8]"


class UnreadableError(InputError):
    """One sample that cannot be read; it is reported and passed over."""


@dataclass(frozen=True)
class Sample:
    """id: of its content; name: for people, as a path or a row; row: where its reader finds it."""

    id: str
    name: str
    row: int


@dataclass(frozen=True)
class Problem:
    """Something that was passed over, and why, in a sentence."""

    name: str
    why: str


@dataclass(frozen=True)
class Shown:
    """A sample as a browser gets it."""

    content: bytes
    media_type: str


class Reader(Protocol):
    """Gives the samples of one place, one at a time. Each may raise `UnreadableError`."""

    def shown(self, row: int) -> Shown:
        """For the browser, whole and known to be readable."""

    def pixels(self, row: int) -> Pixels:
        """For training: (height, width, channels), of 1 or 3 channels."""


@dataclass(frozen=True, eq=False)
class Source:
    """The samples of one place, in an order that only depends on what is there."""

    place: str
    kind: Kind
    samples: tuple[Sample, ...]
    problems: tuple[Problem, ...]
    reader: Reader

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sample.id for sample in self.samples)

    def shown(self, position: int) -> Shown:
        return self.reader.shown(self.samples[position].row)

    def pixels(self, position: int) -> Pixels:
        return self.reader.pixels(self.samples[position].row)

    def keeping(self, positions: Iterable[int], problems: Iterable[Problem]) -> Source:
        """Only these samples, and problems besides those that are known."""
        kept = tuple(self.samples[position] for position in positions)
        return replace(self, samples=kept, problems=(*self.problems, *problems))


def content_id(*parts: bytes | memoryview) -> str:
    """What a sample with these bytes is known by."""
    return sha256(b"".join(parts)).hexdigest()[:ID_LETTERS]


def numbered(contents: Sequence[str], names: Sequence[str], rows: Sequence[int]) -> tuple[Sample, ...]:
    """Samples of these contents; the second of two that are alike is known as the second."""
    seen: Counter[str] = Counter()
    made = []
    for content, name, row in zip(contents, names, rows, strict=True):
        seen[content] += 1
        made.append(Sample(content if seen[content] == 1 else f"{content}-{seen[content]}", name, row))
    return tuple(made)


def require_some(source: Source, wanted: str) -> Source:
    if not source.samples:
        first = f" ({source.problems[0].why})" if source.problems else ""
        raise InputError(f"{source.place} has nothing to label{first}; it must hold {wanted}.")
    return source
