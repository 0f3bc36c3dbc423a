"""Figure 7: what the server is left with, by rounds, for three ways to share out computation.

The best assignment; the same total shared equally, whatever it costs whom; and a batch for all that is larger than
best. Looks at `paper`, `cells`, `figure`, `claims` and the mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.mechanism.assignment import optimal_batch_sizes
from truthfl.mechanism.payoff import work_cost
from truthfl.mechanism.setting import Clients, batch_price
from truthfl.mechanism.strategies import Strategies
from truthfl.reporting.figure import Figure, Panel, exact_series, series
from truthfl.studies.cells import Cell, Seen
from truthfl.studies.reproduce.claims import Claim, comparison, computed_claim, said_number, sampled_claim
from truthfl.studies.reproduce.paper import Key, Paper, Prepared, Study, clients_of

BEST, EQUAL = "best assignment", "same total, equal"


@dataclass(frozen=True, eq=False)
class Market:
    """Clients whose computation differs in price; what a unit of loss is worth to the server; who is asked for what."""

    clients: Clients
    loss_value: float
    asked: Mapping[tuple[str, int], NDArray[np.int64]]
    """By (how it is shared out, rounds)."""

    def pay(self, prepared: Prepared, how: str, rounds: int) -> float:
        """All that honest work costs, which is what the contract pays in expectation."""
        played = Strategies.truthful(self.asked[how, rounds].astype(float))
        return float(work_cost(self.clients, prepared.training(rounds), played).sum())


def market(paper: Paper, prepared: Prepared) -> Market:
    """κ is such that the best batch sizes average `mean_optimum` at the last number of rounds."""
    clients = clients_of(paper, paper.sample_cost * np.asarray(paper.cost_ratios))
    last = paper.moments[-1]
    model, training = prepared.calibration[last].model, prepared.training(last)
    at_one = np.sqrt(model.sampling / batch_price(clients, training))  # D* = √κ times this, floor and cap aside
    kappa = float(np.square(paper.mean_optimum / at_one.mean()))
    asked: dict[tuple[str, int], NDArray[np.int64]] = {}
    for rounds in paper.moments:
        best = optimal_batch_sizes(
            clients, prepared.calibration[rounds].model, prepared.training(rounds), loss_value=kappa
        ).astype(np.int64)
        asked[BEST, rounds] = best
        asked[EQUAL, rounds] = _equally(int(best.sum()), len(clients))
        asked[_large(paper), rounds] = np.full(len(clients), paper.too_large)
    return Market(clients, kappa, asked)


def cells(paper: Paper, prepared: Prepared) -> dict[Key, Cell]:
    """By (how it is shared out, rounds); one training serves all rounds where the batches do not change with them."""
    asked = market(paper, prepared).asked
    return {
        (how, rounds): Cell(
            paper.place,
            paper.rounds if how == _large(paper) else rounds,
            prepared.step_size,
            batch_size=tuple(sizes.tolist()),
            every=paper.every if how == _large(paper) else None,
        )
        for (how, rounds), sizes in asked.items()
    }


def figure(paper: Paper, prepared: Prepared, seen: Mapping[Key, Seen]) -> Figure:
    held = market(paper, prepared)
    hows = (BEST, EQUAL, _large(paper))
    model = {how: on_model(paper, prepared, held, how) for how in hows}
    real = {how: in_training(paper, prepared, held, seen, how) for how in hows}
    best = held.asked[BEST, paper.moments[-1]]
    x, y = "rounds T", "payoff of the server (money)"
    return Figure(
        7,
        "Who computes how much, and the payoff of the server",
        f"c_p from {held.clients.sample_cost.min():g} to {held.clients.sample_cost.max():g} for a sample in a round, "
        f"c_l = {paper.labeling_cost:g}; a unit of loss is worth κ = {held.loss_value:,.0f}, at which the best batch "
        f"sizes for {paper.moments[-1]} rounds are {best.min()} to {best.max()}, {best.mean():.0f} on average. "
        f"Step size {prepared.step_size:g}; the loss model is calibrated on pilot data for each T. "
        "Payoff: −κ · test loss − what honest work costs, which is what the contract pays in expectation. "
        f"Real training: means of {paper.seeds} seeds, 95% bands, in the last panel of differences seed by seed.",
        (
            Panel("On the loss model", x, y, tuple(exact_series(how, paper.moments, model[how]) for how in hows)),
            Panel("In real training", x, y, tuple(series(how, paper.moments, real[how]) for how in hows)),
            Panel(
                "Difference to the best assignment",
                x,
                "difference in payoff (money)",
                tuple(
                    [exact_series(BEST, paper.moments, np.zeros(len(paper.moments)))]
                    + [series(f"{how}: real", paper.moments, real[how] - real[BEST]) for how in hows[1:]]
                    + [exact_series(f"{how}: model", paper.moments, model[how] - model[BEST]) for how in hows[1:]]
                ),
            ),
        ),
    )


def claims(paper: Paper, prepared: Prepared, seen: Mapping[Key, Seen]) -> list[Claim]:
    held = market(paper, prepared)
    large = _large(paper)
    model = {how: on_model(paper, prepared, held, how) for how in (BEST, EQUAL, large)}
    real = {how: in_training(paper, prepared, held, seen, how) for how in (BEST, EQUAL, large)}
    rows = []
    for better, worse, claimed in (
        (BEST, EQUAL, "The best assignment leaves the server more than the same total shared equally"),
        (EQUAL, large, f"D = {paper.too_large} for all leaves the server least"),
    ):
        least = float((model[better] - model[worse]).min())
        rows.append(
            computed_claim("7", f"{claimed} (loss model).", f"by {said_number(least)} at least", holds=least > 0)
        )
        rows.append(
            sampled_claim(
                "7",
                f"{claimed} (real training).",
                "payoff higher by",
                [
                    comparison(f"T = {rounds}", real[better][:, k], real[worse][:, k])
                    for k, rounds in enumerate(paper.moments)
                ],
                doubt="What the assignments differ by is small beside κ times the noise of the loss.",
            )
        )
    return rows


def on_model(paper: Paper, prepared: Prepared, held: Market, how: str) -> NDArray[np.float64]:
    """The server's payoff for each T, at the loss that the calibrated model expects."""
    return np.array(
        [
            -held.loss_value * prepared.calibration[rounds].model.truthful_loss(held.asked[how, rounds])
            - held.pay(prepared, how, rounds)
            for rounds in paper.moments
        ]
    )


def in_training(
    paper: Paper, prepared: Prepared, held: Market, seen: Mapping[Key, Seen], how: str
) -> NDArray[np.float64]:
    """The server's payoff at the loss of real training, (seeds, T)."""
    return np.stack(
        [
            -held.loss_value * seen[how, rounds].test_loss_at(rounds) - held.pay(prepared, how, rounds)
            for rounds in paper.moments
        ],
        axis=1,
    )


def _equally(total: int, count: int) -> NDArray[np.int64]:
    return np.asarray(total // count + (np.arange(count) < total % count), dtype=np.int64)


def _large(paper: Paper) -> str:
    return f"D = {paper.too_large} for all"


STUDY = Study("7", lambda p: p.moments, cells, figure, claims)
