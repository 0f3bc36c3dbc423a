"""The ε of a participant in a job with noise: of all that her machine sends, solo model and reports."""

from __future__ import annotations

from dataclasses import dataclass

from truthfl.learning.privacy_accounting import DELTA, NoisySteps, epsilon
from truthfl.learning.recipe import Recipe


@dataclass(frozen=True)
class PromisedPrivacy:
    """What a job's noise promises for one sample of a participant.

    clip, noise     the length of a sample's gradient, and the noise as a multiple of it
    epsilon, delta  of all her messages together, whoever sees them; infinite without noise
    """

    clip: float
    noise: float
    epsilon: float
    delta: float = DELTA


def promised_privacy(
    clip: float, noise: float, *, samples: int, batch_size: float, steps: int, recipe: Recipe | None
) -> PromisedPrivacy:
    """The promise to a participant with so many samples.

    steps   of joint training: rounds times local steps, each with `batch_size` samples on average
    recipe  of her solo model; None without an audition
    """
    trainings = [NoisySteps(steps, batch_size / samples, noise)]
    if recipe is not None:
        trainings.append(NoisySteps(recipe.steps, recipe.batch_size / samples, noise))
    return PromisedPrivacy(clip, noise, epsilon(trainings))
