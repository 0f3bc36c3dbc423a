"""Plans of one job on several draws of the data: the job's own draw, and others as they might have been."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.adversary.lied_solo import SoloTerms
from truthfl.errors import InputError
from truthfl.job import DataJob
from truthfl.learning.audition_details import AuditionDetails
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.planning import Plan
from truthfl.learning.recipe import Recipe
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence
from truthfl.mechanism.setting import Clients, Training
from truthfl.studies.cells import FederationSpec
from truthfl.studies.work import Progress, Result, Store, WorkItem

SEED_STEP = 1000  # between the data seeds of two draws
LOSS_MODEL = tuple(field.name for field in fields(LossModel))


@dataclass(frozen=True, eq=False)
class DrawnPlan:
    """The plan on one draw of the data; `federation.data.seed` is that of the draw.

    solo           what the contract says of solo models; None for contracts that do not pay by them
    cost_of_solo   (N,) cost of training alone
    """

    federation: FederationSpec
    training: Training
    clients: Clients
    loss_model: LossModel
    contract: Mechanism
    loss_error: float
    loss_variance: float
    confidence: float
    solo: SoloTerms | None
    cost_of_solo: FloatArray

    def audition_cost(self, rule: Mechanism) -> FloatArray | float:
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
    """`count` plans, the job's own first, and why other draws have none; `InputError` if its own draw has none.

    Draws on which nothing can be planned are replaced by further ones, up to `count` of them.
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
    item = WorkItem("studies.verify.drawn_plans:plan", settings)
    stored = store.get(item)
    if stored is None:
        stored = arrays_of(job.plan(job.server_side(), design))
        store.put(item, stored)
    return plan_of(job, stored)


def arrays_of(plan: Plan) -> Result:
    """What a study needs of a plan, as named arrays."""
    model = {f"model_{name}": np.asarray(getattr(plan.calibration.model, name)) for name in LOSS_MODEL}
    terms = {f"term_{name}": values for name, values in plan.contract.terms().items()}
    return (
        model
        | terms
        | {
            "step_size": np.array(plan.training.step_size),
            "weight": plan.clients.weight,
            "gradient_variance": plan.clients.gradient_variance,
            "batch_size": np.asarray(plan.contract.batch_size, dtype=float),
            "loss_error": np.array(plan.loss_error),
            "loss_variance": np.array(plan.loss_variance),
        }
        | _audition_arrays(plan.audition)
    )


def _audition_arrays(audition: AuditionDetails | None) -> dict[str, NDArray[Any]]:
    """What a study needs of an audition's plan."""
    if audition is None:
        return {}
    return {
        "asked": audition.asked,
        "labels": audition.labels,
        "cost_of_solo": audition.measurement.audition_cost,
        "recipe": np.array([float(value) for value in vars(audition.recipe).values()]),
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
    model: dict[str, Any] = {name: stored[f"model_{name}"] for name in LOSS_MODEL}
    model |= {name: float(value) for name, value in model.items() if value.ndim == 0}
    terms = {name[len("term_") :]: values for name, values in stored.items() if name.startswith("term_")}
    participation = tuple(people.participation.tolist())
    contract = job.contract.mechanism(batch_size=stored["batch_size"], **terms)  # type: ignore[call-arg]
    of_all, solo = None, None
    if "labels" in stored:
        numbers = np.zeros(len(people), dtype=int)
        numbers[asked] = labels
        of_all = tuple(numbers.tolist())
        steps, batch, step_size, penalty, shifts = stored["recipe"].tolist()
        solo = SoloTerms.of_contract(contract, Recipe(int(steps), int(batch), step_size, penalty, int(shifts)))
    return DrawnPlan(
        federation=FederationSpec(
            job.data, job.trained_model, people.dataset_size, participation, of_all, job.task, job.aggregation
        ),
        training=replace(job.training, step_size=float(stored["step_size"])),
        clients=clients,
        loss_model=LossModel(**model),
        contract=contract,
        loss_error=float(stored["loss_error"]),
        loss_variance=float(stored["loss_variance"]),
        confidence=job.server.confidence,
        solo=solo,
        cost_of_solo=stored.get("cost_of_solo", np.zeros(len(asked))),
    )
