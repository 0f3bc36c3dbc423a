"""What is being labeled now: samples, classes, how many are asked for, and what was decided. Looks at this room.

The last offer, if there is one she has not declined, says which classes there are and how many samples are asked for.
An `edition` is one list of samples with one list of classes: whoever speaks of another edition must look again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.page.document_names import names_of_papers
from truthfl.page.shortcuts import keys_of
from truthfl.samples.label_state import UNTOUCHED, LabelState
from truthfl.samples.label_store import Decision, LabelStore, StoredDecision
from truthfl.samples.sample import Media, Source, UnreadableError

DECODED_AT_ONCE = 2
RECENT = 20


Change = Callable[[Media, str], Media]


class StaleError(InputError):
    """The page speaks of other samples or classes than there are now."""


@dataclass(frozen=True)
class Assignment:
    """classes: with a key each; asked: how many samples, None for all; accepted: whether she has accepted the offer."""

    classes: tuple[str, ...]
    asked: int | None
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
        given: Sequence[int] | None = None,
    ) -> None:
        """`given`: labels that the samples came with, as numbers of classes; they are only shown."""
        self.home, self.source, self.store = home, source, store
        self.given = None if given is None else list(given)
        self.classes = tuple(classes)
        self.position = {sample.id: position for position, sample in enumerate(source.samples)}
        self.unreadable: dict[int, str] = {}
        self._ids_digest = sha256("\n".join(source.ids).encode()).hexdigest()
        self._decoding = threading.BoundedSemaphore(DECODED_AT_ONCE)
        self._known: tuple[object, Assignment] | None = None

    def assignment(self) -> Assignment:
        """Read again only when an offer or an answer has come."""
        offers, answers = (names_of_papers(self.home / folder) for folder in ("offers", "answers"))
        if self._known is None or self._known[0] != (offers, answers):
            self._known = ((offers, answers), self._offered() if offers else self._assigned(self.classes))
        return self._known[1]

    def _offered(self) -> Assignment:
        from truthfl.page.documents_shown import answer_to, offer_in_force

        offer = offer_in_force(self.home)
        if offer is None:
            return self._assigned(self.classes)
        return self._assigned(offer.job.classes, offer.client.samples, answer_to(self.home, offer) is not None)

    def _assigned(self, classes: tuple[str, ...], asked: int | None = None, accepted: bool = False) -> Assignment:
        whole = "\n".join((self._ids_digest, *classes))
        return Assignment(classes, asked, accepted, sha256(whole.encode()).hexdigest()[:16])

    def state(self) -> dict[str, Any]:
        """Everything the page needs to begin."""
        now, found = self.assignment(), self.store.states()
        standing = [found.get(sample.id, UNTOUCHED) for sample in self.source.samples]
        number = {name: at for at, name in enumerate(now.classes)}
        skipped = [(one.skipped, at) for at, one in enumerate(standing) if one.skipped is not None]
        times = self.store.recent_times(RECENT)
        return {
            "edition": now.edition,
            "kind": self.source.kind,
            "classes": [
                {"name": name, "key": key} for name, key in zip(now.classes, keys_of(now.classes), strict=True)
            ],
            "total": len(self.source),
            "asked": now.asked,
            "accepted": now.accepted,
            "given": self.given is not None,
            "labels": self.given or [number.get(one.label or "", -1) for one in standing],
            "skipped": [at for _, at in sorted(skipped)],
            "flagged": [at for at, one in enumerate(standing) if one.flagged],
            "unreadable": {str(at): why for at, why in self.unreadable.copy().items()},
            "problems": [problem.reason for problem in self.source.problems],
            "pauses": [round((b - a).total_seconds(), 3) for a, b in pairwise(times)],
        }

    def media(self, edition: str, position: int, change: Change | None = None) -> Media:
        """One sample, changed if it is a picture; one that cannot be read is passed over from now on."""
        self._require(edition, position)
        with self._decoding:
            try:
                found = self.source.media(position)
                if change is None or self.source.kind == "text":
                    return found
                return change(found, self.source.samples[position].name)
            except UnreadableError as error:
                self.unreadable[position] = str(error)
                raise

    def decide(self, edition: str, nonce: str, position: int, action: str, label: int | None) -> dict[str, Any]:
        """Written down when this returns."""
        now = self._require(edition, position)
        self._require_open()
        if (label is not None) != (action == "label") or not 0 <= (label or 0) < len(now.classes):
            raise InputError(f"label is {label} for the action {action}; it must be one of {len(now.classes)} classes.")
        name = None if label is None else now.classes[label]
        return self._told(now, self.store.decide(Decision(nonce, self.source.samples[position].id, action, name)))

    def undo(self, edition: str, nonce: str) -> dict[str, Any]:
        now = self._require(edition, 0)
        self._require_open()
        kept = self.store.undo(nonce, self.position)
        return {"position": None} if kept is None else self._told(now, kept)

    def _told(self, now: Assignment, kept: StoredDecision) -> dict[str, Any]:
        return {"position": self.position.get(kept.sample), "action": kept.action} | _plain(kept.state, now.classes)

    def _require_open(self) -> None:
        if self.given is not None:
            raise InputError(f"the labels are in {self.source.place} itself; they are changed there.")

    def _require(self, edition: str, position: int) -> Assignment:
        now = self.assignment()
        if edition != now.edition:
            raise StaleError("there are other samples or classes now; the page must be loaded again.")
        if not 0 <= position < len(self.source):
            raise InputError(f"there is no sample {position}; there are {len(self.source)}.")
        return now


def _plain(now: LabelState, classes: Sequence[str]) -> dict[str, Any]:
    label = classes.index(now.label) if now.label in classes else -1
    return {"label": label, "skipped": now.skipped is not None, "flagged": now.flagged}
