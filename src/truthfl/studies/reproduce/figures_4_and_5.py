"""Figures 4 and 5: loss and accuracy by round when some clients scale their reports.

There are two step sizes, because below the best one a scaled-up report acts like a larger step and lowers the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure, Panel, mean_interval, series
from truthfl.studies.cells import Cell, CellResult, with_exceptions
from truthfl.studies.reproduce.claims import Claim, Comparison, comparison, format_interval, sampled_claim
from truthfl.studies.reproduce.figures_2_and_3 import setting_caption
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study

TUNED, SMALL, LARGER = "best step size", "small step size", "larger step"


def cells(paper: Paper, pilot_result: PilotResult) -> dict[Key, Cell]:
    """The cells by (step size, γ), and by (step size, LARGER): honest reports at a step as large as γ = 2 makes it."""
    scaled: dict[Key, Cell] = {
        (step, scale): Cell(
            paper.federation,
            paper.rounds,
            steps(paper, pilot_result)[step],
            batch_size=paper.batch_size,
            report_scale=with_exceptions(1.0, paper.clients, scale, range(paper.scaling_clients)),
            every=paper.every,
        )
        for step in (TUNED, SMALL)
        for scale in all_scales(paper)
    }
    larger: dict[Key, Cell] = {
        (step, LARGER): replace(scaled[step, 1.0], step_size=float(f"{size * larger_step(paper):.3g}"))
        for step, size in steps(paper, pilot_result).items()
    }
    return scaled | larger


def loss_figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        4,
        "Scaled reports and the training loss",
        scaling_caption(paper, pilot_result) + " Training loss: on 1,000 of the clients' samples.",
        panels(paper, pilot_result, results, "train_loss", "training loss (nats per sample)", log_y=True),
    )


def loss_claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def loss(step: str, scale: float | str) -> NDArray[np.float64]:
        return results[step, scale].train_loss[:, -1]

    rows = []
    for step, size in steps(paper, pilot_result).items():
        at = f"{step}, {size:g}"
        doubled, larger = (loss(step, what) - loss(step, 1.0) for what in (2.0, LARGER))
        rows.append(
            sampled_claim(
                "4",
                f"The training loss is lowest when all report what they computed ({at}).",
                "loss higher by",
                untruthful(paper, partial(loss, step)),
                reason=f"A larger report acts like a larger step: γ = 2 changes the loss by {_mean(doubled)}, a step "
                f"{larger_step(paper):g} times as large, with honest reports, by {_mean(larger)}. The best step was "
                "found by the test loss on pilot data, which is not the clients' training loss.",
            )
        )
        rows.append(
            sampled_claim(
                "4",
                f"Reporting nothing (γ = 0) hurts the loss less than doubling (γ = 2) ({at}).",
                "loss lower by",
                [comparison("γ = 0 against γ = 2", loss(step, 2.0), loss(step, 0.0))],
                reason="γ = 0 takes part of the data out of training and makes the common step smaller; "
                "γ = 2 makes it larger, which costs less here.",
            )
        )
    return rows


def untruthful(paper: Paper, loss: Callable[[float], NDArray[np.float64]]) -> list[Comparison]:
    """Comparisons of each γ other than 1 with γ = 1; the claim is that `loss` is larger for it."""
    return [comparison(f"γ = {scale:g}", loss(scale), loss(1.0)) for scale in paper.report_scales]


def all_scales(paper: Paper) -> list[float]:
    """All γ that are trained, γ = 1 included."""
    return sorted({*paper.report_scales, 0.0, 1.0, 2.0})


def steps(paper: Paper, pilot_result: PilotResult) -> dict[str, float]:
    """The two step sizes, by name."""
    best = pilot_result.step_size
    return {TUNED: best, SMALL: float(f"{best * paper.small_step:.3g}")}


def larger_step(paper: Paper) -> float:
    """The factor by which the common step grows when `scaling_clients` clients double their reports."""
    return 1.0 + paper.scaling_clients / paper.clients


def panels(
    paper: Paper,
    pilot_result: PilotResult,
    results: Mapping[Key, CellResult],
    what: str,
    label: str,
    *,
    log_y: bool = False,
) -> tuple[Panel, ...]:
    """One panel for each step size; `what` is the field of `CellResult` to show."""
    return tuple(
        Panel(
            f"{step[:1].upper()}{step[1:]}, {size:g}",
            "round",
            label,
            tuple(
                series(f"γ = {scale:g}", results[step, scale].rounds, getattr(results[step, scale], what))
                for scale in all_scales(paper)
            ),
            log_y=log_y,
        )
        for step, size in steps(paper, pilot_result).items()
    )


def scaling_caption(paper: Paper, pilot_result: PilotResult) -> str:
    """The beginning of the captions of Figures 4 and 5."""
    return (
        f"{setting_caption(paper, pilot_result)} All label; D = {paper.batch_size}; "
        f"{paper.scaling_clients} of {paper.clients} clients report w + γ (their change to w). "
        f"Second panel: {paper.small_step:g} of the best step size."
    )


def _mean(change: NDArray[np.float64]) -> str:
    return format_interval(*(float(x) for x in mean_interval(change)))


def accuracy_figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        5,
        "Scaled reports and the accuracy",
        scaling_caption(paper, pilot_result) + " Accuracy: share of the test set that the model gets right.",
        panels(paper, pilot_result, results, "accuracy", "test accuracy (share)"),
    )


def accuracy_claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def wrong(step: str, scale: float) -> NDArray[np.float64]:
        return 100.0 * (1.0 - results[step, scale].accuracy[:, -1])

    return [
        sampled_claim(
            "5",
            f"The accuracy is highest when all report what they computed ({step}, {size:g}).",
            "percentage points lost:",
            untruthful(paper, partial(wrong, step)),
            reason="A larger report acts like a larger step, which helps while the step is smaller than the best one.",
        )
        for step, size in steps(paper, pilot_result).items()
    ]


LOSS_STUDY = Study("4", lambda _: (), cells, loss_figure, loss_claims)
ACCURACY_STUDY = Study("5", lambda _: (), cells, accuracy_figure, accuracy_claims)
