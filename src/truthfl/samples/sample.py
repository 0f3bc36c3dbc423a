"""Samples to label and the sources they are read from.

A sample's id is a hash of its content, so labels stay with their pictures when files are added, renamed or moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias

from truthfl.errors import InputError

if TYPE_CHECKING:  # the page starts without NumPy
    import numpy as np
    from numpy.typing import NDArray

ID_LENGTH = 32

Kind = Literal["picture", "text", "row"]  # a row of a table, or a sample of another kind that is shown in words
Pixels: TypeAlias = "NDArray[np.uint8]"
Shape: TypeAlias = tuple[int, ...]  # height, width, channels


class UnreadableError(InputError):
    """One sample cannot be read; it is reported and left out."""


class Sample(NamedTuple):
    """One sample of a source.

    id    hash of its content
    name  shown to people: a path, row or line
    row   its index in the source's reader
    """

    id: str
    name: str
    row: int


class Problem(NamedTuple):
    """Name of a sample that was left out, and the reason as a sentence."""

    name: str
    reason: str


class Media(NamedTuple):
    """A sample, or what is shown of it, as a file's content."""

    content: bytes
    media_type: str


class Reader(Protocol):
    """Reads the samples of one source, one at a time. All methods may raise `UnreadableError`."""

    def file(self, row: int) -> BinaryIO:
        """The sample as a file that is open for reading, not checked to be readable; the caller closes it."""

    def media(self, row: int) -> Media:
        """The sample as it is, complete and checked to be readable."""

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:
        """The sample for training: (height, width, channels), with 1 or 3 channels; fitted to `shape`, if given."""


@dataclass(frozen=True, eq=False)
class Source:
    """The samples of one folder or file, in an order that depends only on its content.

    place     its path, for messages
    problems  samples that were left out
    """

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

    def file(self, position: int) -> BinaryIO:
        return self.reader.file(self.samples[position].row)

    def media(self, position: int) -> Media:
        return self.reader.media(self.samples[position].row)

    def pixels(self, position: int, shape: Shape | None = None) -> Pixels:
        return self.reader.pixels(self.samples[position].row, shape)

    def subset(self, positions: Iterable[int], problems: Iterable[Problem]) -> Source:
        """The source with only the samples at these positions, in this order, and with these problems added."""
        samples = tuple(self.samples[position] for position in positions)
        return replace(self, samples=samples, problems=(*self.problems, *problems))


def content_id(*parts: bytes | memoryview) -> str:
    """The id of a sample whose content is these bytes."""
    return sha256(b"".join(parts)).hexdigest()[:ID_LENGTH]


def samples_with_unique_ids(contents: Sequence[str], names: Sequence[str], rows: Sequence[int]) -> tuple[Sample, ...]:
    """Samples with these content ids; the second of two equal ones gets the suffix "-2", and so on."""
    seen: Counter[str] = Counter()
    samples = []
    for content, name, row in zip(contents, names, rows, strict=True):
        seen[content] += 1
        samples.append(Sample(content if seen[content] == 1 else f"{content}-{seen[content]}", name, row))
    return tuple(samples)


def require_samples(source: Source, wanted: str) -> Source:
    """The source itself; an error if it is empty. `wanted` says for the message what it should hold."""
    if not source.samples:
        first = f" ({source.problems[0].reason})" if source.problems else ""
        raise InputError(f"{source.place} has nothing to label{first}; it must hold {wanted}.")
    return source
