"""The payment rules that are tested for a job, each with the training in which it pays.

LCEME on the calibrated loss model and on two bounds, and four other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from truthfl.errors import InputError
from truthfl.mechanism.assignment import labeling_floor
from truthfl.mechanism.baselines import LeaveOneOutPay, flat_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence
from truthfl.mechanism.payoff import work_cost
from truthfl.mechanism.setting import Clients, Constants, Training
from truthfl.mechanism.spread import confidence_margin
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.verify.drawn_plans import DrawnPlan
from truthfl.studies.work import Progress, Result, Store, Workers, WorkItem, do_all


@dataclass(frozen=True)
class BoundRule:
    """LCEME on a bound.

    step        the largest step size at which the bound holds, times L; training is run with it
    as_printed  whether the contract is the paper's, with its errors
    """

    name: str
    bound: Callable[[Clients, Training, Constants], LossModel]
    step: float
    as_printed: bool


BOUND_RULES = (
    BoundRule("lceme as printed", paper_bound, 0.5, as_printed=True),
    BoundRule("lceme, sound bound", sound_bound, 0.25, as_printed=False),
)
CONSTANTS = tuple(field.name for field in fields(Constants))
PRICING_SEEDS = 8
MOST_ASKED = 10  # clients
CALIBRATED = "lceme calibrated"


@dataclass(frozen=True, eq=False)
class DrawnRules:
    """The rules on one draw of the data, and the training in which they pay; all assign the same batches."""

    plan: DrawnPlan
    training: Training
    clients: Clients
    rules: tuple[Mechanism, ...]

    @property
    def batch_size(self) -> FloatArray:
        return self.rules[0].batch_size


@dataclass(frozen=True, eq=False)
class RuleTest:
    """Rules that pay for the same training, on every draw of the data; they share its runs."""

    names: tuple[str, ...]
    draws: tuple[DrawnRules, ...]

    def needs(self, evidence: Evidence) -> bool:
        """Whether a rule needs this evidence."""
        return any(evidence in rule.needs for rule in self.draws[0].rules)

    def client_on(self, draw: int, client: int) -> int:
        """This client's number on a draw; on a draw whose plan leaves clients out, one of those who are asked."""
        return client % len(self.draws[draw].clients)

    def name_on(self, draw: int, client: int) -> str:
        """The name of the client of this number on a draw; other draws may leave out others."""
        names = self.draws[draw].clients.name
        return str(client) if names is None else names[client]

    @property
    def runs_per_case(self) -> int:
        """Training runs for each lie in each case: Shapley pay needs a second one, in a coalition."""
        return 2 if self.needs(Evidence.SHAPLEY) else 1


def rule_tests(
    plans: Sequence[DrawnPlan],
    store: Store,
    *,
    workers: int | Workers | None = None,
    progress: Progress | None = None,
) -> tuple[tuple[RuleTest, ...], dict[str, str]]:
    """The rule tests, and the reasons why rules are absent, by name of the rule.

    All rules assign the batches of the plan, so that the work is the same. The price of a contribution and the
    constants of the bounds are measured on the server's own data. A rule that cannot be made on one of the draws is
    absent. Rules that pay by Shapley values are a test of their own, because their runs cost twice as much.
    """
    has_bounds = plans[0].federation.model.kind == "softmax"
    steps = [rule.step for rule in BOUND_RULES] if has_bounds else []
    items = [[_leave_one_out_task(plan), *(_constants_task(plan, step) for step in steps)] for plan in plans]
    flat = do_all([item for of_plan in items for item in of_plan], store, workers=workers, progress=progress)
    results = [flat[k * len(items[0]) : (k + 1) * len(items[0])] for k in range(len(plans))]
    made: dict[str, list[DrawnRules]] = {}
    absent: dict[str, str] = {}
    for plan, of_plan in zip(plans, results, strict=True):
        for name, make in _makers(plan, of_plan).items():
            try:
                made.setdefault(name, []).append(make())
            except InputError as error:
                absent.setdefault(name, str(error))
    if not has_bounds:
        why = "the bounds need a strongly convex loss, and this model has none."
        absent |= {rule.name: why for rule in BOUND_RULES}
    present = {name: draws for name, draws in made.items() if name not in absent}
    return tuple(_grouped(present)), absent


def _grouped(rules: Mapping[str, list[DrawnRules]]) -> list[RuleTest]:
    """One test for each training (step size and batches) and kind of evidence."""
    groups: dict[tuple[float, bool, bytes], dict[str, list[DrawnRules]]] = {}
    for name, draws in rules.items():
        batches = np.concatenate([draw.batch_size for draw in draws]).tobytes()
        key = (draws[0].training.step_size, Evidence.SHAPLEY in draws[0].rules[0].needs, batches)
        groups.setdefault(key, {})[name] = draws
    return [
        RuleTest(
            tuple(group),
            tuple(
                replace(of_draw[0], rules=tuple(rule for each in of_draw for rule in each.rules))
                for of_draw in zip(*group.values(), strict=True)
            ),
        )
        for group in groups.values()
    ]


def _makers(plan: DrawnPlan, results: Sequence[Result]) -> dict[str, Callable[[], DrawnRules]]:
    """Functions that make the rules of one plan, by name; each may raise `InputError`."""
    clients, training, batches = plan.clients, plan.training, plan.contract.batch_size

    def at_tuned_step(make: Callable[[], Mechanism]) -> Callable[[], DrawnRules]:
        return lambda: DrawnRules(plan, training, clients, (make(),))

    def on_bound(number: int) -> Callable[[], DrawnRules]:
        return lambda: _lceme_on_bound(plan, BOUND_RULES[number], results[1 + number])

    own, loss_model = plan.contract, plan.loss_model
    if own.kind == Contract.kind:
        own = own.renamed(CALIBRATED)
    makers = {own.name: at_tuned_step(lambda: own)}
    others: dict[str, Callable[[], Mechanism]] = {
        CALIBRATED: lambda: _calibrated(plan),
        "flat": partial(flat_pay, clients, loss_model, training, batches),
        "per claimed sample": partial(pay_per_claimed_sample, clients, loss_model, training, batches),
        "leave-one-out": lambda: _leave_one_out(plan, results[0]),
        "shapley share": partial(shapley_share_pay, clients, loss_model, training, batches),
    }
    for name, make in others.items():
        makers.setdefault(name, at_tuned_step(make))
    return makers | {BOUND_RULES[number].name: on_bound(number) for number in range(len(results) - 1)}


def _leave_one_out(plan: DrawnPlan, without: Result) -> Mechanism:
    of_asked = without["loss"][1:].mean(axis=1) - without["loss"][0].mean()
    drop = float(of_asked.mean()) * len(plan.clients)
    if not drop > 0:
        raise InputError(f"on pilot data, leaving clients out one by one changes the loss by {drop:g} in all.")
    batches = plan.contract.batch_size
    cost = float(work_cost(plan.clients, plan.training, Strategies.truthful(batches)).sum())
    return LeaveOneOutPay(batches, cost / drop)


def _calibrated(plan: DrawnPlan) -> Mechanism:
    """LCEME on the calibrated loss model, with the batches of the job's own contract, or larger ones where it must."""
    floor = np.ceil(labeling_floor(plan.clients, plan.loss_model, plan.training))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, plan.clients.dataset_size))
    bare = lceme(plan.clients, plan.loss_model, plan.training, batches)
    margin = confidence_margin(bare, plan.loss_error, confidence=plan.confidence)
    return lceme(plan.clients, plan.loss_model, plan.training, batches, margin=margin).renamed(CALIBRATED)


def _lceme_on_bound(plan: DrawnPlan, rule: BoundRule, constants: Result) -> DrawnRules:
    """LCEME on a bound, with the largest step size at which the bound holds."""
    training = replace(plan.training, step_size=float(constants["step_size"]))
    measured = Constants(**{name: float(constants[name]) for name in CONSTANTS})
    clients = _with_gradients(plan.clients, constants["gradient_variance"], constants["heterogeneity"])
    model = rule.bound(clients, training, measured)
    floor = np.ceil(labeling_floor(clients, model, training, as_printed=rule.as_printed))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, clients.dataset_size))
    contract = lceme(clients, model, training, batches, as_printed=rule.as_printed).renamed(rule.name)
    return DrawnRules(plan, training, clients, (contract,))


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


def _leave_one_out_task(plan: DrawnPlan) -> WorkItem:
    """The work item for the losses on pilot data with all clients, and without each of those asked in turn."""
    asked = asked_clients(plan.clients.weight)
    return WorkItem(
        "studies.verify.lie_training:losses_without",
        plan.federation.settings()
        | {
            "without": asked.tolist(),
            "rounds": plan.training.rounds,
            "local_steps": plan.training.local_steps,
            "step_size": plan.training.step_size,
            "batch_size": plan.contract.batch_size.tolist(),
            "seeds": list(range(PRICING_SEEDS)),
        },
    )


def asked_clients(weight: FloatArray) -> IntArray:
    """The clients whose lies are studied: all, or `MOST_ASKED` of them, evenly spaced in the order of weights."""
    order = np.argsort(weight, kind="stable")
    if len(order) <= MOST_ASKED:
        return np.arange(len(order))
    return np.sort(order[((np.arange(MOST_ASKED) + 0.5) * len(order) / MOST_ASKED).astype(np.int64)])


def _constants_task(plan: DrawnPlan, share: float) -> WorkItem:
    """The work item for the constants of a bound, at this share of its largest step size."""
    training = {"rounds": plan.training.rounds, "local_steps": plan.training.local_steps, "share_of_limit": share}
    return WorkItem("studies.verify.lie_training:bound_constants", plan.federation.settings() | training)
