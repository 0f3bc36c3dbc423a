"""The state of labeling: samples, classes, decisions, shortcuts, and labels to review.

Classes, number and instructions come from the newest offer, unless it was declined. Before an offer arrives, there may
be no classes and nothing to label. An `edition` identifies one list of samples with one list of classes; a request
with another edition gets a `StaleError`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Any, NamedTuple

from truthfl.coded_text import sentence_of
from truthfl.learning.data.class_sets import are_known, joined, names_in
from truthfl.page.catalogue import MessageError, shown
from truthfl.page.http import BulkRequest, ConflictError, DecisionRequest, Numbers, StaleMessageError
from truthfl.samples.label_store import Agrees, Decision, LabelConflictError, LabelState, LabelStore, StoredDecision
from truthfl.samples.sample import Media, Source, UnreadableError

if TYPE_CHECKING:
    from truthfl.instructions import Instructions
    from truthfl.learning.people.second_opinion import OpinionSource
    from truthfl.samples.shown_pictures import Form, ShownPictures


NO_DOCUMENTS: dict[str, Any] = {
    "offer": None,
    "answer": None,
    "receipt": None,
    "news": None,
    "job": None,
}


def document_names(folder: Path) -> frozenset[str]:
    """Names of the JSON files in a folder; empty if it cannot be read. Documents are never changed."""
    try:
        return frozenset(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return frozenset()


def has_no_documents(home: Path) -> bool:
    """Whether the participant's folder has no news, no offer and no receipt."""
    return not any(document_names(folder) for folder in (home, home / "offers", home / "receipts"))


RESERVED = frozenset("fi")  # flag a picture, open the instructions
USABLE = frozenset(ascii_lowercase + digits) - RESERVED


def keys_of(classes: Sequence[str]) -> tuple[str | None, ...]:
    """A distinct key for each class. If there are more classes than keys, all are None, and people search the classes.

    A class named by a digit gets that digit. Others get the first letter of their name if it is free, then another
    letter of it, then any free letter or digit.
    """
    if len(classes) > len(USABLE):
        return (None,) * len(classes)
    keys: dict[int, str] = {index: name for index, name in enumerate(classes) if name in tuple(digits)}
    preferences = (lambda name: name[:1], lambda name: name, lambda _: ascii_lowercase + digits[1:] + digits[0])
    for preferred in preferences:
        for index, name in enumerate(classes):
            if index not in keys:
                _assign_first_free(keys, index, preferred(name.lower()))
    return tuple(keys.get(index) for index in range(len(classes)))


def _assign_first_free(keys: dict[int, str], index: int, candidates: str) -> None:
    free = next((key for key in candidates if key in USABLE.difference(keys.values())), None)
    if free is not None:
        keys[index] = free


NO_MODEL: dict[str, Any] = {"doubts": None, "handed_in": False}


class SecondLook:
    """Asks a model about the present labels and keeps the last answer."""

    def __init__(self, work: Work, make_opinion: Callable[[], OpinionSource] | None) -> None:
        """`make_opinion` is called for the first answer, since it imports the learning; None if there is no model."""
        self.work, self.make_opinion = work, make_opinion
        self._lock = threading.Lock()
        self._last: tuple[object, dict[str, Any]] | None = None

    def answer(self) -> dict[str, Any]:
        """JSON: the doubted labels (None if there is no model to ask), and whether the model was submitted."""
        assignment = self.work.assignment()
        if self.make_opinion is None or assignment.several:  # models that find one class doubt every other
            return NO_MODEL
        labels, classes = self.work.state()["labels"], assignment.classes
        with self._lock:
            models = sorted(path.name for path in (self.work.home / "auditions").glob("*.npz"))
            question = (labels, classes, models)
            if self._last is None or self._last[0] != question:
                self._last = (question, _asked(self.opinion, labels, classes))
            return self._last[1]

    @cached_property
    def opinion(self) -> OpinionSource:
        assert self.make_opinion is not None
        return self.make_opinion()


def _asked(opinion: OpinionSource, labels: list[int], classes: tuple[str, ...]) -> dict[str, Any]:
    from truthfl.learning.people.second_opinion import doubts

    found = opinion(labels, classes)
    if found is None:
        return NO_MODEL
    return {"doubts": [asdict(doubt) for doubt in doubts(found, labels)], "handed_in": found.handed_in}


RECENT_LABELS = 20
FEWEST_PAUSES, BREAK_SECONDS, SHORTEST_PACE = 3, 60.0, 0.1  # as in static/progress.js; a longer pause is a break

ExistingLabels = Sequence[int] | Sequence[str] | Sequence[list[int]]
"""Labels in a sample file itself: numbers or names of classes, or a list of numbers for each sample."""


class Assignment(NamedTuple):
    """The classes and the number of samples to label.

    classes     none while they are not known
    requested   number of samples; None for all
    accepted    whether the offer was accepted
    several     whether a sample may have several classes
    instructions  about the classes; None for none
    """

    classes: tuple[str, ...]
    requested: int | None
    accepted: bool
    edition: str
    instructions: Instructions | None = None
    several: bool = False


class Work:
    """One participant's samples and labels, shared by all requests."""

    def __init__(
        self,
        home: Path,
        source: Source,
        classes: Sequence[str],
        store: LabelStore,
        existing_labels: ExistingLabels | None = None,
        instructions: Instructions | None = None,
        several: bool = False,
    ) -> None:
        """`existing_labels`: labels in the sample file itself, indices or names of classes; they cannot be changed.

        instructions  about the classes, if there is no offer
        several       whether a sample may have several classes, if there is no offer
        """
        self.several = several
        self.instructions = instructions
        self.home, self.source, self.store = home, source, store
        self.existing_labels: list[Any] | None = None if existing_labels is None else list(existing_labels)
        self.classes = tuple(classes)
        self.position = {sample.id: position for position, sample in enumerate(source.samples)}
        self.unreadable: dict[int, str] = {}
        self._unopened: set[int] = set()  # those of them whose file could not be opened, which may change
        self._ids_digest = sha256("\n".join(source.ids).encode()).hexdigest()
        self._cached: tuple[object, Assignment] | None = None

    def assignment(self) -> Assignment:
        """The current assignment; documents are read again only if there is a new offer or answer."""
        offers, answers = (document_names(self.home / folder) for folder in ("offers", "answers"))
        if self._cached is None or self._cached[0] != (offers, answers):
            self._cached = ((offers, answers), self._from_offer() if offers else self._own_assignment())
        return self._cached[1]

    def _from_offer(self) -> Assignment:
        from truthfl.page.documents import answer_to, offer_in_force

        offer = offer_in_force(self.home)
        if offer is None:
            return self._own_assignment()
        answered, several = answer_to(self.home, offer) is not None, offer.job.several_labels
        assignment = self._assignment(offer.job.classes, several, offer.client.samples, answered)
        return assignment._replace(instructions=offer.job.instructions)

    def _own_assignment(self) -> Assignment:
        """The assignment without an offer."""
        return self._assignment(self.classes, self.several)._replace(instructions=self.instructions)

    def _assignment(
        self, classes: tuple[str, ...], several: bool, requested: int | None = None, accepted: bool = False
    ) -> Assignment:
        identity = "\n".join((self._ids_digest, *classes, *(("\nseveral",) if several else ())))
        edition = sha256(identity.encode()).hexdigest()[:16]
        return Assignment(classes, requested, accepted, edition, several=several)

    def state(self) -> dict[str, Any]:
        """All values that the page needs when it is loaded."""
        assignment, states = self.assignment(), self._states_by_position()
        self._forget_mended()
        skipped = [(state.skipped, at) for at, state in states.items() if state.skipped is not None]
        keys = zip(assignment.classes, keys_of(assignment.classes), strict=True)
        return {
            "edition": assignment.edition,
            "kind": self.source.kind,
            "classes": [{"name": name, "key": key} for name, key in keys],
            "has_instructions": assignment.instructions is not None,
            "total": len(self.source),
            "requested": assignment.requested,
            "accepted": assignment.accepted,
            "has_labels": self.existing_labels is not None,
            "several": assignment.several,
            "labels": self._existing_labels(assignment) or self._labels(states, assignment),
            "skipped": [at for _, at in sorted(skipped)],
            "flagged": [at for at, state in states.items() if state.flagged],
            "unreadable": {str(at): shown(reason) for at, reason in self.unreadable.copy().items()},
            "other_classes": _other_classes(states, assignment),
            "problems": [shown(problem.reason) for problem in self.source.problems],
            "pauses": self._pauses(),
        }

    def _states_by_position(self) -> dict[int, LabelState]:
        """State of every sample with a decision, in the order of the samples."""
        stored = {
            self.position[sample]: state for sample, state in self.store.states().items() if sample in self.position
        }
        return dict(sorted(stored.items()))

    def _labels(self, states: Mapping[int, LabelState], assignment: Assignment) -> list[Numbers]:
        """The label of every sample. Reads only samples with a decision, since there may be very many others."""
        labels = [_numbers(None, assignment)] * len(self.source)
        numbers = {label: _numbers(label, assignment) for label in {state.label for state in states.values()}}
        for at, state in states.items():
            labels[at] = numbers[state.label]
        return labels

    def pace(self) -> float | None:
        """The participant's seconds per label: the median of the last ones without breaks; None if few are known."""
        pauses = [pause for pause in self._pauses() if pause < BREAK_SECONDS]
        if len(pauses) < FEWEST_PAUSES:
            return None
        from statistics import median  # imported only when somebody labels, since it would slow the page's start

        return max(median(pauses), SHORTEST_PACE)

    def _pauses(self) -> list[float]:
        """Seconds between the last labels."""
        times = self.store.recent_times(RECENT_LABELS)
        return [round((b - a).total_seconds(), 3) for a, b in pairwise(times)]

    def _existing_labels(self, assignment: Assignment) -> list[Numbers]:
        """The labels in the sample file itself, as indices of classes; -1 for labels of no class."""
        existing: list[Numbers | str] = self.existing_labels or []
        return [_existing_numbers(label, assignment) for label in existing]

    @cached_property
    def shown(self) -> ShownPictures:
        """The pictures in the forms that the browser gets."""
        from truthfl.samples.shown_pictures import ShownPictures

        return ShownPictures(self.source, self.home)

    def media(self, edition: str, position: int, form: Form) -> Media:
        """The sample at a position, in this form if it is a picture; an unreadable sample is recorded as such."""
        self._checked_assignment(edition, position)
        try:
            if self.source.kind != "picture":
                return self.source.media(position)
            return self.shown.get(position, form)
        except UnreadableError as error:
            self.unreadable[position] = sentence_of(error)
            if not self._opens(position):
                self._unopened.add(position)
            raise

    def _forget_mended(self) -> None:
        """Stop passing over samples whose files are there again; a file that opens but is broken stays passed over."""
        for position in [one for one in self._unopened.copy() if self._opens(one)]:
            self._unopened.discard(position)
            self.unreadable.pop(position, None)

    def _opens(self, position: int) -> bool:
        try:
            self.source.file(position).close()
        except UnreadableError:
            return False
        return True

    def decide(self, request: DecisionRequest) -> dict[str, Any]:
        """Store a decision and return the sample's new state; the decision is on the disk when this returns.

        Raise `ConflictError`, with nothing stored, if it would replace another label than the page showed.
        """
        position, action, label = request.position, request.action, request.label
        assignment = self._checked_assignment(request.edition, position)
        self._require_editable()
        name = None if action != "label" and label is None else _label_text(assignment, action, label)
        sample = self.source.samples[position].id
        replaces = action in ("label", "skip") and request.seen is not None
        agrees = _agreement(assignment, {sample: request.seen}) if replaces else None
        with self._conflicts(assignment):
            stored = self.store.decide(Decision(request.nonce, sample, action, name), agrees)
        return self._result(assignment, stored)

    def decide_together(self, request: BulkRequest) -> dict[str, Any]:
        """Give several samples a label as one step, all or none; return their new states."""
        for position in request.positions:
            assignment = self._checked_assignment(request.edition, position)
        self._require_editable()
        given: Sequence[Numbers] = (
            request.label if isinstance(request.label, list) else [request.label] * len(request.seen)
        )
        samples = [self.source.samples[position].id for position in request.positions]
        labels = {sample: _label_text(assignment, "label", one) for sample, one in zip(samples, given, strict=True)}
        agrees = _agreement(assignment, dict(zip(samples, request.seen, strict=True)))
        with self._conflicts(assignment):
            stored = self.store.decide_together(request.nonce, labels, agrees)
        return self._result(assignment, stored)

    def undo(self, edition: str, nonce: str) -> dict[str, Any]:
        """Undo the last step; return its samples' new states, with position None if there is no step."""
        assignment = self._checked_assignment(edition, 0)
        self._require_editable()
        stored = self.store.undo(nonce, self.position)
        return {"position": None} if stored is None else self._result(assignment, stored)

    def _result(self, assignment: Assignment, stored: StoredDecision) -> dict[str, Any]:
        """JSON of a step: its action, the new state of its first sample, and in `also` the states of the others."""
        states = {stored.sample: stored.state, **stored.also}
        first, *also = self._states(assignment, states) or [{"position": None}]
        return first | {"action": stored.action} | ({"also": also} if also else {})

    def _states(self, assignment: Assignment, states: Mapping[str, LabelState]) -> list[dict[str, Any]]:
        """JSON of the states of the samples that are present."""
        return [
            {"position": self.position[sample]} | _state_json(state, assignment)
            for sample, state in states.items()
            if sample in self.position
        ]

    @contextmanager
    def _conflicts(self, assignment: Assignment) -> Iterator[None]:
        try:
            yield
        except LabelConflictError as error:
            raise ConflictError(self._states(assignment, error.states)) from None

    def _require_editable(self) -> None:
        if self.existing_labels is not None:
            raise MessageError("error.labels_in_file", place=str(self.source.place))

    def _checked_assignment(self, edition: str, position: int) -> Assignment:
        """The current assignment; an error if the request's edition or position is wrong."""
        assignment = self.assignment()
        if edition != assignment.edition:
            raise StaleMessageError("error.other_work")
        if not 0 <= position < len(self.source):
            raise MessageError("error.no_sample", number=position, total=len(self.source))
        return assignment


def _label_text(assignment: Assignment, action: str, label: Numbers | None) -> str:
    """The text of the class or classes with these numbers; an error if there are none, or if it is no label."""
    numbers = label if isinstance(label, list) else [] if label is None else [label]
    count = len(assignment.classes)
    sound = action == "label" and isinstance(label, list) == assignment.several
    if not sound or not numbers or not all(0 <= number < count for number in numbers):
        raise MessageError("error.no_class", number=count)
    return joined(assignment.classes[number] for number in numbers)


def _numbers(label: str | None, assignment: Assignment) -> Numbers:
    """The number of the label's class, -1 for none or another class. With several classes, a list; empty for none."""
    names = () if label is None else names_in(label, several=assignment.several)
    known = all(name in assignment.classes for name in names)
    numbers = sorted(assignment.classes.index(name) for name in names) if known else []
    return numbers if assignment.several else numbers[0] if numbers else -1


def _existing_numbers(label: Numbers | str, assignment: Assignment) -> Numbers:
    """The numbers of a label in the sample file itself."""
    if isinstance(label, str):
        return _numbers(label, assignment)
    return [label] if assignment.several and isinstance(label, int) else label


def _other_classes(states: Mapping[int, LabelState], assignment: Assignment) -> dict[str, list[int]]:
    """For each label that is none of the present classes, the positions of its samples; such labels are kept."""
    known, several = set(assignment.classes), assignment.several
    found: dict[str, list[int]] = {}
    for at, state in states.items() if known else ():
        if state.label is not None and not are_known(state.label, known, several=several):
            found.setdefault(state.label, []).append(at)
    return found


def _agreement(assignment: Assignment, seen: Mapping[str, Numbers | None]) -> Agrees:
    """Whether a sample has the label that the page showed; for the page, a label of another class is no label."""

    def agrees(sample: str, state: LabelState) -> bool:
        return _numbers(state.label, assignment) == seen[sample]

    return agrees


def _state_json(state: LabelState, assignment: Assignment) -> dict[str, Any]:
    label = _numbers(state.label, assignment)
    return {"label": label, "skipped": state.skipped is not None, "flagged": state.flagged}
