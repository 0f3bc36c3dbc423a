"""The two kinds of jobs and their planning.

A `ConstantsJob` states constants of the clients' gradients and can be planned. A `DataJob` has data and a model; it can
be planned, verified and run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from truthfl.contracts.contract import Contract, Evidence, People, PlanInputs, require_sound
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.planning import PilotSide, Plan, make_plan
from truthfl.contracts.setting import Clients, Constants, Training, require_rounds
from truthfl.errors import InputError
from truthfl.job.classes_section import ClassesSection
from truthfl.job.sections import (
    BOUNDS,
    ContractChoice,
    Participants,
    PrivacySettings,
    ServerSettings,
    contract_named,
    cost_range,
    require_sizes,
)
from truthfl.learning.data.federations import (
    Data,
    ModelChoice,
    ServerSide,
    SimulatedFederation,
    build_federation,
    server_side,
)
from truthfl.learning.people.behaviours import behaviour as known_behaviour
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice
from truthfl.learning.training.aggregation import MEAN, ReportRule, is_own


@dataclass(frozen=True)
class ConstantsJob:
    """A job without data: clients, training and the constants of a bound on the loss."""

    clients: Clients
    training: Training
    constants: Constants
    server: ServerSettings
    contract: ContractChoice

    def __post_init__(self) -> None:
        require_rounds(self.training, "[training] rounds")
        _require_screening(self.server, self.contract, self.clients)

    def with_contract(self, named: str) -> ConstantsJob:
        """The same job with another contract: a kind, "FILE.py:Class" or "module:Class"."""
        return replace(self, contract=contract_named(named))

    def loss_model(self) -> LossModel:
        """The bound that the server's settings select, as a loss model."""
        return BOUNDS[self.server.bound](self.clients, self.training, self.constants)

    def plan(self, model: LossModel) -> Contract:
        """The contract, planned on this loss model, without a margin for the model's errors."""
        server = self.server
        inputs = PlanInputs(
            self.clients,
            model,
            self.training,
            server,
            cost_distribution=server.distribution,
        )
        planned = self.contract.load().plan(inputs)
        require_sound(planned, self.clients, model.truthful_loss(planned.batch_size))
        return planned


@dataclass(frozen=True)
class DataJob:
    """A job with data and model.

    tune_step  whether the step size is tuned instead of given
    classes    instructions for participants about the classes
    """

    data: Data
    model: ModelChoice
    training: Training
    server: ServerSettings
    clients: Participants
    contract: ContractChoice
    tune_step: bool
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    task: TaskChoice = PICTURES
    classes: ClassesSection = field(default_factory=ClassesSection)

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.aggregation != MEAN and self.privacy.secure_aggregation:  # in this order: it loads a strategy
            raise InputError(
                f"[privacy] secure_aggregation is true and [server] aggregation is {self.server.aggregation!r}; of "
                "masked reports only the mean can be computed."
            )
        _require_screening(self.server, self.contract, self.clients)
        if not self.training.rounds and Evidence.SOLO_LOSS not in self.contract.load().needs:
            raise InputError(
                f"[training] rounds is 0; it must be at least 1, for under the contract {self.contract.kind!r} nobody "
                "trains alone before."
            )

    @property
    def warnings(self) -> list[str]:
        """What the operator should know as soon as the job is read."""
        return self.server.label_time_warnings(max(self.clients.dataset_size))

    @property
    def aggregation(self) -> str:
        """How reports are combined: as [server] says, or "mean" for a custom strategy that does the same."""
        named = self.server.aggregation
        if not is_own(named):
            return named
        from truthfl.learning.training.own_strategy import is_mean

        try:
            return MEAN if is_mean(named) else named
        except InputError as error:
            raise InputError(f"[server] aggregation: {error}") from None

    @property
    def trained_model(self) -> ModelChoice:
        """The model, with the clipping and the noise of its training."""
        return replace(self.model, clip=self.privacy.clip, noise=self.privacy.noise)

    def simulated_federation(self) -> SimulatedFederation:
        """The clients' federation, the server's pilot federation, and the test set."""
        clients = self.clients
        built = build_federation(
            self.data, self.trained_model, clients.dataset_size, self.training, clients.participation, self.task
        )
        self.classes.require_known(built.test.classes)
        return replace(
            built, pilot=replace(built.pilot, rule=self._rule), federated=replace(built.federated, rule=self._rule)
        )

    def with_clients(self, clients: Participants) -> DataJob:
        """The same job with other clients."""
        return replace(self, clients=clients)

    def with_contract(self, named: str) -> DataJob:
        """The same job with another contract: a kind, "FILE.py:Class" or "module:Class"."""
        return replace(self, contract=contract_named(named))

    def document(self) -> dict[str, Any]:
        """The job as JSON values, without absent sections and without full participation."""
        training, clients = self.training, self.clients
        participation = {"participation": clients.participation.tolist()} if clients.participation.min() < 1.0 else {}
        privacy = self.privacy.document()
        return (
            {"contract": self.contract.document()}
            | ({"privacy": privacy} if privacy else {})
            | ({} if self.task == PICTURES else {"task": self.task.portable()})
            | ({"classes": self.classes.document()} if self.classes else {})
            | {
                "data": asdict(self.data),
                "model": self.model.document(),
                "training": {
                    "rounds": training.rounds,
                    "local_steps": training.local_steps,
                    "step_size": None if self.tune_step else training.step_size,
                    **({"momentum": training.momentum} if training.momentum else {}),
                },
                "server": self.server.document(),
                "clients": {
                    "name": list(clients.name),
                    "dataset_size": list(clients.dataset_size),
                    "labeling_cost": clients.labeling_cost.tolist(),
                    "sample_cost": clients.sample_cost.tolist(),
                    "behaviour": [known_behaviour(behaviour).name for behaviour in clients.behaviour],
                    **participation,
                },
            }
        )

    def server_side(self) -> ServerSide:
        """The server's pilot federation and the test set."""
        clients = self.clients
        side = server_side(
            self.data, self.trained_model, clients.dataset_size, self.training, clients.participation, self.task
        )
        self.classes.require_known(side.test.classes)
        return replace(side, pilot=replace(side.pilot, rule=self._rule))

    @property
    def _rule(self) -> ReportRule:
        return ReportRule(self.aggregation)

    def plan(self, side: ServerSide, design: PilotDesign | None = None) -> Plan:
        """The contract, planned on the server's own data."""
        clients = self.clients
        people = People(
            side.pilot.partition.sizes,
            clients.labeling_cost,
            clients.sample_cost,
            side.pilot.participation,
            clients.name,
            None if clients.stated is None else np.array(clients.stated),
            self.server.distribution,
        )
        return make_plan(self.contract.load(), PilotSide(side, self.tune_step, design), people, self.server)


def _require_screening(server: ServerSettings, contract: ContractChoice, clients: Clients | Participants) -> None:
    """Raise `InputError` if a distribution of costs does not fit the rest of the job."""
    if server.cost_distribution is None:
        return
    if not contract.load().screens:
        raise InputError(
            f'[server] cost_distribution is for [contract] kind = "lceme"; of {contract.kind!r} no menu is known that '
            "makes the true cost the best statement."
        )
    if server.budget is not None:
        raise InputError(
            "[server] cost_distribution and budget are both given; what a menu costs depends on what people state."
        )
    low, high = cost_range(server.cost_distribution)
    for position, cost in enumerate(clients.sample_cost.tolist()):
        if not low <= cost <= high:
            raise InputError(
                f"[clients] sample_cost of {clients.label(position)} is {cost:g}; by [server] cost_distribution costs "
                f"are from {low:g} to {high:g}."
            )


def plan_job(job: ConstantsJob | DataJob, design: PilotDesign | None = None) -> Contract:
    """The job's contract: all clients' batch sizes and terms of pay. For a `DataJob`, this trains the pilot runs."""
    if isinstance(job, ConstantsJob):
        return job.plan(job.loss_model())
    return job.plan(job.server_side(), design).contract
