"""Training of solo models: each by one client, alone, on her own samples, by a recipe.

`train_alone` is what a participant does; `train_all_alone` trains many with the same draws, at full speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.behaviour import SoloRecipe
from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.compiled import kernel, supports
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.learning.elsewhere import usual_threads
from truthfl.learning.engines import Run, make_engine
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.local_training import local_model
from truthfl.learning.model import Features, Labels, Model, Params
from truthfl.learning.own_steps import OwnSteps
from truthfl.learning.partition import Partition
from truthfl.learning.private_draws import DrawKey, subkey
from truthfl.learning.private_model import PrivateModel
from truthfl.learning.recipe import Recipe
from truthfl.mechanism.setting import Training

PICTURE_DIMENSIONS = 4  # (samples, height, width, channels)
SHIFTS = ((0, 1), (0, -1), (1, 0), (-1, 0))  # rows down, columns right


def train_alone(
    model: Model, features: Features, labels: Labels, recipe: Recipe, seed: int, private_key: DrawKey | None = None
) -> Params:
    """The solo model of one client with these samples. `seed` is the job's.

    private_key  of the draws of a `PrivateModel`; None, in simulations, lets it follow from the seed
    """
    if not len(labels):
        return model.init(seed)
    solo, own = solo_model(model, recipe), _augmented(features, recipe.shifts)
    repeated, params = np.tile(labels, 1 + recipe.shifts), solo.init(seed)
    if not isinstance(solo, PrivateModel):
        return _in_numpy(solo, params, own, repeated, recipe, audition_seed(seed))
    for step in range(recipe.steps):
        params = local_model(
            solo,
            params,
            own,
            repeated,
            client=0,
            round_=step,
            batch_size=recipe.batch_size,
            local_steps=1,
            step_size=recipe.step_size,
            seed=audition_seed(seed),
            private_key=None if private_key is None else subkey(private_key, step),
        )
    return params


def train_all_alone(
    model: Model,
    samples: Sequence[tuple[Features, Labels]],
    recipe: Recipe,
    seed: int,
    *,
    classes: Sequence[str],
    threads: int | None = None,
) -> NDArray[np.float32]:
    """The solo models of many clients, (clients, parameters), as `train_alone` makes them but for rounding."""
    solo = solo_model(model, recipe)
    training = Training(recipe.steps, 1, recipe.step_size)
    start = solo.init(seed)

    def train_one(own: tuple[Features, Labels]) -> Params:
        features, labels = own
        if not len(labels):
            return start
        repeated, all_labels = _augmented(features, recipe.shifts), np.tile(labels, 1 + recipe.shifts)
        if not isinstance(solo, PrivateModel) and (kernel() is None or not supports(solo, repeated)):
            return _in_numpy(solo, start, repeated, all_labels, recipe, audition_seed(seed))
        data = LabeledSamples(repeated, all_labels, classes)
        federated = Federated(solo, data, Partition(np.arange(len(data)), np.array([0, len(data)])), training)
        engine = make_engine(federated)
        batch = np.array([recipe.batch_size], dtype=np.int64)
        run = Run(audition_seed(seed), recipe.step_size, batch, np.ones(1), data.labels)
        inner = engine.pack(start)
        engine.rounds(run, inner, 0, recipe.steps)
        return engine.unpack(inner)

    workers = usual_threads() if threads is None else threads
    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread():
        if workers == 1:
            trained = [train_one(own) for own in samples]
        else:
            with ThreadPoolExecutor(workers) as pool:
                trained = list(pool.map(train_one, samples))
    return np.stack(trained)


def _in_numpy(
    solo: Model, start: Params, features: Features, labels: Labels, recipe: Recipe, draws_seed: int
) -> Params:
    """The solo model by the model's own functions, as `NumPyEngine` trains it; draws are shared among clients."""
    params, weight = start.copy(), np.full(recipe.batch_size, 1.0 / recipe.batch_size, dtype=np.float32)
    for batch in _batches(draws_seed, recipe.steps, recipe.batch_size, len(labels)):
        if isinstance(solo, OwnSteps):
            params = solo.local_steps(params, features, labels, [batch], recipe.step_size)
        else:
            gradient = solo.weighted_gradient(params, features[batch], labels[batch], weight)
            params -= np.float32(recipe.step_size) * gradient
    return params


@lru_cache(maxsize=64)
def _batches(seed: int, steps: int, batch_size: int, samples: int) -> NDArray[np.int64]:
    """The samples that a client draws in each step, (steps, batch); all with so many samples draw the same."""
    return below(bits(key(seed, Purpose.BATCH, 0, np.arange(steps), 0), batch_size), samples)


def solo_model(model: Model, recipe: Recipe) -> Model:
    """The model with the recipe's penalty."""
    if hasattr(model, "with_penalty"):
        changed: Model = model.with_penalty(recipe.penalty)
        return changed
    if is_dataclass(model) and not isinstance(model, type) and hasattr(model, "penalty"):
        return replace(model, penalty=recipe.penalty)
    if getattr(model, "penalty", 0.0) != recipe.penalty:
        raise InputError("this model's penalty cannot be changed; the recipe must have the model's own.")
    return model


def can_change_penalty(model: Model) -> bool:
    """Whether `solo_model` can give the model another penalty."""
    return hasattr(model, "with_penalty") or (is_dataclass(model) and hasattr(model, "penalty"))


def possible_recipes(model: Model, features: Features) -> tuple[SoloRecipe, ...]:
    """The changes of a recipe that make a difference to this model and these samples."""
    without = set() if features.ndim == PICTURE_DIMENSIONS else {SoloRecipe.SHIFTED}
    without |= set() if can_change_penalty(model) else {SoloRecipe.PENALIZED}
    return tuple(recipe for recipe in SoloRecipe if recipe not in without)


def audition_seed(seed: int) -> int:
    """The seed of the draws of solo training, from the job's."""
    return int(key(seed, Purpose.AUDITION))


def _augmented(features: Features, shifts: int) -> Features:
    """The pictures, followed by copies shifted by one pixel; what leaves a picture is lost, what enters is dark.

    Other samples are repeated as they are.
    """
    if features.ndim != PICTURE_DIMENSIONS:
        return np.tile(features, (1 + shifts, *[1] * (features.ndim - 1)))
    copies = [features]
    for down, right in SHIFTS[:shifts]:
        moved = np.zeros_like(features)
        rows, columns = features.shape[1] - abs(down), features.shape[2] - abs(right)
        moved[:, max(down, 0) :, max(right, 0) :][:, :rows, :columns] = features[:, max(-down, 0) :, max(-right, 0) :][
            :, :rows, :columns
        ]
        copies.append(moved)
    return np.concatenate(copies)
