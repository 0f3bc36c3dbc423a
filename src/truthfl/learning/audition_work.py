"""What a client does in the audition: the samples on which she trains her solo model, and the model."""

from __future__ import annotations

from truthfl.learning.behaviour import Behaviour, Unlabeled
from truthfl.learning.local_training import samples_by_hand
from truthfl.learning.model import Features, Labels, Model, Params
from truthfl.learning.private_draws import DrawKey
from truthfl.learning.recipe import Recipe, changed_recipe
from truthfl.learning.solo_training import train_alone


def audition_samples(
    behaviour: Behaviour, features: Features, labels: Labels, client: int, seed: int
) -> tuple[Features, Labels]:
    """The samples on which she trains alone, and their labels.

    There is no common model yet: samples that it would label are left out. Who has no labels of her own at all draws
    them at random.

    labels  of all samples that were asked for: made by hand, drawn at random or derived
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
    """Her solo model; `private_key` as in `train_alone`."""
    used = audition_samples(behaviour, features, labels, client, seed)
    return train_alone(model, *used, changed_recipe(recipe, behaviour.solo_recipe), seed, private_key)
