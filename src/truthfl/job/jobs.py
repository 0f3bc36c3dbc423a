"""The two kinds of jobs, and what each plans. Imports `settings`, `participants`, `learning` and the mechanism.

A job on constants states what the clients' gradients are like: it can be planned. A job on data can be planned,
verified and run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from truthfl.job.participants import Participants
from truthfl.job.settings import BOUNDS, DEFAULT_CONTRACT, ContractChoice, ServerSettings
from truthfl.learning.behaviours import behaviour as known_behaviour
from truthfl.learning.federations import Data, ModelChoice, ServerSide, SimulatedFederation, build, server_side
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.planning import Plan, make_plan
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism, PlanInputs, require_sound
from truthfl.mechanism.setting import Clients, Constants, Training


@dataclass(frozen=True)
class ConstantsJob:
    """A job on paper: everything that is needed to plan."""

    clients: Clients
    training: Training
    constants: Constants
    server: ServerSettings
    contract: ContractChoice

    def loss_model(self) -> LossModel:
        """The loss model that the server plans on."""
        return BOUNDS[self.server.bound](self.clients, self.training, self.constants)

    def plan(self, model: LossModel) -> Mechanism:
        """The mechanism's plan on this loss model, which is taken to be exact."""
        server = self.server
        inputs = PlanInputs(
            self.clients, model, self.training, server.loss_value, budget=server.budget, margin=server.margin
        )
        planned = self.contract.mechanism.plan(inputs)
        require_sound(planned, self.clients, model.truthful_loss(planned.batch_size))
        return planned


@dataclass(frozen=True)
class DataJob:
    """Everything that is needed to run: data, model, rounds, who takes part. A step size that is not given is tuned."""

    data: Data
    model: ModelChoice
    training: Training
    server: ServerSettings
    clients: Participants
    contract: ContractChoice
    tune_step: bool

    def scene(self) -> SimulatedFederation:
        """Its federation, the server's own, and the test set."""
        clients = self.clients
        return build(self.data, self.model, clients.dataset_size, self.training, clients.participation)

    def with_clients(self, clients: Participants) -> DataJob:
        """The same job with others taking part."""
        return replace(self, clients=clients)

    def document(self) -> dict[str, Any]:
        """The job as plain values; the default contract and full participation are left out, as in version 0.1."""
        training, clients = self.training, self.clients
        chosen = {} if self.contract.kind == DEFAULT_CONTRACT else {"contract": asdict(self.contract)}
        absent = {"participation": clients.participation.tolist()} if clients.participation.min() < 1.0 else {}
        return chosen | {
            "data": asdict(self.data),
            "model": asdict(self.model),
            "training": {
                "rounds": training.rounds,
                "local_steps": training.local_steps,
                "step_size": None if self.tune_step else training.step_size,
            },
            "server": asdict(self.server),
            "clients": {
                "name": list(clients.name),
                "dataset_size": list(clients.dataset_size),
                "labeling_cost": clients.labeling_cost.tolist(),
                "sample_cost": clients.sample_cost.tolist(),
                "behaviour": [known_behaviour(one).name for one in clients.behaviour],
                **absent,
            },
        }

    def server_side(self) -> ServerSide:
        """The server's own part of it."""
        clients = self.clients
        return server_side(self.data, self.model, clients.dataset_size, self.training, clients.participation)

    def plan(self, side: ServerSide, design: PilotDesign | None = None) -> Plan:
        """The calibrated contract, from the server's own data."""
        return make_plan(
            side,
            mechanism=self.contract.mechanism,
            name=self.clients.name,
            sample_cost=self.clients.sample_cost,
            labeling_cost=self.clients.labeling_cost,
            loss_value=self.server.loss_value,
            budget=self.server.budget,
            margin=self.server.margin,
            confidence=self.server.confidence,
            test_samples=self.server.test_samples,
            tune_step=self.tune_step,
            design=design,
        )


def plan_job(job: ConstantsJob | DataJob, design: PilotDesign | None = None) -> Mechanism:
    """What this job would ask of each client and pay her, by its contract; nothing runs but the pilot."""
    if isinstance(job, ConstantsJob):
        return job.plan(job.loss_model())
    return job.plan(job.server_side(), design).contract
