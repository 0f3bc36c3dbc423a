"""Reproduces the paper's evaluation (pilot, training, figures, claims) and writes it to a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truthfl.contracts.lceme.pilot import Calibration, calibrate
from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.pilot.constants import Gradients
from truthfl.learning.pilot.runs import Pilot, RunKind, strategies_of
from truthfl.learning.pilot.step_size import StepSearch
from truthfl.reporting.figure import Figure, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.cells import Cell, CellResult, StagedTasks, StageProgress, made_federation
from truthfl.studies.reproduce import figure_6, figure_7, figures_2_and_3, figures_4_and_5, text_claims
from truthfl.studies.reproduce.claims import DOES_NOT_HOLD, HOLDS, UNDECIDED, Claim, claims_csv
from truthfl.studies.reproduce.paper import Paper, PilotResult, Study
from truthfl.studies.work import Result, Store, Workers, WorkItem


def search_task(paper: Paper) -> WorkItem:
    """The work item of the step search."""
    design = paper.pilot
    low, high = design.step_range
    settings = {
        "federation": paper.federation.document(),
        "rounds": paper.rounds,
        "batch_size": design.lie_batch_size,
        "low": low,
        "high": high,
        "seeds": design.search_seeds or design.seeds,
    }
    return WorkItem("studies.cells:tune_step", settings)


def step_size_of(result: Result) -> float:
    """The best step size in the result of the step search, rounded to three digits."""
    search = StepSearch(float(result["best"]), result["tried"], result["loss"], result["error"])
    return float(f"{search.parabola_minimum:.3g}")


def gradients_task(paper: Paper, step_size: float) -> WorkItem:
    """The work item that measures gradients at this step size."""
    settings = {
        "federation": paper.federation.document(),
        "rounds": paper.rounds,
        "step_size": step_size,
        "batch_size": paper.pilot.lie_batch_size,
    }
    return WorkItem("studies.cells:sample_gradients", settings)


def pilot_cell(paper: Paper, step_size: float, kind: RunKind) -> Cell:
    """The cell of one kind of pilot run."""
    return Cell(
        paper.federation,
        paper.rounds,
        step_size,
        batch_size=tuple(kind.batch_size.tolist()),
        labeling_effort=tuple(kind.labeling_effort.tolist()),
        report_scale=tuple(kind.report_scale.tolist()),
        every=paper.every,
        pilot=True,
    )


def calibration_at(
    paper: Paper, rounds: int, kinds: Sequence[RunKind], results: Sequence[CellResult], gradients: Result
) -> Calibration:
    """The loss model fitted to the test losses of the pilot runs after this number of rounds."""
    loss = np.concatenate([result.test_loss_at(rounds) for result in results])
    measured = Gradients(
        gradients["gradient_variance"], float(gradients["label_shift"]), float(gradients["gradient_bound"])
    )
    return calibrate(made_federation(paper.federation).pilot, Pilot(strategies_of(kinds), loss), measured)


def has_work_prices(calibration: Calibration) -> bool:
    """Whether batches and labels affect the loss in this loss model; if not, no contract is possible on it."""
    return bool(calibration.model.sampling.min() > 0 and calibration.model.labeling.min() > 0)


TONES = ((HOLDS, "good"), (DOES_NOT_HOLD, "bad"), (UNDECIDED, "open"))


def write_reproduction(reproduction: Reproduction, folder: Path, provenance: Section) -> Path:
    """Write all files and return the path of the report. `provenance` is the report's last section."""
    for figure in reproduction.figures:
        stem = folder / f"figure-{figure.number}"
        png, svg = figure_pictures(figure)
        write_file(stem.with_suffix(".png"), png)
        write_file(stem.with_suffix(".svg"), svg)
        write_file(stem.with_suffix(".csv"), figure_csv(figure))
    path = folder / "report.html"
    write_file(folder / "claims.csv", claims_csv(reproduction.claims))
    write_file(path, page(report_of(reproduction, provenance)))
    return path


def report_of(reproduction: Reproduction, provenance: Section) -> Report:
    """The report: claims, figures, provenance."""
    claims = reproduction.claims
    figures = [Section(f"Figure {figure.number}: {figure.title}", [_plot(figure)]) for figure in reproduction.figures]
    return Report(
        "The LCEME paper's evaluation, made again",
        f"{count(claims, HOLDS)} of {len(claims)} claims hold, {count(claims, DOES_NOT_HOLD)} do not, "
        f"{count(claims, UNDECIDED)} cannot be told from {reproduction.paper.seeds} seeds.",
        [Section("Claimed and obtained", _claims(reproduction)), *figures, provenance],
    )


def count(claims: tuple[Claim, ...], verdict: str) -> int:
    """The number of claims with this verdict."""
    return sum(claim.verdict == verdict for claim in claims)


def _claims(reproduction: Reproduction) -> list[Paragraph | Table | Plot]:
    rows = [(claim.figure, claim.verdict, claim.claimed, claim.obtained) for claim in reproduction.claims]
    reasons = [
        (claim.figure, claim.verdict, claim.claimed, claim.reason) for claim in reproduction.claims if claim.reason
    ]
    parts: list[Paragraph | Table | Plot] = [
        Paragraph(
            "Numbers in brackets are 95% confidence intervals of mean differences, seed by seed, after the last round. "
            "A claim about several comparisons stands and falls with the one that speaks for it least. "
            "Claims are in our own words."
        ),
        Table(("figure", "verdict", "claimed", "obtained"), rows, TONES),
    ]
    if reasons:
        parts += [Paragraph("Why:"), Table(("figure", "verdict", "claimed", "why"), reasons, TONES)]
    return parts


def _plot(figure: Figure) -> Plot:
    svgs = [panel_svg(panel, f"f{figure.number}p{k}") for k, panel in enumerate(figure.panels)]
    return Plot(svgs, figure.caption, [f"figure-{figure.number}.{kind}" for kind in ("png", "svg", "csv")])


STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        figures_2_and_3.LOSS_STUDY,
        figures_2_and_3.ACCURACY_STUDY,
        figures_4_and_5.LOSS_STUDY,
        figures_4_and_5.ACCURACY_STUDY,
        figure_6.STUDY,
        figure_7.STUDY,
        text_claims.STUDY,
    )
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
    """Search the step size and fit the loss models that the studies need, except loss models without prices."""
    step = step_size_of(tasks.do("pilot: step size", [search_task(paper)])[0])
    moments = sorted({moment for study in studies for moment in study.calibrated_rounds(paper)})
    if not moments:
        return PilotResult(step, {})
    kinds = paper.pilot.runs(paper.clients)
    cells = [pilot_cell(paper, step, kind) for kind in kinds]
    results, (gradients,) = tasks.train(
        "pilot: loss model", cells, [kind.seeds for kind in kinds], besides=[gradients_task(paper, step)]
    )
    fitted = {moment: calibration_at(paper, moment, kinds, results, gradients) for moment in moments}
    usable = {moment: calibration for moment, calibration in fitted.items() if has_work_prices(calibration)}
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
