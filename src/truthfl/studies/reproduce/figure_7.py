"""Figure 7: the server's payoff by rounds, with the best batches, equal ones of the same total, and larger ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.lceme.assignment import optimal_batch_sizes
from truthfl.contracts.payoff import work_cost
from truthfl.contracts.setting import Clients, Strategies, batch_price
from truthfl.reporting.figure import Figure, Panel, exact_series, series
from truthfl.studies.cells import Cell, CellResult
from truthfl.studies.reproduce.claims import Claim, comparison, computed_claim, format_number, sampled_claim
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study, clients_of

BEST, EQUAL = "best assignment", "same total, equal"


@dataclass(frozen=True, eq=False)
class Market:
    """Clients with different sample costs, the value of a unit of loss, and the batch sizes of each assignment.

    batch_sizes  by (name of the assignment, rounds)
    """

    clients: Clients
    loss_value: float
    batch_sizes: Mapping[tuple[str, int], NDArray[np.int64]]

    def pay(self, pilot_result: PilotResult, assignment: str, rounds: int) -> float:
        """The total cost of honest work, which is the expected total pay."""
        strategies = Strategies.truthful(self.batch_sizes[assignment, rounds].astype(float))
        return float(work_cost(self.clients, pilot_result.training(rounds), strategies).sum())


def make_market(paper: Paper, pilot_result: PilotResult) -> Market:
    """The market with the κ at which the best batch sizes average `mean_optimum` at the last number of rounds."""
    clients = clients_of(paper, paper.sample_cost * np.asarray(paper.cost_ratios))
    last = paper.moments[-1]
    model, training = pilot_result.calibration[last].model, pilot_result.training(last)
    at_one = np.sqrt(model.sampling / batch_price(clients, training))  # D* = √κ times this, ignoring floor and cap
    kappa = float(np.square(paper.mean_optimum / at_one.mean()))
    batch_sizes: dict[tuple[str, int], NDArray[np.int64]] = {}
    for rounds in paper.moments:
        best = optimal_batch_sizes(
            clients, pilot_result.calibration[rounds].model, pilot_result.training(rounds), loss_value=kappa
        ).astype(np.int64)
        batch_sizes[BEST, rounds] = best
        batch_sizes[EQUAL, rounds] = _equal_batches(int(best.sum()), len(clients))
        batch_sizes[_large(paper), rounds] = np.full(len(clients), paper.too_large)
    return Market(clients, kappa, batch_sizes)


def cells(paper: Paper, pilot_result: PilotResult) -> dict[Key, Cell]:
    """The cells, by (assignment, rounds); one training for all rounds if the batches do not depend on them."""
    batch_sizes = make_market(paper, pilot_result).batch_sizes
    return {
        (assignment, rounds): Cell(
            paper.federation,
            paper.rounds if assignment == _large(paper) else rounds,
            pilot_result.step_size,
            batch_size=tuple(sizes.tolist()),
            every=paper.every if assignment == _large(paper) else None,
        )
        for (assignment, rounds), sizes in batch_sizes.items()
    }


def figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    market = make_market(paper, pilot_result)
    assignments = (BEST, EQUAL, _large(paper))
    model = {assignment: on_model(paper, pilot_result, market, assignment) for assignment in assignments}
    real = {assignment: in_training(paper, pilot_result, market, results, assignment) for assignment in assignments}
    best, cost = market.batch_sizes[BEST, paper.moments[-1]], market.clients.sample_cost
    x, y = "rounds T", "payoff of the server (money)"
    return Figure(
        7,
        "Who computes how much, and the payoff of the server",
        f"c_p from {cost.min():g} to {cost.max():g} for a sample in a round, "
        f"c_l = {paper.labeling_cost:g}; a unit of loss is worth κ = {market.loss_value:,.0f}, at which the best batch "
        f"sizes for {paper.moments[-1]} rounds are {best.min()} to {best.max()}, {best.mean():.0f} on average. "
        f"Step size {pilot_result.step_size:g}; the loss model is calibrated on pilot data for each T. "
        "Payoff: −κ · test loss − what honest work costs, which is what the contract pays in expectation. "
        f"Real training: means of {paper.seeds} seeds, 95% bands, in the last panel of differences seed by seed.",
        (
            Panel(
                "On the loss model",
                x,
                y,
                tuple(exact_series(assignment, paper.moments, model[assignment]) for assignment in assignments),
            ),
            Panel(
                "In real training",
                x,
                y,
                tuple(series(assignment, paper.moments, real[assignment]) for assignment in assignments),
            ),
            Panel(
                "Difference to the best assignment",
                x,
                "difference in payoff (money)",
                tuple(
                    [exact_series(BEST, paper.moments, np.zeros(len(paper.moments)))]
                    + [
                        series(f"{assignment}: real", paper.moments, real[assignment] - real[BEST])
                        for assignment in assignments[1:]
                    ]
                    + [
                        exact_series(f"{assignment}: model", paper.moments, model[assignment] - model[BEST])
                        for assignment in assignments[1:]
                    ]
                ),
            ),
        ),
    )


def claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    market = make_market(paper, pilot_result)
    large = _large(paper)
    model = {assignment: on_model(paper, pilot_result, market, assignment) for assignment in (BEST, EQUAL, large)}
    real = {
        assignment: in_training(paper, pilot_result, market, results, assignment) for assignment in (BEST, EQUAL, large)
    }
    rows = []
    for better, worse, claimed in (
        (BEST, EQUAL, "The best assignment leaves the server more than the same total shared equally"),
        (EQUAL, large, f"D = {paper.too_large} for all leaves the server least"),
    ):
        least = float((model[better] - model[worse]).min())
        rows.append(
            computed_claim("7", f"{claimed} (loss model).", f"by {format_number(least)} at least", holds=least > 0)
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


def on_model(paper: Paper, pilot_result: PilotResult, market: Market, assignment: str) -> NDArray[np.float64]:
    """The server's payoff for each T, at the expected loss of the calibrated model."""
    return np.array(
        [
            -market.loss_value
            * pilot_result.calibration[rounds].model.truthful_loss(market.batch_sizes[assignment, rounds])
            - market.pay(pilot_result, assignment, rounds)
            for rounds in paper.moments
        ]
    )


def in_training(
    paper: Paper, pilot_result: PilotResult, market: Market, results: Mapping[Key, CellResult], assignment: str
) -> NDArray[np.float64]:
    """The server's payoff at the test loss of real training, (seeds, T)."""
    return np.stack(
        [
            -market.loss_value * results[assignment, rounds].test_loss_at(rounds)
            - market.pay(pilot_result, assignment, rounds)
            for rounds in paper.moments
        ],
        axis=1,
    )


def _equal_batches(total: int, count: int) -> NDArray[np.int64]:
    return np.asarray(total // count + (np.arange(count) < total % count), dtype=np.int64)


def _large(paper: Paper) -> str:
    return f"D = {paper.too_large} for all"


STUDY = Study("7", lambda p: p.moments, cells, figure, claims)
