"""`Recipe`: how a client trains a model alone, in the audition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from truthfl.errors import InputError
from truthfl.learning.behaviour import SoloRecipe
from truthfl.mechanism.checks import number, whole_number

MOST_STEPS, MOST_SHIFTS = 10_000, 4
LONGER_STEPS = 4  # of `SoloRecipe.LONGER`, as a multiple of the prescribed ones


@dataclass(frozen=True)
class Recipe:
    """The prescribed training of a solo model, from the public start.

    steps       number of gradient steps
    batch_size  samples in each, drawn with replacement
    step_size   of a gradient step
    penalty     factor of the L2 penalty, in place of the job's own
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
        """Gradients of single samples that it takes."""
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
