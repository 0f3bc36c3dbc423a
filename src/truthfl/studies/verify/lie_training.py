"""Functions of work items: trains lies on splits, trains without each client, measures the constants of bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from truthfl.adversary.lie_point import LiePoint
from truthfl.adversary.lie_runs import Case, train_lies, train_pairs
from truthfl.adversary.lied_solo import SoloTerms
from truthfl.adversary.split import Split, make_split
from truthfl.learning.aggregation import ReportRule, aggregation_of
from truthfl.learning.asked_samples import ask_for_labels
from truthfl.learning.constants import measure_constants
from truthfl.learning.federations import Data, ModelChoice, clients_federation, with_rule, with_training
from truthfl.learning.task_choice import TaskChoice
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training
from truthfl.mechanism.strategies import Strategies
from truthfl.studies.cells import federation_of
from truthfl.studies.work import Result


def lied_losses(
    *,
    points: Sequence[Mapping[str, Any]],
    cases: Sequence[Sequence[int]],
    coalitions: bool = False,
    solo: dict[str, Any] | None = None,
    **place: Any,
) -> Result:
    """The fields of `LieLosses` for these points and cases (client, seed); for `place` see `_split_and_batches`.

    solo  the document of `SoloTerms`, if a rule pays by solo models
    """
    split, batches = _split_and_batches(**place)
    losses = train_lies(
        split,
        batches,
        [LiePoint.of_document(point) for point in points],
        [Case(client, seed) for client, seed in cases],
        coalitions=coalitions,
        solo_terms=None if solo is None else SoloTerms.of_document(solo),
    )
    return vars(losses)


def pair_losses(
    *,
    pairs: Sequence[Sequence[int]],
    seeds: Sequence[int],
    coalitions: bool = False,
    solo: dict[str, Any] | None = None,
    **place: Any,
) -> Result:
    """The fields of `PairLosses`; for `place` see `_split_and_batches`, for `solo` `lied_losses`."""
    split, batches = _split_and_batches(**place)
    chosen = [(labeler, partner) for labeler, partner in pairs]
    terms = None if solo is None else SoloTerms.of_document(solo)
    return vars(train_pairs(split, batches, chosen, list(seeds), coalitions=coalitions, solo_terms=terms))


def _split_and_batches(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    labels: Sequence[int] | None = None,
    task: Mapping[str, Any] | None = None,
    aggregation: Mapping[str, str] | None = None,
    split: int,
    rounds: int,
    local_steps: int,
    step_size: float,
    batch_size: Sequence[float],
) -> tuple[Split, FloatArray]:
    """The split with this seed and training, and the assigned batches."""
    chances = (1.0,) * len(sizes) if participation is None else tuple(participation)
    asked = None if labels is None else tuple(labels)
    choice, rule = TaskChoice.of_document(task), ReportRule(aggregation_of(aggregation))
    here = _cached_split(Data(**data), ModelChoice(**model), tuple(sizes), chances, asked, choice, rule, split)
    training = Training(rounds, local_steps, step_size)
    return replace(here, federated=with_training(here.federated, training)), np.asarray(batch_size, dtype=float)


@lru_cache(maxsize=8)
def _cached_split(
    data: Data,
    model: ModelChoice,
    sizes: tuple[int, ...],
    participation: tuple[float, ...],
    labels: tuple[int, ...] | None,
    task: TaskChoice,
    rule: ReportRule,
    split: int,
) -> Split:
    """The split with this seed, under the pilot and test data of `data.seed`."""
    one_round = Training(1)
    federated, test = clients_federation(data, model, sizes, one_round, participation, task, split_seed=split)
    federated = with_rule(federated, rule)
    if labels is not None:
        federated = ask_for_labels(federated, labels, split)
    return make_split(federated, test, one_round, split)


def losses_without(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    labels: Sequence[int] | None = None,
    task: Mapping[str, Any] | None = None,
    aggregation: Mapping[str, str] | None = None,
    rounds: int,
    local_steps: int,
    step_size: float,
    batch_size: Sequence[float],
    without: Sequence[int],
    seeds: Sequence[int],
) -> Result:
    """Test losses on the server's pilot data: with all clients, then without each of `without` in turn.

    The array is (1 + clients left out, seeds).
    """
    federation = federation_of(data, model, sizes, participation, labels, task, aggregation)
    federated = with_training(federation.pilot, Training(rounds, local_steps, step_size))
    count = len(federated.partition)
    left_out = np.eye(count)[list(without)]
    present = np.repeat(np.concatenate((np.ones((1, count)), 1.0 - left_out)), len(seeds), axis=0)
    strategies = Strategies(1.0, np.broadcast_to(np.asarray(batch_size, dtype=float), present.shape), present)
    draws = np.tile(np.asarray(seeds), 1 + len(without))
    trained = train(federated, strategies, draws, evaluate_on={"test": federation.test}, threads=1)
    return {"loss": trained.evaluations["test"].loss[:, -1].reshape(-1, len(seeds))}


def bound_constants(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    sizes: Sequence[int],
    participation: Sequence[float] | None = None,
    labels: Sequence[int] | None = None,
    task: Mapping[str, Any] | None = None,
    aggregation: Mapping[str, str] | None = None,
    rounds: int,
    local_steps: int,
    share_of_limit: float,
) -> Result:
    """The constants of the bounds on the server's pilot data, at the step size `share_of_limit`/L."""
    pilot = federation_of(data, model, sizes, participation, labels, task, aggregation).pilot
    first = measure_constants(with_training(pilot, Training(rounds, local_steps, 1e-3)))
    step_size = share_of_limit / float(first.smoothness.value)
    measured = measure_constants(with_training(pilot, Training(rounds, local_steps, step_size)))
    return {"step_size": np.array(step_size)} | {
        name: np.asarray(measurement.value) for name, measurement in vars(measured).items()
    }
