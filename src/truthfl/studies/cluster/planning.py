"""Has the trainings of a plan computed by workers, each block of runs a task of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from truthfl.job import DataJob
from truthfl.learning.aggregation import is_own
from truthfl.learning.elsewhere import computed_by
from truthfl.studies.cluster.array_call import ArrayCall, pickled
from truthfl.studies.work import Progress, Result, Store, Workers, do_all


def can_be_planned_elsewhere(job: DataJob) -> bool:
    """Whether the trainings of this job's plan can be computed elsewhere: no code of one's own is needed for them."""
    return not job.task.is_own and not is_own(job.aggregation)


@contextmanager
def planned_by(workers: Workers, store: Store, progress: Progress | None = None) -> Iterator[None]:
    """In this context, trainings that may use all cores are computed by the workers, and kept in the store."""

    def compute(work: str, common: object, own: Sequence[object]) -> list[Result]:
        shared, arrays = pickled(common)
        calls = []
        for each in own:
            content, more = pickled(each)
            calls.append(ArrayCall(work, shared, content, arrays | more))
        return do_all(calls, store, workers=workers, progress=progress)

    with computed_by(compute):
        yield
