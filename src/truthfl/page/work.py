"""State of the labeling: samples, classes, number of samples to label, decisions.

Classes and number come from the newest offer unless it was declined. An `edition` identifies one list of samples with
one list of classes; a request with another edition gets a `StaleError`. Imports `document_names`, `requests`,
`shortcuts`, `samples`; `document_views` if there is an offer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.page.document_names import document_names
from truthfl.page.requests import StaleError
from truthfl.page.shortcuts import keys_of
from truthfl.samples.label_state import UNTOUCHED, LabelState
from truthfl.samples.label_store import Decision, LabelStore, StoredDecision
from truthfl.samples.sample import Media, Source, UnreadableError

MAX_DECODERS = 2  # threads that decode at the same time
RECENT_LABELS = 20


Conversion = Callable[[Media, str], Media]  # of a picture with this name


@dataclass(frozen=True)
class Assignment:
    """Which classes there are and how much to label.

    requested   number of samples; None for all
    accepted    whether the offer was accepted
    """

    classes: tuple[str, ...]
    requested: int | None
    accepted: bool
    edition: str


class Work:
    """One participant's samples and labels, shared by all requests."""

    def __init__(
        self,
        home: Path,
        source: Source,
        classes: Sequence[str],
        store: LabelStore,
        existing_labels: Sequence[int | str] | None = None,
    ) -> None:
        """`existing_labels`: labels in the sample file itself, indices or names of classes; they cannot be changed."""
        self.home, self.source, self.store = home, source, store
        self.existing_labels = None if existing_labels is None else list(existing_labels)
        self.classes = tuple(classes)
        self.position = {sample.id: position for position, sample in enumerate(source.samples)}
        self.unreadable: dict[int, str] = {}
        self._ids_digest = sha256("\n".join(source.ids).encode()).hexdigest()
        self._decoding = threading.BoundedSemaphore(MAX_DECODERS)
        self._cached: tuple[object, Assignment] | None = None

    def assignment(self) -> Assignment:
        """The current assignment; documents are read again only if there is a new offer or answer."""
        offers, answers = (document_names(self.home / folder) for folder in ("offers", "answers"))
        if self._cached is None or self._cached[0] != (offers, answers):
            self._cached = ((offers, answers), self._from_offer() if offers else self._assignment(self.classes))
        return self._cached[1]

    def _from_offer(self) -> Assignment:
        from truthfl.page.document_views import answer_to, offer_in_force

        offer = offer_in_force(self.home)
        if offer is None:
            return self._assignment(self.classes)
        return self._assignment(offer.job.classes, offer.client.samples, answer_to(self.home, offer) is not None)

    def _assignment(self, classes: tuple[str, ...], requested: int | None = None, accepted: bool = False) -> Assignment:
        identity = "\n".join((self._ids_digest, *classes))
        return Assignment(classes, requested, accepted, sha256(identity.encode()).hexdigest()[:16])

    def state(self) -> dict[str, Any]:
        """All values that the page needs when it is loaded."""
        assignment, stored = self.assignment(), self.store.states()
        states = [stored.get(sample.id, UNTOUCHED) for sample in self.source.samples]
        index = {name: number for number, name in enumerate(assignment.classes)}
        skipped = [(state.skipped, at) for at, state in enumerate(states) if state.skipped is not None]
        times = self.store.recent_times(RECENT_LABELS)
        keys = zip(assignment.classes, keys_of(assignment.classes), strict=True)
        return {
            "edition": assignment.edition,
            "kind": self.source.kind,
            "classes": [{"name": name, "key": key} for name, key in keys],
            "total": len(self.source),
            "requested": assignment.requested,
            "accepted": assignment.accepted,
            "has_labels": self.existing_labels is not None,
            "labels": self._existing_labels(index) or [index.get(state.label or "", -1) for state in states],
            "skipped": [at for _, at in sorted(skipped)],
            "flagged": [at for at, state in enumerate(states) if state.flagged],
            "unreadable": {str(at): reason for at, reason in self.unreadable.copy().items()},
            "problems": [problem.reason for problem in self.source.problems],
            "pauses": [round((b - a).total_seconds(), 3) for a, b in pairwise(times)],
        }

    def _existing_labels(self, index: Mapping[str, int]) -> list[int]:
        """The labels in the sample file itself, as indices of classes; -1 for those of no class."""
        return [index.get(label, -1) if isinstance(label, str) else label for label in self.existing_labels or ()]

    def media(self, edition: str, position: int, convert: Conversion | None = None) -> Media:
        """The sample at a position, converted if it is a picture; one that cannot be read is recorded as unreadable."""
        self._checked_assignment(edition, position)
        with self._decoding:
            try:
                media = self.source.media(position)
                if convert is None or self.source.kind != "picture":
                    return media
                return convert(media, self.source.samples[position].name)
            except UnreadableError as error:
                self.unreadable[position] = str(error)
                raise

    def decide(self, edition: str, nonce: str, position: int, action: str, label: int | None) -> dict[str, Any]:
        """Store a decision, on the disk when this returns; return the sample's new state."""
        assignment = self._checked_assignment(edition, position)
        self._require_editable()
        count = len(assignment.classes)
        if (label is not None) != (action == "label") or not 0 <= (label or 0) < count:
            raise InputError(f"label is {label} for the action {action}; it must be one of {count} classes.")
        name = None if label is None else assignment.classes[label]
        decision = Decision(nonce, self.source.samples[position].id, action, name)
        return self._result(assignment, self.store.decide(decision))

    def undo(self, edition: str, nonce: str) -> dict[str, Any]:
        """Undo the last decision; return the sample's new state, with position None if there is no decision."""
        assignment = self._checked_assignment(edition, 0)
        self._require_editable()
        stored = self.store.undo(nonce, self.position)
        return {"position": None} if stored is None else self._result(assignment, stored)

    def _result(self, assignment: Assignment, stored: StoredDecision) -> dict[str, Any]:
        """JSON of a decision and its sample's new state."""
        decision = {"position": self.position.get(stored.sample), "action": stored.action}
        return decision | _state_json(stored.state, assignment.classes)

    def _require_editable(self) -> None:
        if self.existing_labels is not None:
            raise InputError(f"the labels are in {self.source.place} itself; they are changed there.")

    def _checked_assignment(self, edition: str, position: int) -> Assignment:
        """The current assignment; an error if the request's edition or position is wrong."""
        assignment = self.assignment()
        if edition != assignment.edition:
            raise StaleError("there are other samples or classes now; the page must be loaded again.")
        if not 0 <= position < len(self.source):
            raise InputError(f"there is no sample {position}; there are {len(self.source)}.")
        return assignment


def _state_json(state: LabelState, classes: Sequence[str]) -> dict[str, Any]:
    label = classes.index(state.label) if state.label in classes else -1
    return {"label": label, "skipped": state.skipped is not None, "flagged": state.flagged}
