"""Figures 2 and 3: loss and accuracy by round, for several batch sizes, and with some clients who do not label."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure, Panel, Series, series
from truthfl.studies.cells import Cell, CellResult, with_exceptions
from truthfl.studies.reproduce.claims import Claim, comparison, sampled_claim
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study


def cells(paper: Paper, pilot_result: PilotResult) -> dict[Key, Cell]:
    """The cells, by (batch size, number of clients who do not label)."""
    pairs = {(size, 0) for size in paper.batch_sizes} | {
        (size, idle) for size in (paper.batch_size, paper.other_batch_size) for idle in (0, *paper.idle_clients)
    }
    return {pair: _cell(paper, pilot_result, *pair) for pair in sorted(pairs)}


def loss_figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        2,
        "Effort and the training loss",
        setting_caption(paper, pilot_result)
        + " Training loss: on 1,000 of the clients' samples, with their true labels.",
        panels(paper, results, "train_loss", "training loss (nats per sample)", log_y=True),
    )


def loss_claims(paper: Paper, _pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def loss(key: Key) -> NDArray[np.float64]:
        return results[key].train_loss[:, -1]

    return [
        sampled_claim(
            "2",
            "The training loss falls as batches grow.",
            "loss lower by",
            [comparison(f"D {a} → {b}", loss((a, 0)), loss((b, 0))) for a, b in pairwise(paper.batch_sizes)],
        ),
        sampled_claim(
            "2",
            "Clients who do not label raise the training loss.",
            "loss higher by",
            [comparison(what, loss(more), loss(fewer)) for what, fewer, more in idle_steps(paper)],
        ),
    ]


def panels(
    paper: Paper, results: Mapping[Key, CellResult], what: str, label: str, *, log_y: bool = False
) -> tuple[Panel, Panel]:
    """The two panels; `what` is the field of `CellResult` to show."""

    def lines(keys: list[tuple[str, Key]]) -> tuple[Series, ...]:
        return tuple(series(name, results[key].rounds, getattr(results[key], what)) for name, key in keys)

    by_size: list[tuple[str, Key]] = [(f"D = {size}", (size, 0)) for size in paper.batch_sizes]
    by_idle: list[tuple[str, Key]] = [
        (f"D = {size}, {idle or 'none'} of {paper.clients} idle", (size, idle))
        for size in (paper.batch_size, paper.other_batch_size)
        for idle in (0, *paper.idle_clients)
    ]
    return (
        Panel("All clients label", "round", label, lines(by_size), log_y=log_y),
        Panel("Some clients do not label", "round", label, lines(by_idle), log_y=log_y),
    )


def idle_steps(paper: Paper) -> list[tuple[str, Key, Key]]:
    """The comparisons (name, key with fewer idle clients, key with more), at each batch size."""
    return [
        (f"D = {size}, {fewer} → {more} idle", (size, fewer), (size, more))
        for size in (paper.batch_size, paper.other_batch_size)
        for fewer, more in pairwise((0, *paper.idle_clients))
    ]


def setting_caption(paper: Paper, pilot_result: PilotResult) -> str:
    """The beginning of the captions of Figures 2 to 5."""
    return (
        f"{paper.clients} clients, {paper.federation.sizes[0]} samples each, degree {paper.federation.data.degree:g}, "
        f"{paper.federation.model.filters} filters, H = 1, {paper.rounds} rounds, "
        f"step size {pilot_result.step_size:g} (the best on pilot data). "
        f"Means of {paper.seeds} seeds with 95% confidence bands."
    )


def _cell(paper: Paper, pilot_result: PilotResult, size: int, idle: int) -> Cell:
    return Cell(
        paper.federation,
        paper.rounds,
        pilot_result.step_size,
        batch_size=size,
        labeling_effort=with_exceptions(1.0, paper.clients, 0.0, range(idle)),
        every=paper.every,
    )


def accuracy_figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    return Figure(
        3,
        "Effort and the accuracy",
        setting_caption(paper, pilot_result) + " Accuracy: share of the test set that the model gets right.",
        panels(paper, results, "accuracy", "test accuracy (share)"),
    )


def accuracy_claims(paper: Paper, _pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    def right(key: Key) -> NDArray[np.float64]:
        return 100.0 * results[key].accuracy[:, -1]

    return [
        sampled_claim(
            "3",
            "The accuracy rises as batches grow.",
            "percentage points gained:",
            [comparison(f"D {a} → {b}", right((b, 0)), right((a, 0))) for a, b in pairwise(paper.batch_sizes)],
        ),
        sampled_claim(
            "3",
            "Clients who do not label lower the accuracy.",
            "percentage points lost:",
            [comparison(what, right(fewer), right(more)) for what, fewer, more in idle_steps(paper)],
        ),
    ]


LOSS_STUDY = Study("2", lambda _: (), cells, loss_figure, loss_claims)
ACCURACY_STUDY = Study("3", lambda _: (), cells, accuracy_figure, accuracy_claims)
