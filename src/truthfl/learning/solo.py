"""Solo models: each is trained by one client alone by a `Recipe`, and tested by how well it separates the classes.

`train_alone` is a participant's training; `train_all_alone` trains many with the same draws, at full speed.

One factor of all scores and one bias per class are fitted on one half of the test samples, and the loss is measured on
the other half; then the halves are swapped. So over-confidence, a scaled report and a client's own class frequencies do
not count. The result is the geometric mean of the classes' mean losses. So a class of which a client happens to have
few samples does not dominate. The risk is about that of the mean loss (`benchmarks/solo_statistics.py`).
docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import Training, number, whole_number
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Features, Labels, Model, Params
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import Behaviour, SoloRecipe, Unlabeled
from truthfl.learning.privacy import DrawKey, PrivateModel, subkey
from truthfl.learning.training.compute import (
    Elsewhere,
    elsewhere,
    kernel,
    one_blas_thread,
    supports,
    training_threads,
    usual_threads,
)
from truthfl.learning.training.draws import Purpose, bits, key
from truthfl.learning.training.local_training import after_steps, drawn_batches, local_model, samples_by_hand
from truthfl.learning.training.rounds import make_engine
from truthfl.learning.training.run import Run

MOST_STEPS, MOST_SHIFTS = 10_000, 4
LONGER_STEPS = 4  # of `SoloRecipe.LONGER`, as a multiple of the prescribed ones


@dataclass(frozen=True)
class Recipe:
    """The prescribed training of a solo model, from the public start.

    steps       number of gradient steps
    batch_size  samples in each, drawn with replacement
    step_size   of a gradient step
    penalty     factor of the L2 penalty, instead of the job's own
    shifts      how many copies of each picture, shifted by one pixel (right, left, down, up), are added; 0 to 4
    """

    steps: int
    batch_size: int
    step_size: float
    penalty: float
    shifts: int

    def __post_init__(self) -> None:
        whole_number("steps", self.steps, at_least=1)
        whole_number("batch_size", self.batch_size, at_least=1)
        number("step_size", self.step_size, positive=True)
        number("penalty", self.penalty, at_least=0.0)
        whole_number("shifts", self.shifts, at_least=0)
        if self.steps > MOST_STEPS or self.batch_size > MOST_STEPS or self.shifts > MOST_SHIFTS:
            raise InputError(
                f"a recipe has at most {MOST_STEPS:,} steps of {MOST_STEPS:,} samples and {MOST_SHIFTS} shifts."
            )

    @property
    def samples(self) -> int:
        """The number of single-sample gradients that it computes."""
        return self.steps * self.batch_size

    def document(self) -> dict[str, Any]:
        """The recipe as JSON values."""
        return asdict(self)


def recipe_of(document: object) -> Recipe:
    """The recipe in an untrusted document."""
    if not isinstance(document, Mapping) or set(document) != {field.name for field in fields(Recipe)}:
        raise InputError("this is no recipe: it needs steps, batch_size, step_size, penalty and shifts.")
    return Recipe(**document)


def changed_recipe(recipe: Recipe, change: SoloRecipe) -> Recipe:
    """The recipe that a client really uses."""
    if change is SoloRecipe.LONGER:
        return replace(recipe, steps=min(LONGER_STEPS * recipe.steps, MOST_STEPS))
    if change is SoloRecipe.PENALIZED:
        return replace(recipe, penalty=5.0 * max(recipe.penalty, 1e-3))
    return replace(recipe, shifts=MOST_SHIFTS) if change is SoloRecipe.SHIFTED else recipe


PICTURE_DIMENSIONS = 4  # (samples, height, width, channels)
SHIFTS = ((0, 1), (0, -1), (1, 0), (-1, 0))  # rows down, columns right


def train_alone(
    model: Model, features: Features, labels: Labels, recipe: Recipe, seed: int, private_key: DrawKey | None = None
) -> Params:
    """The solo model of one client with these samples. `seed` is the job's.

    private_key  of the draws of a `PrivateModel`; None, in simulations, derives it from the seed
    """
    if not len(labels):
        return model.init(seed)
    solo, own = solo_model(model, recipe), _augmented(features, recipe.shifts)
    repeated, params = np.tile(labels, 1 + recipe.shifts), solo.init(seed)
    if not isinstance(solo, PrivateModel):
        return _by_steps(solo, params, own, repeated, recipe, audition_seed(seed))
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
    """The solo models of many clients, (clients, parameters), equal to those of `train_alone` up to rounding."""
    solo = solo_model(model, recipe)
    training = Training(recipe.steps, 1, recipe.step_size)
    start = solo.init(seed)

    def train_one(own: tuple[Features, Labels]) -> Params:
        features, labels = own
        if not len(labels):
            return start
        repeated, all_labels = _augmented(features, recipe.shifts), np.tile(labels, 1 + recipe.shifts)
        if not isinstance(solo, PrivateModel) and (kernel() is None or not supports(solo, repeated)):
            return _by_steps(solo, start, repeated, all_labels, recipe, audition_seed(seed))
        data = LabeledSamples(repeated, all_labels, classes)
        federated = Federated(solo, data, Partition(np.arange(len(data)), np.array([0, len(data)])), training)
        engine = make_engine(federated)
        batch = np.array([recipe.batch_size], dtype=np.int64)
        run = Run(audition_seed(seed), recipe.step_size, batch, np.ones(1), data.labels)
        inner = engine.pack(start)
        engine.rounds(run, inner, inner.copy(), 0, recipe.steps)
        return engine.unpack(inner)

    workers = usual_threads() if threads is None else threads
    with training_threads(workers) as pool:
        return np.stack(list((map if workers == 1 else pool.map)(train_one, samples)))


def _by_steps(
    solo: Model, start: Params, features: Features, labels: Labels, recipe: Recipe, draws_seed: int
) -> Params:
    """The solo model by the model's own functions: rounds of one step, one after the other."""
    params = start
    for batch in drawn_batches(draws_seed, 0, np.arange(recipe.steps), 0, recipe.batch_size, len(labels)):
        params = after_steps(solo, params, features, labels, [batch], recipe.step_size)
    return params


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
    """The changes of a recipe that have an effect on this model and these samples."""
    without = set() if features.ndim == PICTURE_DIMENSIONS else {SoloRecipe.SHIFTED}
    without |= set() if can_change_penalty(model) else {SoloRecipe.PENALIZED}
    return tuple(recipe for recipe in SoloRecipe if recipe not in without)


def audition_seed(seed: int) -> int:
    """The seed of the draws of solo training, from the job's."""
    return int(key(seed, Purpose.AUDITION))


def _augmented(features: Features, shifts: int) -> Features:
    """The pictures, followed by copies shifted by one pixel; pixels pushed out are lost, new pixels are dark.

    Other samples are repeated unchanged.
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


Samples = Callable[[], tuple[Features, Labels]]
"""Returns a client's samples; called when the client's model is trained."""


def losses_of_groups(
    model: Model,
    groups: Sequence[tuple[Recipe, Sequence[Samples]]],
    test: LabeledSamples,
    seed: int,
    *,
    draws: int = 1,
    threads: int | None = None,
) -> list[NDArray[np.float64]]:
    """The tested losses of the solo models of each group; the clients of a group train by the same recipe.

    draws  how many seeds of training there are, from `seed` on; the clients of a group take turns
    """
    other = elsewhere(threads)
    if other is not None:
        return _computed_by(other, model, groups, test, seed, draws)

    def trained(work: tuple[Recipe, int, Samples]) -> Params:
        recipe, number, samples = work
        own = seed + number % draws
        alone: Params = train_all_alone(model, [samples()], recipe, own, classes=test.classes, threads=1)[0]
        return alone

    def tested(block: NDArray[np.float32]) -> NDArray[np.float64]:
        return solo_losses(model, block, test, seed, threads=1)

    workers = usual_threads() if threads is None else threads
    with training_threads(workers) as pool:
        works = [(recipe, k, samples) for recipe, members in groups for k, samples in enumerate(members)]
        models = pool.map(trained, works)
        sizes = [min(BLOCK, len(members) - k) for _, members in groups for k in range(0, len(members), BLOCK)]
        blocks = [np.stack([next(models) for _ in range(size)]) for size in sizes]
        losses = pool.map(tested, blocks)
        counts = [-(-len(members) // BLOCK) for _, members in groups]
        return [np.concatenate([next(losses) for _ in range(count)] or [np.empty(0)]) for count in counts]


def _computed_by(
    other: Elsewhere,
    model: Model,
    groups: Sequence[tuple[Recipe, Sequence[Samples]]],
    test: LabeledSamples,
    seed: int,
    draws: int,
) -> list[NDArray[np.float64]]:
    """What `losses_of_groups` returns, in the same blocks of models, which are fitted together in the test."""
    blocks = [
        (recipe, [(seed + (first + k) % draws, samples()) for k, samples in enumerate(members[first : first + BLOCK])])
        for recipe, members in groups
        for first in range(0, len(members), BLOCK)
    ]
    losses = iter(other("learning.solo:block_losses", (model, test, seed), blocks))
    counts = [-(-len(members) // BLOCK) for _, members in groups]
    return [np.concatenate([next(losses)["loss"] for _ in range(count)] or [np.empty(0)]) for count in counts]


def block_losses(
    common: tuple[Model, LabeledSamples, int], own: tuple[Recipe, list[tuple[int, tuple[Features, Labels]]]]
) -> Mapping[str, NDArray[Any]]:
    """The tested losses of the solo models of one block of clients, each with the seed of their training."""
    (model, test, seed), (recipe, members) = common, own
    with one_blas_thread():
        models = [
            train_all_alone(model, [samples], recipe, draw, classes=test.classes, threads=1)[0]
            for draw, samples in members
        ]
        return {"loss": solo_losses(model, np.stack(models), test, seed, threads=1)}


Floats = NDArray[np.float64]

MOST_TEST_SAMPLES = 2000  # of the test set, drawn by the secret
RIDGE = 1e-3  # on the biases, so that a class that is absent in one half has a finite one
NEWTON_STEPS, HALVINGS = 30, 8
LEAST_LOSS = 1e-6  # of a class
BLOCK = 16  # models fitted at a time


def solo_losses(
    model: Model, params: NDArray[np.float32], test: LabeledSamples, seed: int, *, threads: int | None = None
) -> Floats:
    """The corrected test losses of solo models, (models,); the seed chooses the test samples and divides them in two.

    A model whose scores are not finite, or all the same, has the loss of the class frequencies.
    """
    chosen = _chosen(test, seed)
    scores, labels = _scores_on(model, test.features[chosen]), test.labels[chosen]

    def tested(first: int) -> Floats:
        block = params[first : first + BLOCK]
        return corrected_losses(np.stack([scores(one) for one in block]), labels)

    workers = usual_threads() if threads is None else threads
    with training_threads(workers) as pool:
        each = map if workers == 1 or len(params) <= BLOCK else pool.map
        losses = list(each(tested, range(0, len(params), BLOCK)))
    return np.concatenate(losses) if losses else np.empty(0)


def alignments(model: Model, params: NDArray[np.float32], test: LabeledSamples, seed: int) -> Floats:
    """(models,) How much higher a class is scored on its own samples than on all; the same samples as `solo_losses`.

    Honest models are above 0. A model times -1 is below, though its loss is as good: the fitted factor may be negative.
    """
    chosen = _chosen(test, seed)
    scores, labels = _scores_on(model, test.features[chosen]), test.labels[chosen]
    aligned = []
    for one in params:
        with np.errstate(over="ignore", invalid="ignore"):
            wide = standardized(scores(one)[None].astype(np.float64))[0][0]
        aligned.append(float((wide - wide.mean(axis=0))[np.arange(len(labels)), labels].mean()))
    return np.array(aligned)


def _chosen(test: LabeledSamples, seed: int) -> NDArray[np.int64]:
    """The test samples on which solo models are tested."""
    return np.argsort(bits(key(seed, Purpose.AUDITION), len(test)), kind="stable")[:MOST_TEST_SAMPLES]


def _scores_on(model: Model, features: Features) -> Callable[[Params], NDArray[np.float32]]:
    """The scores of these images by parameters; softmax regression converts the pixels once for all."""
    if isinstance(model, SoftmaxRegression):
        return partial(model.scores_of_inputs, x=model.inputs(features))
    return partial(model.scores, features=features)


def corrected_losses(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> Floats:
    """The losses of models with these scores (models, samples, classes); the halves are even and odd samples."""
    wide = standardized(scores.astype(np.float64))[0]
    of_sample = np.empty(wide.shape[:2])
    for fitted_on in (0, 1):
        factor, biases = fit_scores(wide[:, fitted_on::2], labels[fitted_on::2])
        tested, own = wide[:, 1 - fitted_on :: 2], labels[1 - fitted_on :: 2]
        of_sample[:, 1 - fitted_on :: 2] = -log_probabilities(tested, factor, biases)[:, np.arange(len(own)), own]
    present = np.unique(labels)
    of_class = np.stack([of_sample[:, labels == one].mean(axis=1) for one in present], axis=1)
    return np.asarray(np.exp(np.log(np.maximum(of_class, LEAST_LOSS)).mean(axis=1)))


def standardized(scores: Floats) -> tuple[Floats, Floats]:
    """Scores with mean 0 over the classes and variance 1, and what they were divided by, (models,).

    Scores of a model are 0 if they are not finite or all the same.
    """
    finite = np.isfinite(scores).all(axis=(1, 2), keepdims=True)
    scores = np.where(finite, scores, 0.0)
    largest = np.abs(scores).max(axis=(1, 2), keepdims=True)
    largest = np.where(largest > 0, largest, 1.0)
    scores = scores / largest
    scores = scores - scores.mean(axis=2, keepdims=True)
    deviation = scores.std(axis=(1, 2), keepdims=True)
    deviation = np.where(deviation > 1e-12, deviation, 1.0)
    return scores / deviation, (largest * deviation).ravel()


def log_probabilities(scores: Floats, factor: Floats, biases: Floats) -> Floats:
    """(models, samples, classes) Of models with these scores, each with a factor and biases, (models, classes)."""
    z = factor[:, None, None] * scores + biases[:, None, :]
    z -= reduce(np.maximum, np.moveaxis(z, 2, 0))[:, :, None]  # class by class: faster than a maximum of few numbers
    z -= np.log(np.exp(z).sum(axis=2, keepdims=True))
    return z


def fit_scores(scores: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The factor and the biases with the least cross-entropy, by Newton's method; the problem is convex."""
    models, count, classes = scores.shape
    one_hot, squared = np.eye(classes)[labels], np.square(scores)
    theta = np.zeros((models, classes + 1))
    theta[:, 0] = 1.0

    def evaluated(at: Floats) -> tuple[Floats, Floats]:
        """Log-probabilities and objective."""
        log_p = log_probabilities(scores, at[:, 0], at[:, 1:])
        entropy = -log_p[:, np.arange(count), labels].mean(axis=1)
        return log_p, entropy + 0.5 * RIDGE * (np.square(at[:, 1:]).sum(axis=1) + 1e-3 * np.square(at[:, 0]))

    log_p, value = evaluated(theta)
    for _ in range(NEWTON_STEPS):
        p = np.exp(log_p)
        residual, mean_score = p - one_hot, (p * scores).sum(axis=2)
        gradient = np.empty_like(theta)
        gradient[:, 0] = (residual * scores).sum(axis=(1, 2)) / count + 1e-3 * RIDGE * theta[:, 0]
        gradient[:, 1:] = residual.mean(axis=1) + RIDGE * theta[:, 1:]
        hessian = np.empty((models, classes + 1, classes + 1))
        hessian[:, 0, 0] = ((p * squared).sum(axis=2) - np.square(mean_score)).mean(axis=1) + 1e-3 * RIDGE
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = (p * (scores - mean_score[:, :, None])).mean(axis=1)
        hessian[:, 1:, 1:] = -(p.transpose(0, 2, 1) @ p) / count
        diagonal = np.arange(1, classes + 1)
        hessian[:, diagonal, diagonal] += p.mean(axis=1) + RIDGE
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        size = np.ones(models)
        for _ in range(HALVINGS):
            trial = theta - size[:, None] * step
            trial_log_p, trial_value = evaluated(trial)
            worse = trial_value > value + 1e-12
            if not worse.any():
                break
            size = np.where(worse, size / 2.0, size)
        trial_log_p[worse], trial[worse], trial_value[worse] = log_p[worse], theta[worse], value[worse]
        previous, log_p, theta, value = value, trial_log_p, trial, trial_value
        if (previous - value < 1e-9).all():
            break
    return theta[:, 0], theta[:, 1:]


def solo_mean(models: NDArray[np.float32], weights: Sequence[float]) -> Params:
    """The weighted mean of solo models (models, parameters): summed in float64, in their order, and rounded once."""
    total = np.zeros(models.shape[1])
    for model, weight in zip(models, weights, strict=True):
        total += weight * model.astype(np.float64)
    return total.astype(np.float32)


SOLO_BOUND = 1.5  # an opened solo model may be this many times as long as the longest of the pilot clients


def longest_model(models: NDArray[np.float32]) -> float:
    """The longest solo model that is taken, from those of pilot clients, (models, parameters)."""
    return float(f"{SOLO_BOUND * max(map(solo_length, models)):.4g}")


def solo_length(model: Params) -> float:
    """The length (L2 norm) of a solo model."""
    return math.sqrt(math.fsum(np.square(model, dtype=np.float64).tolist()))


def audition_samples(
    behaviour: Behaviour, features: Features, labels: Labels, client: int, seed: int
) -> tuple[Features, Labels]:
    """The samples on which a client trains alone, and their labels.

    There is no common model yet, so samples that it would label are left out. A client without any other labels draws
    them at random.

    labels  of all requested samples: made by hand, drawn at random or derived
    """
    if behaviour.labeling_effort == 1 or behaviour.unlabeled not in (Unlabeled.LEFT_OUT, Unlabeled.PREDICTED):
        return features, labels
    by_hand = samples_by_hand(behaviour, len(labels), client, seed)
    return (features[by_hand], labels[by_hand]) if by_hand.any() else (features, labels)


def audition_model(
    behaviour: Behaviour,
    model: Model,
    features: Features,
    labels: Labels,
    recipe: Recipe,
    *,
    client: int,
    seed: int,
    private_key: DrawKey | None = None,
) -> Params:
    """A client's solo model; `private_key` as in `train_alone`."""
    used = audition_samples(behaviour, features, labels, client, seed)
    return train_alone(model, *used, changed_recipe(recipe, behaviour.solo_recipe), seed, private_key)
