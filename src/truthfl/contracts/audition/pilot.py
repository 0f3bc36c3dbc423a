"""Measurements on pilot data for the audition contract: recipe, solo curve, joint curve, absence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from truthfl.contracts.audition.level import WINDOW, SoloCurve
from truthfl.contracts.contract import People
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.contracts.solo import GATE_DEVIATIONS, SoloStage, level_variance
from truthfl.errors import InputError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.people.behaviours import FREE_RIDER, TRUTHFUL, behaviour
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.pilot_clients import PILOT_CLIENTS, PILOT_SEED, SEED, PilotClients, draw_pilot_clients
from truthfl.learning.pilot.reduced_federation import reduce_federation
from truthfl.learning.pilot.runs import sample_losses
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.solo import MOST_SHIFTS, PICTURE_DIMENSIONS, Recipe, can_change_penalty
from truthfl.learning.training.train import honest_runs, train

CURVE_CLIENTS = 40  # clients whose solo models are trained with other numbers of labels
RECIPE_CLIENTS = 24
FEWEST_LABELS = 8
CURVE_RANGE = 12.0  # largest ratio of the most labels to the fewest on the curve
GRID_RATIO = 1.5  # between numbers of labels of the solo curve
MORE_LABELS = 1.35  # how far the curve goes beyond a client's most samples, if the pilot data suffice
STEPS, BATCH = 60, 64  # of the first recipe in the tuning
STEP_SIZES = (0.05, 0.15, 0.5, 1.5)
PENALTIES = (1e-3, 1e-2, 3e-2, 1e-1)
LONGER = 2.5  # steps of a longer recipe, as a multiple
SHORT_STEPS, SHORT_BATCH = 25, 32  # of a short recipe, for jobs in which computing is expensive
LEAST_SLOPE = 0.02  # of the solo loss by log n, if the measured one is less
JOINT_CLIENTS = 10  # most clients in the runs that measure the joint curve
JOINT_SHARES, JOINT_DRAWS = (0.3, 0.55, 1.0), 8
FEWEST_PRESENT, PRESENT_SHARES, PRESENCE_DRAWS = 3, (0.5, 0.75, 1.0), 8
LEVEL_DRAWS, FIRST_LEVEL_SEED, VARIANCE_DRAWS = 16, 900, 3
ABSENT_CLIENTS, ABSENCE_SEEDS = 5, 6
WHOLE_ABSENCE_CLIENTS = 100  # up to this number, absence is measured in the whole federation
ABSENCE_BATCHES = 600  # samples that the others then draw in a round, in total
RECIPE_LABELS = 0.6  # the recipe is tuned at this share of the most samples


def measure_solo_stage(side: ServerSide, people: People, recipe: Recipe | None) -> tuple[Recipe, SoloStage]:
    """What to expect of models trained alone on all samples, and the recipe, which is tuned if it is None."""
    sizes = people.dataset_size
    numbers = label_numbers(int(sizes.max()), len(side.pilot.data))
    clients = draw_pilot_clients(side, int(numbers[-1]), PILOT_SEED)
    chosen = usual_recipe(clients, people, int(numbers[0])) if recipe is None else recipe
    curve = measure_solo_curve(clients, numbers, chosen)
    held = np.clip(sizes.astype(float), numbers[0], numbers[-1])
    level, spread = curve.level(held), curve.spread(held)
    return chosen, SoloStage(level, spread, GATE_DEVIATIONS * np.sqrt(1.0 + level_variance(len(sizes))) * spread)


def usual_recipe(pilot: PilotClients, people: People, fewest: int) -> Recipe:
    """The recipe tuned for clients with these costs."""
    sizes = people.dataset_size
    label_cost = float(np.median(people.labeling_cost / sizes))
    tried = int(max(RECIPE_LABELS * sizes.max(), fewest))
    return tune_recipe(pilot, tried, label_cost, float(np.median(people.sample_cost)))


def label_numbers(samples: int, pilot_samples: int) -> IntArray:
    """The numbers of labels at which the solo curve is measured, for clients with at most this many samples."""
    highest = int(min(MORE_LABELS * samples, pilot_samples))
    if highest < 2 * FEWEST_LABELS:
        raise InputError(
            f"pilot_samples is {pilot_samples} and clients have up to {samples} samples; the curve of solo losses "
            f"needs at least {2 * FEWEST_LABELS} of both."
        )
    lowest = max(FEWEST_LABELS, highest / CURVE_RANGE)
    count = 1 + max(2, round(np.log(highest / lowest) / np.log(GRID_RATIO)))
    return np.unique(np.rint(np.geomspace(lowest, highest, count)).astype(np.int64))


def tune_recipe(pilot: PilotClients, labels: int, label_cost: float, sample_cost: float) -> Recipe:
    """The cheapest recipe, found one setting at a time: step size, shifts, penalty, steps.

    A worse recipe needs more labels for the same loss, and costs what these labels cost: a client with a better
    recipe can skip that many. The recipe's own computing cost is added.

    label_cost, sample_cost  of one label, and of one sample in a gradient
    """
    model = pilot.side.pilot.model
    penalty, can_change = float(getattr(model, "penalty", 0.0)), can_change_penalty(model)
    losses: dict[Recipe, float] = {}

    def measure(recipes: Iterable[Recipe]) -> None:
        new = [recipe for recipe in dict.fromkeys(recipes) if recipe not in losses]
        found = pilot.losses([(labels, recipe) for recipe in new], RECIPE_CLIENTS)
        losses.update(zip(new, map(_mean, found), strict=True))

    def best(recipes: list[Recipe]) -> Recipe:
        measure(recipes)
        return min(recipes, key=lambda recipe: money_per_loss * losses[recipe] + sample_cost * recipe.samples)

    pictures = pilot.side.pilot.data.features.ndim == PICTURE_DIMENSIONS
    shifts = MOST_SHIFTS if pictures and not isinstance(model, PrivateModel) else 0  # (ε, δ): each sample once
    steps = [Recipe(STEPS, BATCH, size, penalty, shifts) for size in STEP_SIZES]
    measure(steps)
    chosen = min(steps, key=lambda recipe: losses[recipe])
    fewer = max(round(labels / WINDOW), 1)
    with_fewer = _mean(pilot.losses([(fewer, chosen)], RECIPE_CLIENTS)[0])
    slope = (with_fewer - losses[chosen]) / np.log(labels / fewer)
    money_per_loss = label_cost * labels / max(slope, LEAST_SLOPE)
    chosen = best([chosen, replace(chosen, shifts=0)])
    if can_change:
        chosen = best([chosen, *(replace(chosen, penalty=value) for value in PENALTIES if value != penalty)])
    longer = replace(chosen, steps=round(LONGER * STEPS))
    short = Recipe(SHORT_STEPS, SHORT_BATCH, chosen.step_size, chosen.penalty, chosen.shifts)
    slower = replace(longer, step_size=chosen.step_size / 2)
    return best([chosen, longer, slower, short, replace(short, step_size=2 * chosen.step_size)])


def _mean(losses: FloatArray) -> float:
    return float(losses.mean()) if np.isfinite(losses).all() else np.inf


def measure_solo_curve(pilot: PilotClients, labels: IntArray, recipe: Recipe) -> SoloCurve:
    """Solo losses of some pilot clients at these numbers of labels."""
    columns = pilot.losses([(int(n), recipe) for n in labels], CURVE_CLIENTS)
    return SoloCurve(labels.astype(float), np.stack(columns, axis=1))


def refine_solo_curve(pilot: PilotClients, labels: IntArray, recipe: Recipe, curve: SoloCurve) -> SoloCurve:
    """The curve with the solo losses of all pilot clients at these numbers of labels.

    Numbers of the curve between the least and the largest of these are left out. So slopes there are differences
    between all pilot clients.
    """
    outside = (curve.labels < labels.min()) | (curve.labels > labels.max())
    columns = dict(zip(curve.labels[outside].astype(int).tolist(), curve.loss.T[outside], strict=True))
    columns = {n: np.append(loss, np.full(PILOT_CLIENTS - len(loss), np.nan)) for n, loss in columns.items()}
    columns |= zip(labels.tolist(), pilot.losses([(int(n), recipe) for n in labels]), strict=True)
    numbers = sorted(columns)
    return SoloCurve(np.array(numbers, dtype=float), np.stack([columns[n] for n in numbers], axis=1))


def numbers_around(labels: int, most: int) -> IntArray:
    """The numbers of labels from which the slope at `labels` is measured; the largest is at most `most`."""
    return np.unique([round(labels / WINDOW), labels, min(round(labels * WINDOW), most)])


@dataclass(frozen=True)
class JointCurve:
    """The joint loss by labels: it falls as `curve` / (labels of all); `error` is the standard error of `curve`."""

    curve: float
    error: float


def measure_joint_curve(side: ServerSide, batch_size: int) -> JointCurve:
    """The joint loss of some clients with a part of their labels, fitted by c + A/N; averages the slopes of draws.

    With many clients, only `JOINT_CLIENTS` train: the pilot data do not suffice for more, and the loss depends on the
    total number of labels.
    """
    runs, inverse = [], np.empty(len(JOINT_SHARES))
    for draw in range(JOINT_DRAWS):
        federated = some_clients(side, draw)
        sizes = federated.partition.sizes
        for k, share in enumerate(JOINT_SHARES):
            labels = np.maximum(np.rint(share * sizes), 1).astype(np.int64)
            inverse[k] = 1.0 / labels.sum()
            here = ask_for_labels(federated, labels, draw)
            batches = np.minimum(float(batch_size), labels.astype(float))
            runs.append((here, batches, draw))
    losses = honest_runs(runs, side.test)[0].reshape(JOINT_DRAWS, len(JOINT_SHARES))
    x = inverse - inverse.mean()
    slopes = losses @ x / (x @ x)
    return JointCurve(float(slopes.mean()), float(slopes.std(ddof=1) / np.sqrt(JOINT_DRAWS)))


def some_clients(side: ServerSide, draw: int) -> Federated:
    """A federation of clients drawn anew from the pilot data, evenly over all sizes; participation is the same."""
    sizes = side.pilot.partition.sizes
    chosen = np.argsort(sizes, kind="stable")
    chosen = chosen[np.linspace(0, len(sizes) - 1, min(len(sizes), JOINT_CLIENTS)).astype(int)]
    partition: Partition = side.draw_clients(tuple(sizes[chosen].tolist()), 500 + draw)
    return side.pilot.of_others(partition, participation=side.pilot.participation[chosen])


def measure_presence_curve(side: ServerSide, batches: FloatArray) -> float:
    """By how much the joint loss rises with 1 / (labels taking part) when clients are missing from the pilot.

    If clients are missing, whole kinds of data may be missing. So the rise is larger than with fewer labels of all.
    """
    federated, count = side.pilot, len(side.pilot.partition)
    if count < FEWEST_PRESENT:
        return 0.0
    order = np.random.default_rng(SEED)
    runs, inverse = [], np.empty((PRESENCE_DRAWS, len(PRESENT_SHARES)))
    for draw in range(PRESENCE_DRAWS):
        drawn = order.permutation(count)[:JOINT_CLIENTS]
        for k, share in enumerate(PRESENT_SHARES):
            present = drawn[: max(1, round(share * len(drawn)))]
            labels = np.zeros(count, dtype=np.int64)
            labels[present] = federated.partition.sizes[present]
            here = ask_for_labels(federated, labels, draw)
            own = np.minimum(batches[np.sort(present)], here.partition.sizes)
            runs.append((here, np.maximum(own, 1.0), draw))
            inverse[draw, k] = 1.0 / labels.sum()
    losses = honest_runs(runs, side.test)[0].reshape(inverse.shape)
    slopes = []
    for loss, present_inverse in zip(losses, inverse, strict=True):
        x = present_inverse - present_inverse.mean()
        slopes.append(float(loss @ x / (x @ x)))
    return max(float(np.mean(slopes)), 0.0)


@dataclass(frozen=True)
class JointLevel:
    """The joint loss of honest clients: mean over draws of clients, spread between draws, variance between samples."""

    mean: float
    spread: float
    draws: int
    sample_variance: float


def measure_joint_level(side: ServerSide, labels: IntArray, batches: FloatArray) -> JointLevel:
    """The joint loss over clients drawn anew from the pilot data, with these labels and batches.

    The clients of one pilot may be lucky or unlucky, and the job's clients differ again.
    """
    runs = []
    for draw in range(LEVEL_DRAWS):
        partition = side.draw_clients(tuple(int(n) for n in labels), FIRST_LEVEL_SEED + draw)
        drawn = side.pilot.of_others(partition, participation=side.pilot.participation)
        runs.append((drawn, batches, draw))
    losses, params = honest_runs(runs, side.test)
    variances = [float(np.var(sample_losses(runs[k][0], params[k], side.test))) for k in range(VARIANCE_DRAWS)]
    return JointLevel(float(np.mean(losses)), float(np.std(losses, ddof=1)), LEVEL_DRAWS, float(np.mean(variances)))


def measure_absence(side: ServerSide, batches: FloatArray) -> FloatArray:
    """By how much the joint loss rises without each client's reports, or with echoes in their place.

    An echo repeats the common model's last change. The result is the smaller rise, averaged over some clients and
    seeds, in proportion to weight. With many clients, the others are merged into groups, so the cost does not grow
    with their number.
    """
    federated, own, all_weights = side.pilot, batches, side.pilot.weight
    absent = len(federated.partition)
    if absent > WHOLE_ABSENCE_CLIENTS:
        reduced = reduce_federation(federated)
        federated, own, absent = reduced.federated, reduced.assigned(batches, ABSENCE_BATCHES), reduced.single_clients
    count = len(federated.partition)
    clients = np.unique(np.linspace(0, absent - 1, min(absent, ABSENT_CLIENTS)).astype(int)).tolist()
    assigned = np.maximum(np.rint(own), 1).astype(np.int64)
    kinds = (TRUTHFUL, FREE_RIDER, behaviour("echo"))
    seeds, honest = list(range(ABSENCE_SEEDS)), Profile.of_kinds(kinds, np.zeros(count, dtype=np.int64), assigned)
    profiles = [honest] * len(seeds)
    for client in clients:
        for kind in (1, 2):
            kind_of = np.where(np.arange(count) == client, kind, 0)
            profiles += [Profile.of_kinds(kinds, kind_of, assigned)] * len(seeds)
    trained = train(federated, profiles, seeds * (1 + 2 * len(clients)), evaluate_on={"test": side.test})
    losses = trained.evaluations["test"].loss[:, -1].reshape(-1, len(seeds))
    rises = (losses[1:] - losses[0]).reshape(len(clients), 2, len(seeds)).mean(axis=(0, 2))
    rise = float(rises.min()) if np.isfinite(rises).all() else 0.0
    return rise * all_weights / float(np.mean(federated.weight[clients]))
