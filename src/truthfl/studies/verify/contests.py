"""Which rules are put to the test for a job, and in which training each pays: LCEME three ways, and other ways.

Looks at `lie_training`, `verification`, `learning` (the plan) and the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.planning import Plan
from truthfl.mechanism.assignment import labeling_floor
from truthfl.mechanism.baselines import LeaveOneOutPay, flat_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.payoff import work_cost
from truthfl.mechanism.setting import Clients, Constants, Training
from truthfl.mechanism.spread import confidence_margin
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.cells import Place
from truthfl.studies.verify.verification import Contest
from truthfl.studies.work import Progress, Result, Store, WorkItem, do_all

Bound = Callable[[Clients, Training, Constants], LossModel]
BOUNDS: tuple[tuple[str, Bound, float, bool], ...] = (
    ("lceme as printed", paper_bound, 0.5, True),  # valid for steps up to 1/(2L), at which it is run
    ("lceme, sound bound", sound_bound, 0.25, False),
)
PRICING_SEEDS = 8
CALIBRATED = "lceme calibrated"


def contests(
    place: Place, plan: Plan, store: Store, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[tuple[Contest, ...], dict[str, str]]:
    """The contests, and why a rule that one might expect is not among them.

    All rules ask for the batches of the calibrated plan, so that all ask for the same work. What the server has to
    find out for a rule (the price of a contribution, the bounds' constants) it finds out on its own data.
    """
    on_bounds = place.model.kind == "softmax"
    tasks = [_without_each(place, plan)]
    if on_bounds:
        tasks += [_constants(place, plan, share) for _, _, share, _ in BOUNDS]
    results = do_all(tasks, store, workers=workers, progress=progress)
    rules, absent = _at_the_tuned_step(plan, results[0])
    found = [Contest(place, plan.training, plan.clients, rules)]
    for (name, bound, _, printed), constants in zip(BOUNDS, results[1:], strict=False):
        try:
            found.append(_on_bound(place, plan, name, bound, printed, constants))
        except InputError as error:
            absent[name] = str(error)
    if not on_bounds:
        absent |= {name: "the bounds need a strongly convex loss, and this model has none." for name, *_ in BOUNDS}
    return tuple(found), absent


def _at_the_tuned_step(plan: Plan, without: Result) -> tuple[tuple[Mechanism, ...], dict[str, str]]:
    clients, training, batches = plan.clients, plan.training, plan.contract.batch_size
    rules: list[Mechanism] = [
        *_own_and_lceme(plan),
        flat_pay(clients, plan.calibration.model, training, batches),
        pay_per_claimed_sample(clients, plan.calibration.model, training, batches),
    ]
    absent = {}
    drop = float((without["loss"][1:].mean(axis=1) - without["loss"][0].mean()).sum())
    if drop > 0:
        cost = float(work_cost(clients, training, Strategies.truthful(batches)).sum())
        rules.append(LeaveOneOutPay(batches, cost / drop))
    else:
        absent["leave-one-out"] = f"on pilot data, leaving clients out one by one changes the loss by {drop:g} in all."
    rules.append(shapley_share_pay(clients, plan.calibration.model, training, batches))
    return tuple(rules), absent


def _own_and_lceme(plan: Plan) -> list[Mechanism]:
    """The job's contract, and LCEME at its batches where these are not below LCEME's floor."""
    if plan.contract.kind == Contract.kind:
        return [plan.contract.renamed(CALIBRATED)]
    try:
        bare = lceme(plan.clients, plan.calibration.model, plan.training, plan.contract.batch_size)
    except InputError:
        return [plan.contract]
    extra = confidence_margin(bare, plan.loss_error)
    same = lceme(plan.clients, plan.calibration.model, plan.training, plan.contract.batch_size, margin=extra)
    return [plan.contract, same.renamed(CALIBRATED)]


def _on_bound(place: Place, plan: Plan, name: str, bound: Bound, printed: bool, constants: Result) -> Contest:
    training = replace(plan.training, step_size=float(constants["step_size"]))
    known = Constants(
        **{
            field: float(constants[field])
            for field in (
                "smoothness",
                "strong_convexity",
                "label_shift",
                "gradient_bound",
                "initial_distance",
                "optimal_loss",
            )
        }
    )
    clients = _with_gradients(plan.clients, constants["gradient_variance"], constants["heterogeneity"])
    model = bound(clients, training, known)
    floor = np.ceil(labeling_floor(clients, model, training, as_printed=printed))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, clients.dataset_size))
    contract = lceme(clients, model, training, batches, as_printed=printed).renamed(name)
    return Contest(place, training, clients, (contract,))


def _with_gradients(clients: Clients, variance: FloatArray, heterogeneity: FloatArray) -> Clients:
    return Clients(
        weight=clients.weight,
        gradient_variance=variance,
        sample_cost=clients.sample_cost,
        labeling_cost=clients.labeling_cost,
        dataset_size=clients.dataset_size,
        heterogeneity=heterogeneity,
        participation=clients.participation,
        name=clients.name,
    )


def _without_each(place: Place, plan: Plan) -> WorkItem:
    """Losses on pilot data with everybody, and without each client in turn."""
    return WorkItem(
        "studies.verify.lie_training:losses_without",
        place.said()
        | {
            "rounds": plan.training.rounds,
            "local_steps": plan.training.local_steps,
            "step_size": plan.training.step_size,
            "batch_size": plan.contract.batch_size.tolist(),
            "seeds": list(range(PRICING_SEEDS)),
        },
    )


def _constants(place: Place, plan: Plan, share: float) -> WorkItem:
    how = {"rounds": plan.training.rounds, "local_steps": plan.training.local_steps, "share_of_limit": share}
    return WorkItem("studies.verify.lie_training:bound_constants", place.said() | how)
