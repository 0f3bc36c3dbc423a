"""A job as its operator writes it down: one TOML file. Looks at the mechanism and at learning, whose objects it fills.

There are two kinds. A job on paper has `[constants]` and says what the clients' gradients are like: it can be planned.
A job on data has `[data]` and `[model]`: it can be planned, verified and run. Sections have the fields of the classes
here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.learning.behaviours import behaviour as known_behaviour
from truthfl.learning.federations import Data, ModelChoice, ServerSide, SimulatedFederation, build, server_side
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.planning import Plan, make_plan
from truthfl.mechanism.assignment import optimal_batch_sizes
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import (
    FloatArray,
    IntArray,
    client_array,
    client_whole_numbers,
    names,
    number,
    whole_number,
)
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.setting import Clients, Constants, Training

BOUNDS = {"paper": paper_bound, "sound": sound_bound}


@dataclass(frozen=True)
class ServerSettings:
    """What the operator decides.

    loss_value     κ, money that one unit of loss is worth to her
    bound          of a job on paper: which loss model to plan on, "paper" or "sound"
    budget         the most that honest work may cost in all; no limit unless given
    margin         money added to everybody's base pay
    confidence     of a job on data: that the margin keeps honest work from being paid below cost
    test_samples   how many test samples the final loss is averaged over
    loss_variance  of a job on paper: variance of the loss from one test sample to another
    currency       what the money is called
    minor_units    how many whole units of the ledger make one unit of the job's money
    enrol_seconds, answer_seconds, label_seconds, round_seconds
                   how long the server waits for clients to appear, to answer an offer, to label, to report
    """

    loss_value: float = 1.0
    bound: str = "paper"
    budget: float | None = None
    margin: float = 0.0
    confidence: float = 0.95
    test_samples: int = 1
    loss_variance: float = 0.0
    currency: str = "cent"
    minor_units: int = 1
    enrol_seconds: float = 600.0
    answer_seconds: float = 86_400.0
    label_seconds: float = 604_800.0
    round_seconds: float = 600.0

    def __post_init__(self) -> None:
        number("loss_value", self.loss_value, positive=True)
        if self.budget is not None:
            number("budget", self.budget, positive=True)
        number("margin", self.margin)
        whole_number("test_samples", self.test_samples, at_least=1)
        number("loss_variance", self.loss_variance, at_least=0.0)
        whole_number("minor_units", self.minor_units, at_least=1)
        for field in ("enrol_seconds", "answer_seconds", "label_seconds", "round_seconds"):
            number(field, getattr(self, field), positive=True)
        if not isinstance(self.currency, str) or not self.currency:
            raise InputError(f"currency is {self.currency!r}; it must be a word.")
        if not 0.5 <= number("confidence", self.confidence) < 1.0:
            raise InputError(f"confidence is {self.confidence:g}; it must be a number from 0.5 up to, but not, 1.")
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise InputError(f"bound is {self.bound!r}; it must be one of {', '.join(map(repr, BOUNDS))}.")


@dataclass(frozen=True)
class ConstantsJob:
    """A job on paper: everything that is needed to plan."""

    clients: Clients
    training: Training
    constants: Constants
    server: ServerSettings

    def loss_model(self) -> LossModel:
        """The loss model that the server plans on."""
        return BOUNDS[self.server.bound](self.clients, self.training, self.constants)

    def assignment(self, model: LossModel) -> IntArray | FloatArray:
        """The batch sizes that serve the server best on this loss model, within its budget."""
        server = self.server
        return optimal_batch_sizes(
            self.clients,
            model,
            self.training,
            loss_value=server.loss_value,
            budget=server.budget,
            margin=server.margin,
        )


@dataclass(frozen=True, init=False, eq=False)
class Participants:
    """Who takes part in a job on data; a single value stands for everybody, and at least one field is a list.

    dataset_size   how many samples she holds
    labeling_cost  her cost of labeling them once
    sample_cost    her cost of one sample in one round's gradient
    participation  q, the chance that she is there in a round
    behaviour      what she really does, in a job that is simulated: a name of `truthfl.learning.behaviours`
    name           what tables and messages call her
    """

    dataset_size: tuple[int, ...]
    labeling_cost: FloatArray
    sample_cost: FloatArray
    behaviour: tuple[str, ...]
    name: tuple[str, ...]
    participation: FloatArray

    def __init__(
        self,
        dataset_size: Any,
        labeling_cost: Any,
        sample_cost: Any,
        behaviour: Any = "truthful",
        name: Any = None,
        participation: Any = 1.0,
    ) -> None:
        lists = filter(_many, (name, dataset_size, labeling_cost, sample_cost, behaviour, participation))
        count = next(map(len, lists), 0)
        if count == 0:
            raise InputError("no field is a list; give a list of names, or of dataset_size, one per client.")
        known = names(name, count) or tuple(f"client {i}" for i in range(count))
        sizes = client_whole_numbers("dataset_size", dataset_size, count, known.__getitem__, at_least=1)
        object.__setattr__(self, "dataset_size", tuple(sizes.tolist()))
        for field, value in (("labeling_cost", labeling_cost), ("sample_cost", sample_cost)):
            object.__setattr__(self, field, client_array(field, value, count, known.__getitem__, positive=True))
        q = client_array("participation", participation, count, known.__getitem__, positive=True, at_most=1.0)
        object.__setattr__(self, "participation", q)
        played = tuple(behaviour) if _many(behaviour) else (behaviour,) * count
        if len(played) != count:
            raise InputError(f"behaviour has {len(played)} entries; it must have {count}, one per client.")
        for one in played:
            known_behaviour(one)
        object.__setattr__(self, "behaviour", played)
        object.__setattr__(self, "name", known)

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class DataJob:
    """Everything that is needed to run: data, model, rounds, who takes part. A step size that is not given is tuned."""

    data: Data
    model: ModelChoice
    training: Training
    server: ServerSettings
    clients: Participants
    tune_step: bool

    def scene(self) -> SimulatedFederation:
        """Its federation, the server's own, and the test set."""
        return build(self.data, self.model, self.clients.dataset_size, self.training, self.clients.participation)

    def with_clients(self, clients: Participants) -> DataJob:
        """The same job with others taking part."""
        return replace(self, clients=clients)

    def document(self) -> dict[str, Any]:
        """The job as plain values; participation where somebody is not always there."""
        training, clients = self.training, self.clients
        absent = {"participation": clients.participation.tolist()} if clients.participation.min() < 1.0 else {}
        return {
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
                "behaviour": list(clients.behaviour),
                **absent,
            },
        }

    def server_side(self) -> ServerSide:
        """The server's own part of it."""
        held, there = self.clients.dataset_size, self.clients.participation
        return server_side(self.data, self.model, held, self.training, there)

    def plan(self, side: ServerSide, design: PilotDesign | None = None) -> Plan:
        """The calibrated contract, from the server's own data."""
        return make_plan(
            side,
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


def read_job(path: Path | None = None) -> ConstantsJob | DataJob:
    """The job in this file; the built-in one, ten clients with real digits, when there is none."""
    if path is None:
        source, text = "the built-in job", resources.files("truthfl").joinpath("examples/mnist.toml").read_text()
    else:
        source, text = str(path), _read(path)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not valid TOML: {str(error).rstrip('.')}.") from None
    try:
        return _job(tables)
    except InputError as error:
        if path is None:
            raise
        raise type(error)(f"{source}: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read: it is not UTF-8 text.") from None


def _job(tables: Mapping[str, Any]) -> ConstantsJob | DataJob:
    on_paper = {"clients": Clients, "training": Training, "constants": Constants, "server": ServerSettings}
    on_data = {
        "clients": Participants,
        "training": Training,
        "data": Data,
        "model": ModelChoice,
        "server": ServerSettings,
    }
    known = list(dict.fromkeys([*on_paper, *on_data]))
    unknown = [name for name in tables if name not in known]
    if unknown:
        raise InputError(f"[{unknown[0]}] is no section of a job; the sections are {', '.join(known)}.")
    sections = on_data if "data" in tables or "model" in tables else on_paper
    misplaced = [name for name in tables if name not in sections]
    if misplaced:
        raise InputError(f"[{misplaced[0]}] does not belong to a job with [data]; it is measured from the data.")
    parts = {name: _section(name, made_by, tables.get(name, {})) for name, made_by in sections.items()}
    if sections is on_paper:
        return ConstantsJob(**parts)
    return DataJob(**parts, tune_step="step_size" not in tables.get("training", {}))


def _section(section: str, made_by: Callable[..., Any], values: object) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{section} is {values!r}; it must be a section, [{section}].")
    known = list(signature(made_by).parameters)
    for name in values:
        if name not in known:
            raise InputError(f"[{section}] has no field {name!r}; its fields are {', '.join(known)}.")
    needed = [name for name, p in signature(made_by).parameters.items() if p.default is p.empty]
    missing = [name for name in needed if name not in values]
    if missing:
        raise InputError(f"[{section}] lacks {', '.join(missing)}.")
    try:
        return made_by(**values)
    except InputError as error:
        raise type(error)(f"[{section}] {error}") from None


def _many(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
