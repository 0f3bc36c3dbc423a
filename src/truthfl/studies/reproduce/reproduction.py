"""The paper's evaluation made again: pilot, training, figures, claims. Looks at the studies, `work` and `cells`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from truthfl.errors import InputError
from truthfl.reporting.figure import Figure
from truthfl.studies.cells import Cell, Seen
from truthfl.studies.reproduce import figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, pilot, text_claims
from truthfl.studies.reproduce.claims import UNDECIDED, Claim
from truthfl.studies.reproduce.paper import Paper, Prepared, Study
from truthfl.studies.work import Result, Store, WorkItem, do_all

STUDIES: Mapping[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, text_claims)
}

Watch = Callable[[str, int, int], None]
"""Told what is being done, how many of its tasks are done, and of how many."""


@dataclass(frozen=True)
class Reproduction:
    """What came out, and how many tasks it took that had not been done before."""

    paper: Paper
    step_size: float
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    tasks_done: int


def chosen_studies(names: Sequence[str]) -> tuple[Study, ...]:
    """The studies of these names, in the paper's order; all of them where none is named."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise InputError(f"figure {unknown[0]!r} is not known; there are: {', '.join(STUDIES)}.")
    return tuple(study for name, study in STUDIES.items() if name in names or not names)


def reproduce(
    paper: Paper,
    studies: Sequence[Study],
    store: Store,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Reproduction:
    """Do what has not been done before, and make figures and claims of all of it."""
    work = _Work(store, workers, watch or (lambda _what, _done, _all: None))
    prepared = _prepared(paper, studies, work)
    lacking = {study.name for study in studies if not set(study.modelled(paper)) <= set(prepared.calibration)}
    by_study = [{} if study.name in lacking else study.cells(paper, prepared) for study in studies]
    cells = list(dict.fromkeys(cell for found in by_study for cell in found.values()))
    trained = dict(zip(cells, work.train("training", cells, [paper.seed_list] * len(cells))[0], strict=True))
    figures, claims = [], []
    for study, found in zip(studies, by_study, strict=True):
        if study.name in lacking:
            claims.append(_no_contract(study))
            continue
        seen = {key: trained[cell] for key, cell in found.items()}
        if study.figure is not None:
            figures.append(study.figure(paper, prepared, seen))
        claims += study.claims(paper, prepared, seen)
    return Reproduction(paper, prepared.step_size, tuple(figures), tuple(claims), work.done)


def _prepared(paper: Paper, studies: Sequence[Study], work: _Work) -> Prepared:
    step = pilot.found_step(work.do("pilot: step size", [pilot.search_task(paper)])[0])
    moments = sorted({moment for study in studies for moment in study.modelled(paper)})
    if not moments:
        return Prepared(step, {})
    kinds = paper.pilot.runs(paper.clients)
    cells = [pilot.pilot_cell(paper, step, kind) for kind in kinds]
    seen, (gradients,) = work.train(
        "pilot: loss model", cells, [kind.draws for kind in kinds], besides=[pilot.gradients_task(paper, step)]
    )
    fitted = {moment: pilot.calibration_at(paper, moment, kinds, seen, gradients) for moment in moments}
    return Prepared(step, {moment: found for moment, found in fitted.items() if pilot.shows_work(found)})


def _no_contract(study: Study) -> Claim:
    return Claim(
        study.name,
        "All that is claimed here.",
        "nothing: there is no contract",
        UNDECIDED,
        "The pilot's trainings show no harm from small batches or from missing labels, and pay by the loss cannot "
        "reward work that the loss does not show. More rounds or pilot seeds may show it.",
    )


class _Work:
    """Does tasks and counts those that were not done before."""

    def __init__(self, store: Store, workers: int | None, watch: Watch) -> None:
        self.store, self.workers, self.watch, self.done = store, workers, watch, 0

    def do(self, what: str, tasks: Sequence[WorkItem]) -> list[Result]:
        told: list[int] = []

        def tell(done: int, number: int) -> None:
            told.append(done)
            self.watch(what, done, number)

        results = do_all(tasks, self.store, workers=self.workers, progress=tell)
        self.done += told[-1] - told[0]
        return results

    def train(
        self, what: str, cells: Sequence[Cell], seeds: Sequence[Sequence[int]], besides: Sequence[WorkItem] = ()
    ) -> tuple[list[Seen], list[Result]]:
        """What each cell gave with its seeds, in order; and the results of other tasks, done at the same time."""
        tasks = [cell.tasks(its_seeds) for cell, its_seeds in zip(cells, seeds, strict=True)]
        results = self.do(what, [*besides, *(task for some in tasks for task in some)])
        rest = iter(results[len(besides) :])
        return [Seen.of([next(rest) for _ in some]) for some in tasks], results[: len(besides)]
