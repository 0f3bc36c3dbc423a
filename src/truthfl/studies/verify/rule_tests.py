"""The payment rules tested for a job, each with the training in which it pays; plans on several draws.

The rules are LCEME on the calibrated loss model and on two bounds, and four others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.adversary.measure import SoloTerms
from truthfl.contracts.baselines import LeaveOneOutPay, flat_pay, pay_per_claimed_sample, shapley_share_pay
from truthfl.contracts.contract import Contract, Evidence
from truthfl.contracts.formulas import COMMON, SOLO_MEAN
from truthfl.contracts.lceme.assignment import labeling_floor
from truthfl.contracts.lceme.contract import CALIBRATED, lceme, lceme_with_margin
from truthfl.contracts.loss_model import LossModel, paper_bound, sound_bound
from truthfl.contracts.payoff import work_cost
from truthfl.contracts.planning import Plan
from truthfl.contracts.registry import find_contract
from truthfl.contracts.setting import Clients, Constants, FloatArray, IntArray, Strategies, Training
from truthfl.errors import InputError
from truthfl.job import DataJob
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.solo import Recipe
from truthfl.studies.cells import FederationSpec
from truthfl.studies.work import Progress, Result, Store, Workers, WorkItem, do_all

SEED_STEP = 1000  # between the data seeds of two draws
LOSS_MODEL = tuple(field.name for field in fields(LossModel))


@dataclass(frozen=True, eq=False)
class DrawnPlan:
    """The plan on one draw of the data; `federation.data.seed` is that of the draw.

    start          where training starts, as in `JobTerms`
    loss_model     None if the contract is not planned on one
    solo           the contract's terms for solo models; None for contracts that do not use them
    cost_of_solo   (N,) cost of training alone
    """

    federation: FederationSpec
    training: Training
    start: str
    clients: Clients
    loss_model: LossModel | None
    contract: Contract
    loss_error: float
    loss_variance: float
    confidence: float
    solo: SoloTerms | None
    cost_of_solo: FloatArray

    def audition_cost(self, rule: Contract) -> FloatArray | float:
        """The cost of training alone, if this rule asks for it."""
        return self.cost_of_solo if Evidence.SOLO_LOSS in rule.needs else 0.0


def drawn_plans(
    job: DataJob,
    count: int,
    store: Store,
    *,
    seed: int,
    design: PilotDesign | None = None,
    progress: Progress,
) -> tuple[list[DrawnPlan], list[str]]:
    """`count` plans, the job's own first, and why other draws have none; `InputError` if the job's draw has none.

    Draws without a possible plan are replaced by further ones, up to `count` of them.
    """
    plans: list[DrawnPlan] = []
    failures: list[str] = []
    while len(plans) < count:
        progress(len(plans), count)
        number = len(plans) + len(failures)
        drawn = job.data.seed + (SEED_STEP * number + 7919 * seed if number else 0)
        here = replace(job, data=replace(job.data, seed=drawn))
        try:
            plans.append(_plan(here, store, design))
        except InputError as error:
            failures.append(str(error))
            if number == 0 or len(failures) > count:
                raise
    progress(count, count)
    return plans, failures


def _plan(job: DataJob, store: Store, design: PilotDesign | None) -> DrawnPlan:
    settings = job.document() | {"design": None if design is None else asdict(design)}
    item = WorkItem("studies.verify.rule_tests:plan", settings)
    stored = store.get(item)
    if stored is None:
        stored = arrays_of(job.plan(job.server_side(), design), job.server.loss_value)
        store.put(item, stored)
    return plan_of(job, stored)


def arrays_of(plan: Plan, loss_value: float) -> Result:
    """The parts of a plan that a study needs, as named arrays."""
    model: dict[str, NDArray[Any]] = {}
    if plan.calibration is not None:
        model = {f"model_{name}": np.asarray(getattr(plan.loss_model, name)) for name in LOSS_MODEL}
    training = plan.training
    terms = {f"term_{name}": values for name, values in plan.contract.terms().items()}
    return (
        model
        | terms
        | {
            "training": np.array([training.rounds, training.local_steps, training.step_size, training.momentum]),
            "from_solo": np.array(plan.start == SOLO_MEAN),
            "kind": np.array(plan.contract.kind),
            "weight": plan.clients.weight,
            "gradient_variance": plan.clients.gradient_variance,
            "batch_size": np.asarray(plan.contract.batch_size, dtype=float),
            "loss_error": np.array(plan.loss_error),
            "loss_variance": np.array(plan.loss_variance),
        }
        | _solo_arrays(plan, loss_value)
    )


def _solo_arrays(plan: Plan, loss_value: float) -> dict[str, NDArray[Any]]:
    """The parts that a study needs of a plan in which clients train alone."""
    if plan.recipe is None:
        return {}
    worth = plan.details.worth
    return {
        "absence": np.zeros(len(plan.clients)) if worth is None else worth / loss_value,
        "asked": plan.asked,
        "labels": plan.clients.dataset_size,
        "cost_of_solo": np.asarray(plan.solo_cost),
        "recipe": np.array([float(value) for value in vars(plan.recipe).values()]),
    }


def plan_of(job: DataJob, stored: Result) -> DrawnPlan:
    """The plan with these arrays."""
    people = job.clients
    asked = stored.get("asked", np.arange(len(people)))
    labels = stored.get("labels", np.array(people.dataset_size))
    clients = Clients(
        weight=stored["weight"],
        gradient_variance=stored["gradient_variance"],
        sample_cost=people.sample_cost[asked],
        labeling_cost=people.label_cost[asked] * labels if "labels" in stored else people.labeling_cost,
        dataset_size=labels,
        participation=people.participation[asked],
        name=[people.name[k] for k in asked],
    )
    loss_model: LossModel | None = None
    if "model_constant" in stored:
        model: dict[str, Any] = {name: stored[f"model_{name}"] for name in LOSS_MODEL}
        loss_model = LossModel(**{name: float(value) if value.ndim == 0 else value for name, value in model.items()})
    rounds, local_steps, step_size, momentum = stored["training"].tolist()
    terms = {name[len("term_") :]: values for name, values in stored.items() if name.startswith("term_")}
    participation = tuple(people.participation.tolist())
    contract = find_contract(str(stored["kind"]))(batch_size=stored["batch_size"], **terms)  # type: ignore[call-arg]
    of_all, solo = None, None
    if "labels" in stored:
        numbers = np.zeros(len(people), dtype=int)
        numbers[asked] = labels
        of_all = tuple(numbers.tolist())
        steps, batch, step_size, penalty, shifts = stored["recipe"].tolist()
        solo = SoloTerms.of_contract(
            contract,
            Recipe(int(steps), int(batch), step_size, penalty, int(shifts)),
            SOLO_MEAN if stored["from_solo"] else COMMON,
            stored["absence"],
        )
    return DrawnPlan(
        federation=FederationSpec(
            job.data, job.trained_model, people.dataset_size, participation, of_all, job.task, job.aggregation
        ),
        training=Training(int(rounds), int(local_steps), step_size, momentum),
        start=SOLO_MEAN if stored["from_solo"] else COMMON,
        clients=clients,
        loss_model=loss_model,
        contract=contract,
        loss_error=float(stored["loss_error"]),
        loss_variance=float(stored["loss_variance"]),
        confidence=job.server.confidence,
        solo=solo,
        cost_of_solo=stored.get("cost_of_solo", np.zeros(len(asked))),
    )


@dataclass(frozen=True)
class BoundRule:
    """LCEME on a bound.

    step        the largest step size at which the bound holds, times L; training uses it
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
OTHER_RULES = (CALIBRATED, "leave-one-out", "shapley share", *(rule.name for rule in BOUND_RULES))
CONSTANTS = tuple(field.name for field in fields(Constants))
PRICING_SEEDS = 8
MOST_ASKED = 10  # clients


@dataclass(frozen=True, eq=False)
class DrawnRules:
    """The rules on one draw of the data, and the training in which they pay; all assign the same batches."""

    plan: DrawnPlan
    training: Training
    clients: Clients
    rules: tuple[Contract, ...]

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
        """This client's number on a draw; if the draw's plan leaves the client out, the number of a client it asks."""
        return client % len(self.draws[draw].clients)

    def name_on(self, draw: int, client: int) -> str:
        """The name of the client with this number on a draw; other draws may leave out others."""
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

    All rules assign the batches of the plan, so the work is the same. The price of a contribution and the constants of
    the bounds are measured on the server's own data. A rule that cannot be made on one of the draws is absent. Rules
    that pay by Shapley values get a separate test, because their runs cost twice as much.
    """
    if plans[0].loss_model is None:
        own = tuple(DrawnRules(plan, plan.training, plan.clients, (plan.contract,)) for plan in plans)
        why = "it pays by the joint loss of a training that starts anew; truthfl verify --contract lceme has it."
        return (RuleTest((plans[0].contract.study_name,), own),), dict.fromkeys(OTHER_RULES, why)
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

    def at_tuned_step(make: Callable[[], Contract]) -> Callable[[], DrawnRules]:
        return lambda: DrawnRules(plan, training, clients, (make(),))

    def on_bound(number: int) -> Callable[[], DrawnRules]:
        return lambda: _lceme_on_bound(plan, BOUND_RULES[number], results[1 + number])

    own, loss_model = plan.contract, plan.loss_model
    assert loss_model is not None
    own = own.renamed(own.study_name)
    makers = {own.name: at_tuned_step(lambda: own)}
    others: dict[str, Callable[[], Contract]] = {
        CALIBRATED: lambda: _calibrated(plan),
        "flat": partial(flat_pay, clients, loss_model, training, batches),
        "per claimed sample": partial(pay_per_claimed_sample, clients, loss_model, training, batches),
        "leave-one-out": lambda: _leave_one_out(plan, results[0]),
        "shapley share": partial(shapley_share_pay, clients, loss_model, training, batches),
    }
    for name, make in others.items():
        makers.setdefault(name, at_tuned_step(make))
    return makers | {BOUND_RULES[number].name: on_bound(number) for number in range(len(results) - 1)}


def _leave_one_out(plan: DrawnPlan, without: Result) -> Contract:
    of_asked = without["loss"][1:].mean(axis=1) - without["loss"][0].mean()
    drop = float(of_asked.mean()) * len(plan.clients)
    if not drop > 0:
        raise InputError(f"on pilot data, leaving clients out one by one changes the loss by {drop:g} in all.")
    batches = plan.contract.batch_size
    cost = float(work_cost(plan.clients, plan.training, Strategies.truthful(batches)).sum())
    return LeaveOneOutPay(batches, cost / drop)


def _calibrated(plan: DrawnPlan) -> Contract:
    """LCEME on the calibrated loss model, with the batches of the job's own contract, or larger ones if necessary."""
    assert plan.loss_model is not None
    floor = np.ceil(labeling_floor(plan.clients, plan.loss_model, plan.training))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, plan.clients.dataset_size))
    made = lceme_with_margin(
        plan.clients, plan.loss_model, plan.training, batches, plan.loss_error, confidence=plan.confidence
    )
    return made.renamed(CALIBRATED)


def _lceme_on_bound(plan: DrawnPlan, rule: BoundRule, constants: Result) -> DrawnRules:
    """LCEME on a bound, with the largest step size at which the bound holds."""
    training = replace(plan.training, step_size=float(constants["step_size"]))
    measured = Constants(**{name: float(constants[name]) for name in CONSTANTS})
    clients = replace(
        plan.clients, gradient_variance=constants["gradient_variance"], heterogeneity=constants["heterogeneity"]
    )
    model = rule.bound(clients, training, measured)
    floor = np.ceil(labeling_floor(clients, model, training, as_printed=rule.as_printed))
    batches = np.maximum(plan.contract.batch_size, np.minimum(floor, clients.dataset_size))
    contract = lceme(clients, model, training, batches, as_printed=rule.as_printed).renamed(rule.name)
    return DrawnRules(plan, training, clients, (contract,))


def _leave_one_out_task(plan: DrawnPlan) -> WorkItem:
    """The work item for the losses on pilot data: with all clients, and without each of the clients asked in turn."""
    asked = asked_clients(plan.clients.weight)
    return WorkItem(
        "studies.verify.training:losses_without",
        {
            "federation": plan.federation.document(),
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
    return WorkItem("studies.verify.training:bound_constants", {"federation": plan.federation.document()} | training)
