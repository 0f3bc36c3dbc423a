"""Figure 2: the training loss by round, for several batch sizes, and with some clients who do not label.

Looks at `paper`, `cells`, `figure`, `claims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from truthfl.reporting.figure import Figure, Panel, Series, series
from truthfl.studies.cells import Cell, Seen, with_client
from truthfl.studies.reproduce.claims import Claim, comparison, sampled_claim
from truthfl.studies.reproduce.paper import Key, Paper, Prepared, Study


def cells(paper: Paper, prepared: Prepared) -> dict[Key, Cell]:
    """By (batch size, how many do not label)."""
    pairs = {(size, 0) for size in paper.batch_sizes} | {
        (size, idle) for size in (paper.batch_size, paper.other_batch_size) for idle in (0, *paper.idle_clients)
    }
    return {pair: _cell(paper, prepared, *pair) for pair in sorted(pairs)}


def figure(paper: Paper, prepared: Prepared, seen: Mapping[Key, Seen]) -> Figure:
    return Figure(
        2,
        "Effort and the training loss",
        said_setting(paper, prepared) + " Training loss: on 1,000 of the clients' samples, with their true labels.",
        panels(paper, seen, "train_loss", "training loss (nats per sample)", log_y=True),
    )


def claims(paper: Paper, _prepared: Prepared, seen: Mapping[Key, Seen]) -> list[Claim]:
    def loss(key: Key) -> NDArray[np.float64]:
        return seen[key].train_loss[:, -1]

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
    paper: Paper, seen: Mapping[Key, Seen], what: str, label: str, *, log_y: bool = False
) -> tuple[Panel, Panel]:
    """The two panels, for the loss or for the accuracy."""

    def lines(keys: list[tuple[str, Key]]) -> tuple[Series, ...]:
        return tuple(series(name, seen[key].rounds, getattr(seen[key], what)) for name, key in keys)

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
    """What is compared: from fewer clients who do not label to more, at each batch size."""
    return [
        (f"D = {size}, {few} → {many} idle", (size, few), (size, many))
        for size in (paper.batch_size, paper.other_batch_size)
        for few, many in pairwise((0, *paper.idle_clients))
    ]


def said_setting(paper: Paper, prepared: Prepared) -> str:
    """What every caption of Figures 2 to 5 starts with."""
    return (
        f"{paper.clients} clients, {paper.place.sizes[0]} samples each, degree {paper.place.data.degree:g}, "
        f"{paper.place.model.filters} filters, H = 1, {paper.rounds} rounds, "
        f"step size {prepared.step_size:g} (the best on pilot data). "
        f"Means of {paper.seeds} seeds with 95% confidence bands."
    )


def _cell(paper: Paper, prepared: Prepared, size: int, idle: int) -> Cell:
    return Cell(
        paper.place,
        paper.rounds,
        prepared.step_size,
        batch_size=size,
        labeling_effort=with_client(1.0, paper.clients, 0.0, range(idle)),
        every=paper.every,
    )


STUDY = Study("2", lambda _: (), cells, figure, claims)
