"""Reproduces the paper's evaluation: pilot, training, figures, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truthfl.errors import InputError
from truthfl.reporting.figure import Figure
from truthfl.studies.reproduce import figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, pilot, text_claims
from truthfl.studies.reproduce.claims import UNDECIDED, Claim
from truthfl.studies.reproduce.paper import Paper, PilotResult, Study
from truthfl.studies.staged_tasks import StagedTasks, StageProgress
from truthfl.studies.work import Store, Workers

STUDIES: Mapping[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, text_claims)
}


@dataclass(frozen=True)
class Reproduction:
    """Figures, claims, the tuned step size, and the number of tasks computed now, not read from the store."""

    paper: Paper
    step_size: float
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    tasks_done: int


def chosen_studies(names: Sequence[str]) -> tuple[Study, ...]:
    """The studies of these names, in the paper's order; all studies if the list is empty."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise InputError(f"figure {unknown[0]!r} is not known; there are: {', '.join(STUDIES)}.")
    return tuple(study for name, study in STUDIES.items() if name in names or not names)


def reproduce(
    paper: Paper,
    studies: Sequence[Study],
    store: Store,
    *,
    workers: int | Workers | None = None,
    progress: StageProgress | None = None,
) -> Reproduction:
    """Train all cells that are not in the store, and make figures and claims from the results."""
    tasks = StagedTasks(store, workers, progress or (lambda _stage, _done, _all: None))
    pilot_result = _run_pilot(paper, studies, tasks)
    calibrated = set(pilot_result.calibration)
    without_contract = {study.name for study in studies if not set(study.calibrated_rounds(paper)) <= calibrated}
    by_study = [{} if study.name in without_contract else study.cells(paper, pilot_result) for study in studies]
    cells = list(dict.fromkeys(cell for cells_by_key in by_study for cell in cells_by_key.values()))
    trained = dict(zip(cells, tasks.train("training", cells, [paper.seed_list] * len(cells))[0], strict=True))
    figures, claims = [], []
    for study, cells_by_key in zip(studies, by_study, strict=True):
        if study.name in without_contract:
            claims.append(_no_contract(study))
            continue
        results = {key: trained[cell] for key, cell in cells_by_key.items()}
        if study.figure is not None:
            figures.append(study.figure(paper, pilot_result, results))
        claims += study.claims(paper, pilot_result, results)
    return Reproduction(paper, pilot_result.step_size, tuple(figures), tuple(claims), tasks.computed)


def _run_pilot(paper: Paper, studies: Sequence[Study], tasks: StagedTasks) -> PilotResult:
    """Search the step size and fit the loss models that the studies need; loss models without prices are left out."""
    step = pilot.step_size_of(tasks.do("pilot: step size", [pilot.search_task(paper)])[0])
    moments = sorted({moment for study in studies for moment in study.calibrated_rounds(paper)})
    if not moments:
        return PilotResult(step, {})
    kinds = paper.pilot.runs(paper.clients)
    cells = [pilot.pilot_cell(paper, step, kind) for kind in kinds]
    results, (gradients,) = tasks.train(
        "pilot: loss model", cells, [kind.seeds for kind in kinds], besides=[pilot.gradients_task(paper, step)]
    )
    fitted = {moment: pilot.calibration_at(paper, moment, kinds, results, gradients) for moment in moments}
    usable = {moment: calibration for moment, calibration in fitted.items() if pilot.has_work_prices(calibration)}
    return PilotResult(step, usable)


def _no_contract(study: Study) -> Claim:
    """The undecided claim of a study for which there is no contract."""
    return Claim(
        study.name,
        "All that is claimed here.",
        "nothing: there is no contract",
        UNDECIDED,
        "The pilot's trainings show no harm from small batches or from missing labels, and pay by the loss cannot "
        "reward work that the loss does not show. More rounds or pilot seeds may show it.",
    )
