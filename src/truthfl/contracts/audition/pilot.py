"""Measurements of solo models on pilot data: how many labels can be asked for, the recipe, the solo curve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from truthfl.contracts.audition.level import WINDOW, SoloCurve
from truthfl.contracts.contract import People
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.contracts.solo import GATE_DEVIATIONS, SoloStage, level_variance
from truthfl.errors import InputError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.pilot.pilot_clients import PILOT_CLIENTS, PILOT_SEED, PilotClients, draw_pilot_clients
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.solo import MOST_SHIFTS, PICTURE_DIMENSIONS, Recipe, can_change_penalty

RECIPE_CLIENTS = 16
FEWEST_LABELS = 8
FEWEST_APART = 5  # pilot clients who share no sample; with fewer their spread says little about other people
SOME_LABELS = 100  # of pilot clients whose classes are counted
CURVE_RANGE = 4.5  # largest ratio of the most labels to the fewest on the curve
GRID_RATIO = WINDOW  # between numbers of labels of the solo curve
MORE_LABELS = 1.35  # how far the curve goes beyond a client's most samples, if the pilot data suffice
STEPS, BATCH = 60, 64  # of the first recipe in the tuning
STEP_SIZES = (0.05, 0.15, 0.5, 1.5)
PENALTIES = (1e-3, 1e-2, 3e-2, 1e-1)
LONGER = 2.5  # steps of a longer recipe, as a multiple
SHORT_STEPS, SHORT_BATCH = 25, 32  # of a short recipe, for jobs in which computing is expensive
LEAST_SLOPE = 0.02  # of the solo loss by log n, if the measured one is less
RECIPE_LABELS = 0.6  # the recipe is tuned at this share of the most samples


def measure_solo_stage(side: ServerSide, people: People, recipe: Recipe | None) -> tuple[Recipe, SoloStage]:
    """What to expect of models trained alone on all samples, and the recipe, which is tuned if it is None."""
    sizes = people.dataset_size
    numbers = label_numbers(side, int(sizes.max()))
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
    return tune_recipe(pilot, tried_labels(sizes, fewest), label_cost, float(np.median(people.sample_cost)))


def tried_labels(sizes: IntArray, fewest: int) -> int:
    """The number of labels with which recipe and rounds are first tuned."""
    return int(max(RECIPE_LABELS * sizes.max(), fewest))


def most_pilot_labels(side: ServerSide) -> int:
    """The most labels of which `FEWEST_APART` pilot clients can hold different ones, of every class."""
    labels = side.pilot.data.labels
    drawn = labels[side.draw_clients((SOME_LABELS,) * PILOT_CLIENTS, PILOT_SEED).rows]
    share = np.bincount(drawn) / len(drawn)  # of a typical client's labels
    there = np.bincount(labels, minlength=len(share))[: len(share)]
    return int(min(len(labels), (there[share > 0] / share[share > 0]).min()) / FEWEST_APART)


def label_numbers(side: ServerSide, samples: int) -> IntArray:
    """The numbers of labels at which the solo curve is measured, for clients with at most this many samples."""
    highest = min(int(MORE_LABELS * samples), most_pilot_labels(side))
    if highest < 2 * FEWEST_LABELS:
        count = len(side.pilot.data)
        wanted = math.ceil(count * 2 * FEWEST_LABELS / max(highest, 1))
        cause = (
            f"pilot_samples is {count}; {FEWEST_APART} pilot clients with different samples need about {wanted}"
            if samples >= 2 * FEWEST_LABELS
            else f"clients have up to {samples} samples"
        )
        raise InputError(f"{cause}: the curve of solo losses begins with {2 * FEWEST_LABELS} labels.")
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
    """Solo losses of the pilot clients at these numbers of labels."""
    columns = pilot.losses([(int(n), recipe) for n in labels])
    turn = len(pilot.side.pilot.data) // int(labels[-1])
    return SoloCurve(labels.astype(float), np.stack(columns, axis=1), turn)
