"""A job as its operator writes it down: one TOML file. Looks at the mechanism, whose objects it fills, and at disk.

Its sections `[training]`, `[constants]`, `[server]` and `[clients]` have the fields of the classes of those names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.mechanism.assignment import optimal_batch_sizes
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.checks import FloatArray, IntArray, number, whole_number
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.setting import Clients, Constants, Training

BOUNDS = {"paper": paper_bound, "sound": sound_bound}


@dataclass(frozen=True)
class Server:
    """What the operator decides.

    loss_value     κ, money that one unit of loss is worth to her
    bound          which loss model to plan on: "paper" or "sound"
    budget         the most that honest work may cost in all; no limit unless given
    margin         money added to everybody's base pay
    test_samples   how many test samples the final loss is averaged over
    loss_variance  variance of the loss from one test sample to another
    """

    loss_value: float = 1.0
    bound: str = "paper"
    budget: float | None = None
    margin: float = 0.0
    test_samples: int = 1
    loss_variance: float = 0.0

    def __post_init__(self) -> None:
        number("loss_value", self.loss_value, positive=True)
        if self.budget is not None:
            number("budget", self.budget, positive=True)
        number("margin", self.margin)
        whole_number("test_samples", self.test_samples, at_least=1)
        number("loss_variance", self.loss_variance, at_least=0.0)
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise InputError(f"bound is {self.bound!r}; it must be one of {', '.join(map(repr, BOUNDS))}.")


@dataclass(frozen=True)
class Job:
    """Everything that is needed to plan."""

    clients: Clients
    training: Training
    constants: Constants
    server: Server

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


def read_job(path: Path | None = None) -> Job:
    """The job in this file; the built-in example of ten clients when there is none."""
    if path is None:
        source, text = "the example job", resources.files("truthfl").joinpath("examples/ten_clients.toml").read_text()
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


def _job(tables: Mapping[str, Any]) -> Job:
    sections: dict[str, type[Any]] = {
        "clients": Clients,
        "training": Training,
        "constants": Constants,
        "server": Server,
    }
    unknown = sorted(set(tables) - set(sections))
    if unknown:
        raise InputError(f"[{unknown[0]}] is no section of a job; the sections are {', '.join(sections)}.")
    parts = {name: _section(name, made_by, tables.get(name, {})) for name, made_by in sections.items()}
    return Job(**parts)


def _section(section: str, made_by: type[Any], values: object) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{section} is {values!r}; it must be a section, [{section}].")
    known = [field.name for field in fields(made_by)]
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
