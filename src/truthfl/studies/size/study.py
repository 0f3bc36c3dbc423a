"""Runs the study of sizes: step size, pilot, runs of all draws, contracts, findings, laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.adversary.measure import Payer
from truthfl.contracts.payoff import work_cost
from truthfl.contracts.setting import FloatArray, IntArray, Strategies, Training
from truthfl.studies.cells import StagedTasks, StageProgress
from truthfl.studies.size.design import FITTED_CLIENTS, SizeDesign, pool_size
from truthfl.studies.size.findings import (
    FittedLoss,
    PowerLaw,
    SizeFinding,
    SizeRuns,
    SoloPlan,
    audition_for,
    equal_clients,
    fit_power_law,
    fitted_loss,
    joint_level,
    lceme_for,
    pay_spread,
    rule_finding,
    solo_plan,
    worth_estimate,
)
from truthfl.studies.work import Store, Workers, WorkItem

STEP_SEEDS = 4
CERTAIN = 1.96  # standard deviations of a 95% interval

NOTHING_LESS = "each client has too few samples to label fewer but not none, so the solo loss has no slope"


WORTH, LCEME_SPREAD = "worth", "lceme_spread_over_cost"
LAWS: Mapping[str, str] = {
    WORTH: "worth of one client's work",
    LCEME_SPREAD: "LCEME: standard deviation of pay over cost",
}


@dataclass(frozen=True)
class SizeStudy:
    """The results of the study.

    fitted      the loss model, fitted at ten clients
    pool        number of samples from which labels are drawn
    laws        by the names of `LAWS`; laws with too few sizes are absent
    trainings   joint trainings behind the results
    tasks_done  tasks computed now instead of read from the store
    """

    design: SizeDesign
    step_size: float
    fitted: FittedLoss
    pool: int
    sizes: tuple[SizeFinding, ...]
    laws: Mapping[str, PowerLaw]
    trainings: int
    tasks_done: int


def study_sizes(
    design: SizeDesign,
    folder: Path,
    *,
    workers: int | Workers | None = None,
    progress: StageProgress = lambda *_: None,
) -> SizeStudy:
    """Train what is not yet stored in the folder, and compute the findings."""
    pool = pool_size(design.data, design.total_labels)
    tasks = StagedTasks(Store(folder / "tasks"), workers, progress)
    common = design.settings()
    step_item = _item("tuned_step", common, size=FITTED_CLIENTS, draw=0, seeds=STEP_SEEDS)
    step_size = float(tasks.do("step size", [step_item])[0]["step_size"])
    common |= {"step_size": step_size}
    money = design.money
    models = [_item("loss_model_points", common, size=FITTED_CLIENTS, draw=draw) for draw in range(design.pilot_draws)]
    with_curve = [size for size in design.sizes if design.can_label_fewer(size)]
    curves = [
        _item(
            "solo_curve",
            {"data": common["data"], "model": common["model"]},
            labels=design.labels_each(size),
            label_cost=money.label_cost,
            sample_cost=money.sample_cost,
            clients=design.solo_clients,
        )
        for size in with_curve
    ]
    on_pilot = tasks.do("pilot", [*curves, *models])
    fitted = fitted_loss(design, on_pilot[len(curves) :])
    solo = {size: solo_plan(design, size, stored) for size, stored in zip(with_curve, on_pilot, strict=False)}
    items = [_runs_item(design, common, size, solo.get(size), draw) for draw in design.draws for size in design.sizes]
    results = tasks.do("training", items)
    sizes = len(design.sizes)
    training = Training(design.rounds, 1, step_size)
    runs = [SizeRuns(design, size, results[k::sizes], pool) for k, size in enumerate(design.sizes)]
    found = [_found(each, training, solo.get(each.size), fitted) for each in runs]
    return SizeStudy(
        design,
        step_size,
        fitted,
        pool,
        tuple(finding for finding, _ in found),
        _laws(design, runs, [payers["lceme"] for _, payers in found]),
        sum(each["lied"].size + len(each["without"]) + 1 for each in results),
        tasks.computed,
    )


def _found(
    runs: SizeRuns, training: Training, solo: SoloPlan | None, fitted: FittedLoss
) -> tuple[SizeFinding, dict[str, Payer]]:
    """The finding at one number of clients, and the contracts by name."""
    design, size = runs.design, runs.size
    clients, money = equal_clients(design, size), design.money
    level = joint_level(design, runs.losses[: design.pilot_draws].tolist(), runs.loss_variance, runs.pool)
    payers = {"lceme": Payer(lceme_for(design, size, clients, training, fitted, level), clients, training)}
    if solo is not None and not solo.reason:
        contract = audition_for(design, size, clients, training, solo, fitted)
        payers["audition"] = Payer(contract, clients, training, contract.audition_pay)
    cost = work_cost(clients, training, Strategies.truthful(payers["lceme"].contract.batch_size))
    by_model = fitted.worth(size, design)
    labels, spread = design.labels_each(size), float(runs.loss_spread(np.arange(len(runs.results))))
    finding = SizeFinding(
        clients=size,
        labels_each=labels,
        batch_each=design.batch_each(size),
        participation=design.participation(size),
        cost=float(cost[0]),
        loss=float(runs.losses.mean()),
        loss_spread=spread,
        worth=worth_estimate(runs, money.loss_value),
        worth_by_model=by_model,
        jobs_to_tell=max(1.0, (CERTAIN * spread * money.loss_value / by_model) ** 2),
        lceme=rule_finding(runs, payers["lceme"]),
        audition=rule_finding(runs, payers["audition"]) if "audition" in payers else None,
        no_audition=NOTHING_LESS if solo is None else solo.reason,
        solo_risk=None if solo is None else float(solo.curve.spread([labels])[0] / solo.curve.slope([labels])[0]),
    )
    return finding, payers


def _laws(design: SizeDesign, runs: Sequence[SizeRuns], lceme: Sequence[Payer]) -> dict[str, PowerLaw]:
    """The laws; the value of a law at some draws is computed from these draws alone.

    The audition has no law: its spread depends on the labels of each client, and is smallest in between.
    """
    rises = design.money.loss_value * np.stack([each.rises for each in runs])

    def worth(draws: IntArray) -> FloatArray:
        return np.asarray(rises[:, draws].mean(axis=-1).T)

    spreads = [(pay_spread(each, payer.contract), _cost(each, payer)) for each, payer in zip(runs, lceme, strict=True)]

    def lceme_spread(draws: IntArray) -> FloatArray:
        return np.stack([spread(draws) / cost for spread, cost in spreads], axis=-1)

    fitted = {
        WORTH: fit_power_law(design.sizes, len(design.draws), worth, offset=1.0),
        LCEME_SPREAD: fit_power_law(design.sizes, len(design.draws), lceme_spread),
    }
    return {name: law for name, law in fitted.items() if law is not None}


def _cost(runs: SizeRuns, payer: Payer) -> float:
    """The cost of one client's honest work, with training alone where the contract asks for it."""
    work = work_cost(payer.clients, payer.training, Strategies.truthful(payer.contract.batch_size))
    return float(work[0] + np.broadcast_to(payer.audition_cost, (runs.size,))[0])


def _runs_item(design: SizeDesign, common: Mapping[str, Any], size: int, plan: SoloPlan | None, draw: int) -> WorkItem:
    solo, labels = None, design.labels_each(size)
    if plan is not None and not plan.reason:
        level, spread = float(plan.curve.level([labels])[0]), float(plan.curve.spread([labels])[0])
        solo = {"recipe": plan.recipe.document(), "level": level, "spread": spread}
    return _item(
        "size_runs",
        common,
        size=size,
        draw=draw,
        liars=min(design.liars, size),
        solo_liars=min(design.solo_liars, size),
        absences=min(design.absences, size),
        solo=solo,
        first_seed=1000 * design.seed,
    )


def _item(function: str, common: Mapping[str, Any], **more: Any) -> WorkItem:
    return WorkItem(f"studies.size.trainings:{function}", {**common, **more})
