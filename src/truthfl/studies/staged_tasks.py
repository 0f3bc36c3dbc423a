"""`StagedTasks`: the tasks of a study, stage by stage, with progress and a count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truthfl.studies.cells import Cell, CellResult
from truthfl.studies.work import Result, Store, Workers, WorkItem, do_all

StageProgress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of its tasks that are done, and the number of all (0: unknown)."""


class StagedTasks:
    """Runs tasks and counts those that were computed, not read from the store."""

    def __init__(self, store: Store, workers: int | Workers | None, progress: StageProgress) -> None:
        self.store, self.workers, self.progress, self.computed = store, workers, progress, 0

    def do(self, stage: str, tasks: Sequence[WorkItem]) -> list[Result]:
        """The results of the tasks; `stage` is passed to the progress callback."""
        counts: list[int] = []

        def report(done: int, number: int) -> None:
            counts.append(done)
            self.progress(stage, done, number)

        results = do_all(tasks, self.store, workers=self.workers, progress=report)
        self.computed += counts[-1] - counts[0]
        return results

    def train(
        self, stage: str, cells: Sequence[Cell], seeds: Sequence[Sequence[int]], besides: Sequence[WorkItem] = ()
    ) -> tuple[list[CellResult], list[Result]]:
        """The results of each cell with its seeds, and the results of the tasks in `besides`, run at the same time."""
        by_cell = [cell.tasks(cell_seeds) for cell, cell_seeds in zip(cells, seeds, strict=True)]
        results = self.do(stage, [*besides, *(task for tasks in by_cell for task in tasks)])
        rest = iter(results[len(besides) :])
        return [CellResult.of([next(rest) for _ in tasks]) for tasks in by_cell], results[: len(besides)]
