"""Task and model of a job's terms.

A custom task is never loaded by a name in an offer. The user names the file, and its digest must be the offer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.errors import InputError
from truthfl.learning.data.federations import ModelChoice
from truthfl.learning.models.model import Model
from truthfl.learning.tasks.task import Task
from truthfl.learning.tasks.task_choice import BUILT_IN, PICTURES, TaskChoice
from truthfl.ledger.canonical import canonical_bytes, digest
from truthfl.ledger.terms import JobTerms

LONGEST_TASK = 1_000_000  # characters of a task's document


class OtherTaskError(InputError):
    """The user's task is not the job's; `difference` shows both digests."""

    def __init__(self, difference: str) -> None:
        super().__init__(f"the offer's {difference}: get the operator's file and join again. Nothing is trained.")
        self.difference = difference


def task_terms(choice: TaskChoice, fitted: Task) -> dict[str, Any] | None:
    """The task as a part of a job's terms; None for pictures.

    name      of the task
    document  its fields, with what was fitted on the operator's data
    digest    of the document and of the source of a custom task
    revision  of a built-in task
    """
    if choice == PICTURES:
        return None
    document = fitted.document()
    return {
        "name": choice.name,
        "document": document,
        "digest": task_digest(document, choice.source()),
        "revision": fitted.revision,
    }


def own_task_name(terms: JobTerms) -> str | None:
    """The name of the job's task if it is custom; None if it is built-in."""
    return None if terms.task is None or terms.task["name"] in BUILT_IN else str(terms.task["name"])


def task_digest(document: Mapping[str, Any], source: str) -> str:
    """The digest of a task: of its document and of its source."""
    return digest({"task": document, "source": source})


def task_of(terms: JobTerms, own: TaskChoice | None = None) -> Task:
    """The task of these terms, which are untrusted.

    own  the task that the user named; names in the terms can only select built-in tasks
    """
    if terms.task is None:
        return PICTURES.load()
    name, document, stated, revision = (terms.task[key] for key in ("name", "document", "digest", "revision"))
    if len(canonical_bytes(document)) > LONGEST_TASK:
        raise InputError(f"the offer's task has more than {LONGEST_TASK:,} characters.")
    if name in BUILT_IN:
        choice = TaskChoice(name)
    elif own is not None and own.is_own:
        choice = own
    else:
        raise InputError(
            f"the offer is for a custom task, {name}; join with --task FILE.py:{name}. The server never sends code."
        )
    try:
        task = type(choice.load()).of_document(document)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the offer's task {name} has other fields than it should ({type(error).__name__}).") from None
    if task.revision != revision:
        raise InputError(
            f"the offer's task {name} has revision {revision}; here it is {task.revision}: update truthfl."
        )
    actual = task_digest(document, choice.source())
    if actual != stated:
        raise OtherTaskError(f"task is {name} {stated[:8]}…; yours is {actual[:8]}…")
    return task


def model_of(terms: JobTerms, own: TaskChoice | None = None) -> Model:
    """The model of these terms; `own` as in `task_of`."""
    task = task_of(terms, own)
    return ModelChoice(**terms.model).for_shape(tuple(terms.image_shape), len(terms.classes), task)
