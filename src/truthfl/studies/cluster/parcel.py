"""A task as it travels to a node, and what is made of it there."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from truthfl.studies.cluster.array_call import ArrayCall, Arrays
from truthfl.studies.cluster.shipped_files import shipped_files, with_local_files
from truthfl.studies.work import StudyTask, WorkItem


@dataclass(frozen=True, eq=False)
class Parcel:
    """A task: what is called, and the arrays that it needs, by digest; these travel once for all tasks."""

    call: bytes
    arrays: Arrays


def parcel_of(task: StudyTask) -> Parcel:
    """The task as it travels."""
    if isinstance(task, ArrayCall):
        return Parcel(pickle.dumps((task.work, task.common, task.own)), task.arrays)
    assert isinstance(task, WorkItem)
    files, contents = shipped_files(task.settings)
    return Parcel(pickle.dumps((task.work, dict(task.settings), files)), contents)


def opened(call: bytes, arrays: Arrays) -> tuple[StudyTask, dict[str, str]]:
    """On a node: the task, and the names that its files have on the other machine, by those here."""
    work, first, second = pickle.loads(call)
    if isinstance(first, bytes):
        return ArrayCall(work, first, second, arrays), {}
    settings, names = with_local_files(first, second, arrays)
    return WorkItem(work, settings), names
