"""Claims of the paper's text that have no figure: on batch sizes, a client's weight, and other contracts.

Claims on batch sizes are computed on the paper's bound, with the formula as printed and as corrected. The others are
trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.lceme.assignment import optimal_batch_sizes
from truthfl.contracts.loss_model import paper_bound
from truthfl.contracts.setting import Clients, Constants, Training
from truthfl.studies.cells import Cell, CellResult, with_exceptions
from truthfl.studies.reproduce.claims import Claim, Comparison, comparison, computed_claim, sampled_claim
from truthfl.studies.reproduce.figure_7 import BEST, Market, make_market
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study

LOSS_VALUE = 1e6  # κ of the computed claims: large enough that no batch size is at its floor
STEPS_PER_ROUND = (1, 2, 3, 4, 5)
IGNORED, UNPAID = "labels ignored", "no incentive"


def cells(paper: Paper, pilot_result: PilotResult) -> dict[Key, Cell]:
    """Two clients of unequal size, in both orders; and the market of Figure 7 with and without incentives."""
    all_cells: dict[Key, Cell] = {}
    for large, small in ((0, 1), (1, 0)):
        federation = replace(paper.federation, sizes=_unequal(paper, large, small))
        honest = Cell(federation, paper.rounds, pilot_result.step_size, paper.batch_size)
        all_cells["unequal", large, "honest"] = honest
        for who, client in (("large", large), ("small", small)):
            effort = with_exceptions(1.0, paper.clients, 0.0, (client,))
            all_cells["unequal", large, who] = replace(honest, labeling_effort=effort)
    batch_sizes = tuple(make_market(paper, pilot_result).batch_sizes[BEST, paper.rounds].tolist())
    with_incentive = Cell(paper.federation, paper.rounds, pilot_result.step_size, batch_sizes)
    all_cells[BEST,] = with_incentive
    all_cells[IGNORED,] = replace(with_incentive, labeling_effort=0.0)
    all_cells[UNPAID,] = replace(with_incentive, labeling_effort=0.0, batch_size=1)
    return all_cells


def claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    return [*computed(), _larger_moves_more(paper, results), *_payoff_claims(paper, pilot_result, results)]


def computed() -> list[Claim]:
    """Claims on D* on the paper's bound when one quantity varies over ten clients, or H over trainings."""
    ten = np.arange(1.0, 11.0)
    rows = [
        _monotone("A client with a larger weight p is asked for more.", "p", ten / ten.sum(), "weight"),
        _monotone("A client with a larger gradient variance σ² is asked for more.", "σ²", ten, "gradient_variance"),
        _monotone("A client with a larger sample cost c_p is asked for less.", "c_p", ten / 100, "sample_cost"),
    ]
    for printed in (False, True):
        sizes = np.array([float(_batch_sizes({}, steps, as_printed=printed)[0]) for steps in STEPS_PER_ROUND])
        rows.append(
            computed_claim(
                "text",
                f"Batches grow with the local steps H (formula as {'printed' if printed else 'corrected'}).",
                f"H = {STEPS_PER_ROUND[0]} to {STEPS_PER_ROUND[-1]}: D* = {_list(sizes)}",
                holds=bool((np.diff(sizes) > 0).all()),
            )
        )
    return rows


def _monotone(claimed: str, letter: str, values: NDArray[np.float64], field: str) -> Claim:
    corrected, printed = (_batch_sizes({field: values}, as_printed=flag).astype(float) for flag in (False, True))
    sign = -1.0 if field == "sample_cost" else 1.0
    return computed_claim(
        "text",
        claimed,
        f"{letter} = {values[0]:.2g} to {values[-1]:.2g}: D* = {_ends(corrected)}; as printed {_ends(printed)}",
        holds=bool((sign * np.diff(corrected) > 0).all() and (sign * np.diff(printed) > 0).all()),
    )


def _batch_sizes(varied: Mapping[str, ArrayLike], local_steps: int = 1, *, as_printed: bool) -> NDArray[np.float64]:
    fields: dict[str, ArrayLike] = {
        "weight": np.full(10, 0.1),
        "gradient_variance": 4.0,
        "sample_cost": 0.01,
        "labeling_cost": 1e-6,
        "dataset_size": 10**9,
    }
    clients = Clients(**(fields | dict(varied)))  # type: ignore[arg-type]
    training = Training(100, local_steps, 0.05)
    constants = Constants(
        smoothness=1.0, strong_convexity=0.1, label_shift=2.0, gradient_bound=1.0, initial_distance=1.0
    )
    model = paper_bound(clients, training, constants)
    return np.asarray(
        optimal_batch_sizes(clients, model, training, loss_value=LOSS_VALUE, as_printed=as_printed), dtype=float
    )


def _larger_moves_more(paper: Paper, results: Mapping[Key, CellResult]) -> Claim:
    def harm(large: int, who: str) -> NDArray[np.float64]:
        return results["unequal", large, who].test_loss[:, -1] - results["unequal", large, "honest"].test_loss[:, -1]

    difference = sum((harm(k, "large") - harm(k, "small") for k in (0, 1)), np.zeros(paper.seeds)) / 2
    sizes = _unequal(paper, 0, 1)
    total = sum(sizes)
    return sampled_claim(
        "text",
        f"A client with a larger p moves the loss more (real training, p = {sizes[0] / total:.2f} and "
        f"{sizes[1] / total:.2f}, each in turn not labeling).",
        "test loss raised more by",
        [Comparison("the larger against the smaller, both ways round", difference)],
    )


def _payoff_claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    market = make_market(paper, pilot_result)
    labeling = float(market.clients.labeling_cost.sum())
    pay = market.pay(pilot_result, BEST, paper.rounds)
    ours = _server_payoff(market, results[BEST,], pay)
    return [
        sampled_claim(
            "text",
            "The server is left with more than by a contract that ignores labeling, under which nobody labels.",
            "payoff higher by",
            [comparison("pay for computing only", ours, _server_payoff(market, results[IGNORED,], pay - labeling))],
        ),
        sampled_claim(
            "text",
            "The server is left with more than without incentives: nobody labels, D = 1, no pay.",
            "payoff higher by",
            [comparison("nothing paid", ours, _server_payoff(market, results[UNPAID,], 0.0))],
        ),
    ]


def _server_payoff(market: Market, result: CellResult, pay: float) -> NDArray[np.float64]:
    return -market.loss_value * result.test_loss[:, -1] - pay


def _unequal(paper: Paper, large: int, small: int) -> tuple[int, ...]:
    """The clients' numbers of samples: 5/3 of the usual for client `large`, 1/3 for client `small`."""
    usual = paper.federation.sizes[0]
    sizes = list(paper.federation.sizes)
    sizes[large], sizes[small] = usual * 5 // 3, usual - usual * 2 // 3
    return tuple(sizes)


def _ends(sizes: NDArray[np.float64]) -> str:
    return f"{sizes[0]:.0f} to {sizes[-1]:.0f}"


def _list(sizes: NDArray[np.float64]) -> str:
    return ", ".join(f"{size:.0f}" for size in sizes)


STUDY = Study("text", lambda p: (p.rounds,), cells, None, claims)
