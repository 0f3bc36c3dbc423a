"""Figure 6: client 1's payoff by batch size and lie, under LCEME on the calibrated model; the others are honest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.lceme.contract import LCEME, lceme_with_margin
from truthfl.contracts.payoff import client_payoff, confidence_margin
from truthfl.contracts.setting import Clients, Strategies
from truthfl.learning.people.behaviour import Behaviour, from_strategy
from truthfl.reporting.figure import Figure, Panel, Series, exact_series, series
from truthfl.studies.cells import Cell, CellResult, with_exceptions
from truthfl.studies.reproduce.claims import Claim, Comparison, comparison, computed_claim, format_number, sampled_claim
from truthfl.studies.reproduce.paper import Key, Paper, PilotResult, Study, clients_of

NO_PRICE = " On this loss model a scaled report costs nothing, so lines that differ in γ alone are one line."

# Client 1's behaviour apart from the batch. As in the paper they compute, and bear the cost, also where γ = 0.
HONEST = from_strategy("honest")
LIES = (
    from_strategy("no labels", labeling_effort=0.0),
    from_strategy("γ = 2", report_scale=2.0),
    from_strategy("γ = 0.5", report_scale=0.5),
    from_strategy("no labels, γ = 2", labeling_effort=0.0, report_scale=2.0),
    from_strategy("no labels, γ = 0", labeling_effort=0.0, report_scale=0.0),
)


def cells(paper: Paper, pilot_result: PilotResult) -> dict[Key, Cell]:
    """The cells, by (behaviour, batch size). With an empty report the batch does not affect the loss: one cell."""
    return {
        (behaviour.name, size): Cell(
            paper.federation,
            paper.rounds,
            pilot_result.step_size,
            batch_size=_batches(paper, size, paper.assigned),
            labeling_effort=with_exceptions(1.0, paper.clients, behaviour.labeling_effort, (0,)),
            report_scale=with_exceptions(1.0, paper.clients, behaviour.report_scale, (0,)),
        )
        for behaviour in (HONEST, *LIES)
        for size in (_sizes(paper)[:1] if behaviour.reports_nothing else _sizes(paper))
    }


def figure(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> Figure:
    contract, clients = contract_of(paper, pilot_result)
    sizes = _sizes(paper)
    real = {behaviour: payoffs(paper, contract, clients, results, behaviour) for behaviour in (HONEST, *LIES)}
    truth = real[HONEST][:, sizes.index(paper.assigned)]
    price = pilot_result.calibration[paper.rounds].model.reporting[0]
    x, y = "batch size D₁ that client 1 really uses (samples)", "payoff of client 1 (money)"
    return Figure(
        6,
        "Lies and the payoff of client 1",
        f"Contract: LCEME on the loss model calibrated on pilot data, D' = {paper.assigned} for all, "
        f"c_p = {paper.sample_cost:g} for a sample in a round, c_l = {paper.labeling_cost:g}, {paper.rounds} rounds, "
        f"step size {pilot_result.step_size:g}; slope Φ₁ = {contract.slope[0]:,.0f} for a unit of loss; their "
        f"margin {margin_of(paper, pilot_result, contract)[0]:,.0f} covers the pilot's error with 95% confidence. In "
        f"real training they are paid by the test loss; means of {paper.seeds} seeds with 95% bands. The third panel "
        "takes differences seed by seed, so that effects common to all runs of a seed drop out. Dotted: the batch "
        "asked for." + ("" if price > 0 else NO_PRICE),
        (
            Panel("On the loss model", x, y, _on_model(paper, pilot_result), 0.0, paper.assigned),
            Panel(
                "In real training",
                x,
                y,
                tuple(series(behaviour.name, sizes, values) for behaviour, values in real.items()),
                0.0,
                paper.assigned,
            ),
            Panel(
                f"In real training: gain over honest work at D₁ = {paper.assigned}",
                x,
                "gain of client 1 (money)",
                tuple(series(behaviour.name, sizes, values - truth[:, None]) for behaviour, values in real.items()),
                0.0,
                paper.assigned,
            ),
        ),
    )


def claims(paper: Paper, pilot_result: PilotResult, results: Mapping[Key, CellResult]) -> list[Claim]:
    contract, clients = contract_of(paper, pilot_result)
    sizes = _sizes(paper)
    real = {behaviour: payoffs(paper, contract, clients, results, behaviour) for behaviour in (HONEST, *LIES)}
    assigned = sizes.index(paper.assigned)
    truth = real[HONEST]
    model = {line.name: np.array(line.mean) for line in _on_model(paper, pilot_result)}
    highest = max((name for name in model if name != HONEST.name), key=lambda name: model[name].max())
    least = float(model[HONEST.name].max() - model[highest].max())
    rows = [
        computed_claim(
            "6",
            "On the loss model the honest choice is above all others.",
            f"the best lie ({highest}) earns {format_number(least)} less",
            holds=least > 0,
            reason="The pilot's trainings show no harm from a scaled report (its fitted price is 0), so on this loss "
            "model nothing speaks against it.",
        )
    ]
    rows += [
        sampled_claim(
            "6",
            f"In real training honest work earns more than: {lie.name}, whatever D₁.",
            "money lost by lying:",
            [comparison(f"D₁ = {size}", truth[:, assigned], real[lie][:, k]) for k, size in enumerate(sizes)],
            reason=_reason(lie),
        )
        for lie in LIES
    ]
    rows.append(
        sampled_claim(
            "6",
            f"In real training an honest client earns most with the batch asked for, {paper.assigned}.",
            "money lost by another batch:",
            [
                comparison(f"D₁ = {size}", truth[:, assigned], truth[:, k])
                for k, size in enumerate(sizes)
                if k != assigned
            ],
            doubt="One client's batch moves the loss by less than the noise of training.",
        )
    )
    rows.append(
        sampled_claim(
            "6",
            "An honest client's payoff is positive in real training.",
            "payoff",
            [Comparison(f"D₁ = {paper.assigned}, pay by the test loss", truth[:, assigned])],
            reason="The loss of the clients' training is not the pilot's: the slope turns that difference into money.",
        )
    )
    return rows


def contract_of(paper: Paper, pilot_result: PilotResult) -> tuple[LCEME, Clients]:
    """LCEME with batch D' for all clients, on the calibrated model, with a margin for the error of the calibration."""
    clients = clients_of(paper, paper.sample_cost)
    model, training = pilot_result.calibration[paper.rounds].model, pilot_result.training(paper.rounds)
    error = _loss_error(paper, pilot_result)
    return lceme_with_margin(clients, model, training, float(paper.assigned), error), clients


def payoffs(
    paper: Paper, contract: LCEME, clients: Clients, results: Mapping[Key, CellResult], behaviour: Behaviour
) -> NDArray[np.float64]:
    """Client 1's payoff in real training, (seeds, batch sizes): pay by the test loss less the cost of their work."""
    sizes = _sizes(paper)
    keys = [(behaviour.name, sizes[0] if behaviour.reports_nothing else size) for size in sizes]
    loss = np.stack([results[key].test_loss[:, -1] for key in keys], axis=1)
    finite = np.isfinite(loss)
    pay = np.where(finite, contract.reward(np.where(finite, loss, 0.0))[..., 0], -np.inf)
    price = paper.rounds * clients.sample_cost[0]
    return np.asarray(pay - [behaviour.cost(clients.labeling_cost[0], price, size) for size in sizes])


def _on_model(paper: Paper, pilot_result: PilotResult) -> tuple[Series, ...]:
    contract, clients = contract_of(paper, pilot_result)
    model, training = pilot_result.calibration[paper.rounds].model, pilot_result.training(paper.rounds)
    sizes = np.unique(np.append(np.geomspace(min(_sizes(paper)), max(_sizes(paper)), 25).round(), _sizes(paper)))

    def payoff(behaviour: Behaviour, size: float) -> float:
        strategies = Strategies(
            with_exceptions(1.0, paper.clients, behaviour.labeling_effort, (0,)),
            _batches(paper, size, paper.assigned),
            with_exceptions(1.0, paper.clients, behaviour.report_scale, (0,)),
        )
        return float(client_payoff(contract, clients, model, training, strategies)[0])

    return tuple(exact_series(p.name, sizes, [payoff(p, size) for size in sizes]) for p in (HONEST, *LIES))


def margin_of(paper: Paper, pilot_result: PilotResult, contract: LCEME) -> NDArray[np.float64]:
    """The part of each client's base pay that covers the pilot's error."""
    return confidence_margin(contract, _loss_error(paper, pilot_result))


def _loss_error(paper: Paper, pilot_result: PilotResult) -> float:
    return pilot_result.calibration[paper.rounds].truthful_loss_error(np.full(paper.clients, paper.assigned))


def _reason(lie: Behaviour) -> str:
    if lie.reports_nothing:
        return "An unchanged model hides the client's labels: the loss model counts harm that does not happen."
    if lie.labels_honestly:
        return (
            "One client's scaled report moves the loss by less than the noise, or lowers it where a larger step helps."
        )
    return ""


def _sizes(paper: Paper) -> list[int]:
    return sorted({*paper.own_batch_sizes, paper.assigned})


def _batches(paper: Paper, own: float, others: int) -> tuple[int, ...]:
    """The batch sizes of all clients: `own` for client 1, `others` for the rest."""
    return (int(own), *(others,) * (paper.clients - 1))


STUDY = Study("6", lambda p: (p.rounds,), cells, figure, claims)
