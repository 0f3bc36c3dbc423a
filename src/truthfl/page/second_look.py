"""Labels that the participant's own model doubts, for the review page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from truthfl.page.work import Work

if TYPE_CHECKING:
    from truthfl.learning.second_opinion import OpinionSource

NO_MODEL: dict[str, Any] = {"doubts": None, "handed_in": False}


class SecondLook:
    """Asks a model about the present labels; the answer to the last question is kept."""

    def __init__(self, work: Work, make_opinion: Callable[[], OpinionSource] | None) -> None:
        """`make_opinion` is called when the first answer is asked for, since it imports the learning; None for none."""
        self.work, self.make_opinion = work, make_opinion
        self._lock = threading.Lock()
        self._last: tuple[object, dict[str, Any]] | None = None

    def answer(self) -> dict[str, Any]:
        """JSON: the doubted labels, None if there is no model to ask, and whether the model was handed in."""
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
    from truthfl.learning.second_opinion import doubts

    found = opinion(labels, classes)
    if found is None:
        return NO_MODEL
    return {"doubts": [asdict(doubt) for doubt in doubts(found, labels)], "handed_in": found.handed_in}
