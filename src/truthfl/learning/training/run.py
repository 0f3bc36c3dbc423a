"""`Run`: the inputs of one training run, made from behaviours or strategies, and one client's training in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import FloatArray, Strategies
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.models.model import Labels, Model, Params
from truthfl.learning.people.behaviour import Behaviour, Unlabeled
from truthfl.learning.people.labels import SeveralLabels, assigned_labels, sets_given, several_of
from truthfl.learning.people.profile import Profile
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.training.local_training import local_model


@dataclass(frozen=True, eq=False)
class SpecialClients:
    """The special clients of one run.

    fabricators  behaviours by client number; in the run's arrays the report_scale of these clients is 0
    predicted    positions of the run's samples that the common model labels before every round
    rescaled     behaviours with another report scale in every round, each with the numbers of its clients
    several      samples with several labels, of any clients; each gets one of them before every round
    """

    fabricators: Mapping[int, Behaviour]
    predicted: NDArray[np.int64]
    rescaled: tuple[tuple[Behaviour, NDArray[np.int64]], ...] = ()
    several: SeveralLabels | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.fabricators or len(self.predicted) or self.rescaled or self.several)


@dataclass(frozen=True, eq=False)
class Run:
    """The inputs of one training run: arrays over clients, and labels over all clients' samples.

    partition        the samples that clients train on; None if they use all that they hold
    special_clients  clients whose behaviour these arrays do not describe; None if there are none
    """

    seed: int
    step_size: float
    batch_size: NDArray[np.int64]
    report_scale: NDArray[np.float64]
    labels: Labels
    partition: Partition | None = None
    special_clients: SpecialClients | None = None


def model_of_client(federated: Federated, run: Run, common: Params, client: int, round_: int) -> Params:
    """w_i: the model that a client of this run trains in a round from the common model, by `local_model`."""
    partition = run.partition or federated.partition
    own = slice(int(partition.starts[client]), int(partition.starts[client + 1]))
    return local_model(
        _with_noise_of(federated.model, int(federated.merged[client])),
        common,
        federated.data.features,
        run.labels[own],
        client=client,
        round_=round_,
        batch_size=int(run.batch_size[client]),
        local_steps=federated.training.local_steps,
        step_size=run.step_size,
        seed=run.seed,
        rows=partition.rows[own],
    )


def _with_noise_of(model: Model, merged: int) -> Model:
    """The model with the noise of this many clients, if it is private."""
    if merged == 1 or not isinstance(model, PrivateModel):
        return model
    return replace(model, noise=model.noise * float(np.sqrt(merged)))


def make_runs(
    federated: Federated,
    strategies: Strategies | Profile | Sequence[Profile],
    seeds: ArrayLike,
    labels: ArrayLike | None,
    step_sizes: ArrayLike | None,
) -> list[Run]:
    """One run per seed; parameters as in `train`."""
    every_seed = np.atleast_1d(np.asarray(seeds))
    count, clients, samples = len(every_seed), len(federated.partition), len(federated.partition.rows)
    profiles = None if isinstance(strategies, Strategies) else _profiles(strategies, count)
    try:
        stacked = strategies if isinstance(strategies, Strategies) else _stacked(strategies)
        effort = np.broadcast_to(stacked.labeling_effort, (count, clients))
        batch = np.broadcast_to(stacked.batch_size, (count, clients))
        scale = np.broadcast_to(stacked.report_scale, (count, clients))
        given_labels = None if labels is None else np.broadcast_to(np.asarray(labels), (count, samples))
        steps = np.broadcast_to(federated.training.step_size if step_sizes is None else step_sizes, (count,))
    except ValueError:
        raise InputError(
            f"strategies, labels or step_sizes do not fit {count} runs of {clients} clients with {samples} samples."
        ) from None
    if (batch != np.floor(batch)).any():
        run, client = np.argwhere(batch != np.floor(batch))[0]
        raise InputError(
            f"batch_size of client {client} in run {run} is {batch[run, client]:g}; training needs a whole number."
        )
    if given_labels is not None:
        run_labels: Iterable[Labels] = given_labels
    elif profiles is not None:
        run_labels = _labels_of_profiles(federated, profiles, every_seed, steps)
    elif (stacked.labeling_effort == 1).all():
        run_labels = [federated.true_labels()] * count
    else:
        run_labels = _labels_of_strategies(federated, effort, every_seed)
    runs = [
        Run(int(seed), float(step), sizes.astype(np.int64), scales, np.ascontiguousarray(own))
        for seed, step, sizes, scales, own in zip(every_seed, steps, batch, scale, run_labels, strict=True)
    ]
    if profiles is not None:
        effort = np.stack([profile.labeling_effort(federated.partition.sizes) for profile in profiles])
    drawn = [
        None if labels is not None else several_of(federated, sets_given(federated, run.labels, own, run.seed))
        for run, own in zip(runs, effort, strict=True)
    ]
    if profiles is None:
        return [_with_several_labels(run, several) for run, several in zip(runs, drawn, strict=True)]
    each = zip(runs, profiles, drawn, strict=True)
    return [_with_special_clients(federated, run, profile, several) for run, profile, several in each]


def _profiles(strategies: Profile | Sequence[Profile], count: int) -> list[Profile]:
    """The profiles as a list with one per run."""
    listed = [strategies] * count if isinstance(strategies, Profile) else list(strategies)
    if not all(isinstance(profile, Profile) for profile in listed):
        raise InputError("strategies must be Strategies, a Profile, or a list with a Profile per run.")
    if len(listed) != count:
        raise InputError(f"strategies is a list of {len(listed)} profiles; there are {count} runs, one per seed.")
    return listed


def _stacked(profiles: Profile | Sequence[Profile]) -> Strategies:
    """The strategies of one profile, (N,), or of a list of profiles, (runs, N)."""
    if isinstance(profiles, Profile):
        return profiles.strategies
    by_run = [profile.strategies for profile in profiles]
    return Strategies(
        np.stack([strategies.labeling_effort for strategies in by_run]),
        np.stack([strategies.batch_size for strategies in by_run]),
        np.stack([strategies.report_scale for strategies in by_run]),
    )


def _labels_of_strategies(federated: Federated, effort: FloatArray, seeds: NDArray[Any]) -> list[Labels]:
    """The labels of each run: the true ones if all clients label all samples, else simulated by the run's seed."""
    true, classes = federated.true_labels(), len(federated.data.classes)
    return [
        true
        if (own == 1).all()
        else assigned_labels(
            federated.data.labels, federated.partition, labeling_effort=own, classes=classes, seed=int(seed)
        )
        for own, seed in zip(effort, seeds, strict=True)
    ]


def _labels_of_profiles(
    federated: Federated, profiles: list[Profile], seeds: NDArray[Any], step_sizes: NDArray[Any]
) -> list[Labels]:
    true = federated.true_labels()
    return [
        true if profile.labels_are_true else profile.labels(federated, int(seed), step_size=float(step))
        for profile, seed, step in zip(profiles, seeds, step_sizes, strict=True)
    ]


def _with_several_labels(run: Run, several: SeveralLabels | None) -> Run:
    """The run with samples that get one of their labels before every round."""
    if several is None:
        return run
    special = SpecialClients({}, np.empty(0, dtype=np.int64), (), several)
    return replace(run, labels=run.labels.copy(), special_clients=special)


def _with_special_clients(federated: Federated, run: Run, profile: Profile, several: SeveralLabels | None) -> Run:
    """The run without the samples that clients leave out, and with its special clients."""
    left_out = profile.not_by_hand(federated.partition, Unlabeled.LEFT_OUT, run.seed)
    predicted = profile.not_by_hand(federated.partition, Unlabeled.PREDICTED, run.seed)
    if left_out is None and predicted is None and not profile.fabricators and not profile.changing_scales:
        return _with_several_labels(run, several)
    partition, labels = None, run.labels
    if left_out is not None:
        partition, labels = _without_samples(federated.partition, left_out), labels[~left_out]
        predicted = None if predicted is None else predicted[~left_out]
        several = None if several is None else several.without(left_out)
    scale = run.report_scale.copy()
    scale[list(profile.fabricators)] = 0.0
    samples = np.empty(0, dtype=np.int64) if predicted is None else np.flatnonzero(predicted)
    special = SpecialClients(profile.fabricators, samples, profile.changing_scales, several)
    return replace(
        run,
        report_scale=scale,
        labels=labels.copy() if len(samples) or several is not None else labels,
        partition=partition,
        special_clients=None if special.is_empty else special,
    )


def _without_samples(partition: Partition, left_out: NDArray[np.bool_]) -> Partition:
    """The partition without the samples marked by `left_out`."""
    kept = ~left_out
    sizes = np.add.reduceat(kept, partition.starts[:-1], dtype=np.int64)
    return Partition(partition.rows[kept], np.concatenate(([0], np.cumsum(sizes))))
