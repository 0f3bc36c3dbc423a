"""One client's part of one round, on her own machine: H steps on batches of her own data, and what she reports.

The same draws as in `training`, so that a federation of such clients trains the same model. Imports `behaviour`,
`draws`, `labels` and `model`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truthfl.learning.behaviour import Behaviour, Unlabeled
from truthfl.learning.draws import Purpose, below, bits, generator, key, uniform
from truthfl.learning.labels import labeled_by_hand
from truthfl.learning.model import Images, Labels, Model, Params


def local_model(
    model: Model,
    common: Params,
    images: Images,
    labels: Labels,
    *,
    client: int,
    round_: int,
    batch_size: int,
    local_steps: int,
    step_size: float,
    seed: int,
) -> Params:
    """w_i: the common model after her H steps; `client` is her place among the clients, rounds count from 0."""
    local = common.copy()
    weight = np.full(batch_size, 1.0 / batch_size, dtype=np.float32)
    for step in range(local_steps):
        batch = below(bits(key(seed, Purpose.BATCH, client, round_, step), batch_size), len(labels))
        local -= np.float32(step_size) * model.weighted_gradient(local, images[batch], labels[batch], weight)
    return local


def report_of_round(
    behaviour: Behaviour,
    model: Model,
    received: Sequence[Params],
    images: Images,
    labels: Labels,
    *,
    client: int,
    round_: int,
    assigned_batch_size: int,
    local_steps: int,
    step_size: float,
    seed: int,
) -> Params:
    """What a client who behaves so sends back in this round.

    received  the common models she has received, this round's last; see `remembered`
    labels    of all her samples, before training: made by hand, and drawn where they are not
    """

    def honest() -> Params:
        used_images, used_labels = used_samples(behaviour, model, received[-1], images, labels, client, seed)
        return local_model(
            model,
            received[-1],
            used_images,
            used_labels,
            client=client,
            round_=round_,
            batch_size=behaviour.batch_size(assigned_batch_size),
            local_steps=local_steps,
            step_size=step_size,
            seed=seed,
        )

    return behaviour.report(received, lambda: report_noise(seed, client, round_), honest)


def used_samples(
    behaviour: Behaviour, model: Model, common: Params, images: Images, labels: Labels, client: int, seed: int
) -> tuple[Images, Labels]:
    """The samples a client trains on in a round, and the labels she gives them."""
    if behaviour.unlabeled is Unlabeled.DRAWN or behaviour.labeling_effort == 1:
        return images, labels
    effort = behaviour.labeling_effort_for(len(labels))
    by_hand = labeled_by_hand(np.array([client]), np.array([len(labels)]), np.array([effort]), seed)
    if behaviour.unlabeled is Unlabeled.LEFT_OUT:
        return images[by_hand], labels[by_hand]
    used = labels.copy()
    used[~by_hand] = model.predict(common, images[~by_hand])
    return images, used


def remembered(behaviour: Behaviour, received: Sequence[Params], common: Params) -> list[Params]:
    """What she keeps of the models received before, and the one that she receives now."""
    return [*received[-behaviour.remembers :], common] if behaviour.remembers else [common]


def report_noise(seed: int, client: int, round_: int) -> np.random.Generator:
    """What a client draws her report's noise from in a round."""
    return generator(seed, Purpose.REPORT, client, round_)


def takes_part(seed: int, client: int, round_: int, participation: float) -> bool:
    """Whether a client is there in a round; q_i is the chance of it."""
    return bool(uniform(bits(key(seed, Purpose.AVAILABILITY, client, round_), 1))[0] < participation)
