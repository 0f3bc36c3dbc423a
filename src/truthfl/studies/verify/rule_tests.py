"""The payment rules that are tested for a job, each with the training in which it pays.

LCEME on the calibrated loss model and on two bounds, and four other rules. Imports `verification`, `studies.cells`,
`studies.work`, `learning.planning` and `mechanism`; the work items call `lie_training`.
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
from truthfl.studies.cells import FederationSpec
from truthfl.studies.verify.verification import RuleTest
from truthfl.studies.work import Progress, Result, Store, WorkItem, do_all

Bound = Callable[[Clients, Training, Constants], LossModel]
BOUNDS: tuple[tuple[str, Bound, float, bool], ...] = (
    ("lceme as printed", paper_bound, 0.5, True),  # valid for steps up to 1/(2L), at which it is run
    ("lceme, sound bound", sound_bound, 0.25, False),
)
PRICING_SEEDS = 8
CALIBRATED = "lceme calibrated"


def rule_tests(
    federation: FederationSpec,
    plan: Plan,
    store: Store,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[tuple[RuleTest, ...], dict[str, str]]:
    """The rule tests, and the reasons why rules are absent, by name of the rule.

    All rules assign the batches of the calibrated plan, so that the work is the same. The price of a contribution and
    the constants of the bounds are measured on the server's own data.
    """
    has_bounds = federation.model.kind == "softmax"
    tasks = [_leave_one_out_task(federation, plan)]
    if has_bounds:
        tasks += [_constants_task(federation, plan, share) for _, _, share, _ in BOUNDS]
    results = do_all(tasks, store, workers=workers, progress=progress)
    rules, absent = _rules_at_tuned_step(plan, results[0])
    tests = [RuleTest(federation, plan.training, plan.clients, rules)]
    for (name, bound, _, printed), constants in zip(BOUNDS, results[1:], strict=False):
        try:
            tests.append(_lceme_on_bound(federation, plan, name, bound, printed, constants))
        except InputError as error:
            absent[name] = str(error)
    if not has_bounds:
        absent |= {name: "the bounds need a strongly convex loss, and this model has none." for name, *_ in BOUNDS}
    return tuple(tests), absent


def _rules_at_tuned_step(plan: Plan, without: Result) -> tuple[tuple[Mechanism, ...], dict[str, str]]:
    """The rules that pay for training at the plan's step size, and the reasons why rules are absent."""
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
    """The job's contract and, if its batches are not below LCEME's floor, LCEME with the same batches."""
    if plan.contract.kind == Contract.kind:
        return [plan.contract.renamed(CALIBRATED)]
    try:
        bare = lceme(plan.clients, plan.calibration.model, plan.training, plan.contract.batch_size)
    except InputError:
        return [plan.contract]
    extra = confidence_margin(bare, plan.loss_error)
    same = lceme(plan.clients, plan.calibration.model, plan.training, plan.contract.batch_size, margin=extra)
    return [plan.contract, same.renamed(CALIBRATED)]


def _lceme_on_bound(
    federation: FederationSpec, plan: Plan, name: str, bound: Bound, printed: bool, constants: Result
) -> RuleTest:
    """LCEME on a bound, with the largest step size at which the bound holds."""
    training = replace(plan.training, step_size=float(constants["step_size"]))
    measured = Constants(
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
    model = bound(clients, training, measured)
    floor = np.ceil(labeling_floor(clients, model, training, as_printed=printed))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, clients.dataset_size))
    contract = lceme(clients, model, training, batches, as_printed=printed).renamed(name)
    return RuleTest(federation, training, clients, (contract,))


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


def _leave_one_out_task(federation: FederationSpec, plan: Plan) -> WorkItem:
    """The work item for the losses on pilot data with all clients, and without each in turn."""
    return WorkItem(
        "studies.verify.lie_training:losses_without",
        federation.settings()
        | {
            "rounds": plan.training.rounds,
            "local_steps": plan.training.local_steps,
            "step_size": plan.training.step_size,
            "batch_size": plan.contract.batch_size.tolist(),
            "seeds": list(range(PRICING_SEEDS)),
        },
    )


def _constants_task(federation: FederationSpec, plan: Plan, share: float) -> WorkItem:
    """The work item for the constants of a bound, at this share of its largest step size."""
    training = {"rounds": plan.training.rounds, "local_steps": plan.training.local_steps, "share_of_limit": share}
    return WorkItem("studies.verify.lie_training:bound_constants", federation.settings() | training)
