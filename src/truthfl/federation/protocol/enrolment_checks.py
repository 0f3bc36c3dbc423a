"""Checks of what a node says when it enrols: its proof of who it is, and the description of its client.

What a client can put right herself has a form (`coded_text`), so that her page says it in her language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.learning.task_choice import PICTURES, TaskChoice
from truthfl.ledger.signing import normal_public_line, signed_by
from truthfl.mechanism.checks import number, whole_number
from truthfl.texts import plain, plain_name


def require_proof(sent: Mapping[str, Any], job: str, challenge: str) -> None:
    """Raise InputError unless a description is signed, for this job and challenge, by the key that it names.

    The sender of a message is not certain: without this, one participant's connection could enrol another.
    """
    if set(sent) != {"document", "signature"} or not isinstance(sent["document"], Mapping):
        raise InputError("a client's description of herself is not signed.")
    document = {"kind": "enrolment", "job": job, "challenge": challenge, "description": dict(sent["document"])}
    if not signed_by(str(sent["document"].get("public_key")), document, str(sent["signature"])):
        raise InputError("a client's description of herself is not signed by the key that it names, for this server.")


def checked_description(
    sent: Mapping[str, Any], image_shape: tuple[int, ...] | None, task: TaskChoice = PICTURES
) -> dict[str, Any]:
    """Return the enrolment document a client sent, without what her samples are; raise InputError if it is invalid.

    image_shape  of the job's pictures; None if it has others, or clients need not say what they have. A client who says
                 None fits hers to what the offer asks for
    """
    _require_task(sent, task)
    required = {"name", "samples", "public_key"} | (set() if image_shape is None else {"image_shape"})
    required |= set() if task.is_pictures else {"task"} | ({"source"} if task.is_own else set())
    optional = {"labeling_cost", "sample_cost"}
    if not required <= set(sent) <= required | optional:
        raise InputError(f"a client describes herself with {', '.join(sorted(sent)) or 'nothing'}.")
    name = plain_name("name", sent["name"])
    key = normal_public_line(str(sent["public_key"]))
    if image_shape is not None and sent["image_shape"] not in (None, list(image_shape)):
        shape = plain(sent["image_shape"], 60)
        words = "{name}'s pictures are {own}; the job's are {asked}."
        raise InputError(coded("refusal.other_shape", words, name=name, own=shape, asked=list(image_shape)))
    samples = whole_number("samples", sent["samples"], at_least=1)
    costs = {field: number(field, sent[field], positive=True) for field in sorted(optional & set(sent))}
    return {"name": name, "samples": samples, "public_key": key, **costs}


def _require_task(sent: Mapping[str, Any], task: TaskChoice) -> None:
    """Raise InputError if a client says that her samples are for another task than the job's."""
    stated, name = plain(sent.get("task", PICTURES.name), 60), plain(sent.get("name", "a client"), 60)
    if stated != task.name:
        if task.is_pictures:
            words = "{name} brings {stated}; this job is on {task}: she joins without --task."
            raise InputError(coded("refusal.without_task", words, name=name, stated=stated, task=task.name))
        file = f"FILE.py:{task.name}" if task.is_own else task.name
        words = "{name} brings {stated}; this job is on {task}: she joins with --task {file}."
        raise InputError(coded("refusal.with_task", words, name=name, stated=stated, task=task.name, file=file))
    if task.is_own and sent.get("source") != task.source():
        theirs = plain(sent.get("source", "none"), 60)[:8]
        words = (
            "{name}'s task {task} is another than the job's: its source is {theirs}…, the job's {source}…. The "
            "operator's file is the one to install."
        )
        source = task.source()[:8]
        raise InputError(coded("refusal.other_source", words, name=name, task=task.name, theirs=theirs, source=source))
