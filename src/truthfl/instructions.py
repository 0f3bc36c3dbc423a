"""`Instructions`: the operator's text about the classes, their descriptions, and examples by their digests.

They are part of an offer and thus untrusted. Both sides check every length and number against its limit here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.texts import LONGEST_NAME, is_plain, plain

SECONDS_A_LABEL = 3.0  # for a participant whose pace is unknown
LONGEST_TEXT = 2000  # letters of the instructions in general
LONGEST_DESCRIPTION = 1000  # letters about one class
MOST_LETTERS = 100_000  # of all descriptions together
MOST_EXAMPLES = 8  # of one class
MOST_OF_ALL = 400  # examples of all classes together
MOST_BYTES = 4_000_000  # of all examples together
PICTURE_SIDE = 480  # pixels
TEXT_TYPE = "text/plain; charset=utf-8"
PICTURE_TYPES = ("image/png", "image/jpeg")
LARGEST = {TEXT_TYPE: 16_000, **dict.fromkeys(PICTURE_TYPES, 100_000)}  # bytes of one example
DIGEST_LENGTH, HEX_DIGITS = 64, frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Example:
    """One example of a class: the SHA-256 digest of its file in hexadecimal digits, its media type, its bytes."""

    sha256: str
    media_type: str
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or len(self.sha256) != DIGEST_LENGTH or not set(self.sha256) <= HEX_DIGITS:
            raise InputError(f"an example's digest has not {DIGEST_LENGTH} hexadecimal digits.")
        if not isinstance(self.media_type, str) or self.media_type not in LARGEST:
            raise InputError(
                f"an example is of the type {plain(repr(self.media_type), 60)}; it must be one of {', '.join(LARGEST)}."
            )
        if type(self.size) is not int or not 0 < self.size <= LARGEST[self.media_type]:
            raise InputError(
                f"an example of the type {self.media_type} has {plain(self.size, 30)} bytes; it must have 1 to "
                f"{LARGEST[self.media_type]:,}."
            )


@dataclass(frozen=True)
class ClassInstructions:
    """The instructions about one class."""

    name: str
    description: str = ""
    examples: tuple[Example, ...] = ()

    def __post_init__(self) -> None:
        require_class(self.name, self.description, len(self.examples))


@dataclass(frozen=True)
class Instructions:
    """The operator's instructions about the classes; classes without instructions may be absent."""

    text: str = ""
    classes: tuple[ClassInstructions, ...] = ()

    def __post_init__(self) -> None:
        require_text(self.text)
        names = [one.name for one in self.classes]
        require_names(names)
        letters = sum(len(one.name) + len(one.description) for one in self.classes)
        if letters > MOST_LETTERS:
            raise InputError(
                f"the descriptions have {letters:,} letters; together they must have at most {MOST_LETTERS:,}."
            )
        examples = list(self.examples)
        size = sum(one.size for one in examples)
        if len(examples) > MOST_OF_ALL or size > MOST_BYTES:
            raise InputError(
                f"there are {len(examples):,} examples with {size:,} bytes; all together must be at most {MOST_OF_ALL} "
                f"with {MOST_BYTES:,} bytes: everybody gets them all."
            )

    @property
    def examples(self) -> Iterator[Example]:
        """The examples of all classes."""
        return (example for one in self.classes for example in one.examples)

    def example(self, sha256: str) -> Example | None:
        """The example with this digest; None if there is none."""
        return next((example for example in self.examples if example.sha256 == sha256), None)

    def document(self) -> dict[str, Any]:
        """The instructions as JSON values."""
        classes = [asdict(one) | {"examples": [asdict(example) for example in one.examples]} for one in self.classes]
        return {"text": self.text, "classes": classes}

    def require_classes(self, classes: Sequence[str]) -> None:
        """Raise `InputError` unless all described classes are among these."""
        require_known([one.name for one in self.classes], classes)


def instructions_from(document: object) -> Instructions:
    """The instructions in these untrusted JSON values."""
    values = _fields(document, {"text", "classes"})
    classes = []
    for one in _items(values["classes"]):
        fields = _fields(one, {"name", "description", "examples"})
        examples = tuple(Example(**_fields(e, {"sha256", "media_type", "size"})) for e in _items(fields["examples"]))
        classes.append(ClassInstructions(fields["name"], fields["description"], examples))
    return Instructions(values["text"], tuple(classes))


def require_text(text: object) -> None:
    """Raise `InputError` unless this is a valid general text of instructions."""
    if not _is_readable(text, LONGEST_TEXT):
        raise InputError(f"instructions {_fault(text, LONGEST_TEXT)}.")


def require_class(name: object, description: object, examples: int) -> None:
    """Raise `InputError` unless these are valid instructions about a class."""
    if not isinstance(name, str) or not name.strip() or not is_plain(name, LONGEST_NAME):
        raise InputError(
            f"the name of a class is {plain(repr(name), 60)}; it must be one line of 1 to {LONGEST_NAME} letters."
        )
    if not _is_readable(description, LONGEST_DESCRIPTION):
        raise InputError(f"the description of {plain(name, 60)!r} {_fault(description, LONGEST_DESCRIPTION)}.")
    if examples > MOST_EXAMPLES:
        raise InputError(f"{plain(name, 60)!r} has {examples:,} examples; it must have at most {MOST_EXAMPLES}.")


def require_names(names: Sequence[str]) -> None:
    """Raise `InputError` if a class occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"the class {plain(name, 60)!r} is there twice; once will do.")
        seen.add(name)


def require_known(names: Sequence[str], classes: Sequence[str]) -> None:
    """Raise `InputError` unless all these names are among a job's classes."""
    known = set(classes)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"{plain(unknown[0], 60)!r} is none of the job's classes; they are {plain(', '.join(classes), 200)}."
        )


def _is_readable(text: object, longest: int) -> bool:
    """Whether this is a text within this number of letters, in lines without control characters."""
    return isinstance(text, str) and len(text) <= longest and all(is_plain(line, longest) for line in text.split("\n"))


def _fault(text: object, longest: int) -> str:
    if not isinstance(text, str):
        return f"is {plain(repr(text), 60)}; it must be a text"
    if len(text) > longest:
        return f"has {len(text):,} letters; it must have at most {longest:,}"
    return "has control characters; it must be plain text"


def _fields(document: object, names: set[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or set(document) != names:
        raise InputError(f"the instructions are not of the known form: one part must have {', '.join(sorted(names))}.")
    return document


def _items(values: object) -> Sequence[Any]:
    if not isinstance(values, list | tuple) or len(values) > MOST_LETTERS:
        raise InputError("the instructions are not of the known form: classes and examples must be lists.")
    return values
