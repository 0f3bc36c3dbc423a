"""One client's part of one round: H local steps on batches of the client's data, and the client's report.

Participants, simulations and solo training all take their steps here. The compiled kernel is a faster copy, and NumPy's
engine sums up single steps of many clients. All of them draw the same batches and so train the same model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.learning.models.model import Features, Labels, Model, Params
from truthfl.learning.people.behaviour import Behaviour, Unlabeled
from truthfl.learning.people.labels import labeled_by_hand
from truthfl.learning.privacy import DrawKey, PrivateModel, random_bits, simulated_key, subkey
from truthfl.learning.tasks.custom import OwnSteps
from truthfl.learning.training.draws import Purpose, below, bits, bits_at, generator, key, uniform


def local_model(
    model: Model,
    common: Params,
    features: Features,
    labels: Labels,
    *,
    client: int,
    round_: int,
    batch_size: int,
    local_steps: int,
    step_size: float,
    seed: int,
    private_key: DrawKey | None = None,
    rows: NDArray[np.int64] | None = None,
) -> Params:
    """w_i: the common model after H local steps. `client` is the client's number; rounds are counted from 0.

    private_key  of the draws in this round; None derives them from the seed, so that everybody knows the batches
    rows         the positions of the client's samples in `features`; None if `features` has only the client's samples
    """
    if isinstance(model, PrivateModel):
        own, local = features if rows is None else features[rows], common.copy()
        key_of_round = subkey(simulated_key(seed), client, round_) if private_key is None else private_key
        for step in range(local_steps):
            gradient = model.noisy_gradient(local, own, labels, batch_size, subkey(key_of_round, step))
            local -= np.float32(step_size) * gradient
        return local
    if private_key is None:
        batches: Sequence[NDArray[np.int64]] | NDArray[np.int64] = drawn_batches(
            seed, client, round_, np.arange(local_steps), batch_size, len(labels)
        )
    else:
        batches = [
            below(random_bits(subkey(private_key, step), batch_size), len(labels)) for step in range(local_steps)
        ]
    return after_steps(model, common, features, labels, batches, step_size, rows)


def drawn_batches(
    seed: int, client: int, rounds: ArrayLike, steps: ArrayLike, batch_size: int, samples: int
) -> NDArray[np.int64]:
    """Which of the client's samples are drawn in these rounds and steps, as positions: (rounds or steps, batch)."""
    return below(bits(key(seed, Purpose.BATCH, client, rounds, steps), batch_size), samples)


def after_steps(
    model: Model,
    start: Params,
    features: Features,
    labels: Labels,
    batches: Sequence[NDArray[np.int64]] | NDArray[np.int64],
    step_size: float,
    rows: NDArray[np.int64] | None = None,
) -> Params:
    """The model after one step on each of these batches, which are positions in `labels`; `rows` as in `local_model`.

    A task's own steps replace gradient steps.
    """
    if isinstance(model, OwnSteps):
        own = features if rows is None else features[rows]
        return model.local_steps(start, own, labels, list(batches), step_size)
    local = start.copy()
    for batch in batches:
        used = features[batch if rows is None else rows[batch]]
        weight = np.full(len(batch), 1.0 / len(batch), dtype=np.float32)
        local -= np.float32(step_size) * model.weighted_gradient(local, used, labels[batch], weight)
    return local


def report_of_round(
    behaviour: Behaviour,
    model: Model,
    received: Sequence[Params],
    features: Features,
    labels: Labels,
    *,
    client: int,
    round_: int,
    rounds: int,
    assigned_batch_size: int,
    local_steps: int,
    step_size: float,
    seed: int,
    private_key: DrawKey | None = None,
) -> Params:
    """A client's report in round `round_` of `rounds`, counted from 0.

    received     the common models that the client remembers, this round's last; see `updated_memory`
    labels       the labels of all the client's samples before training: made by hand, drawn at random or derived
    private_key  as in `local_model`
    """

    def honest() -> Params:
        used_features, used_labels = used_samples(behaviour, model, received[-1], features, labels, client, seed)
        return local_model(
            model,
            received[-1],
            used_features,
            used_labels,
            client=client,
            round_=round_,
            batch_size=behaviour.batch_size(assigned_batch_size),
            local_steps=local_steps,
            step_size=step_size,
            seed=seed,
            private_key=private_key,
        )

    return behaviour.report(received, lambda: report_noise(seed, client, round_), honest, round_=round_, rounds=rounds)


def used_samples(
    behaviour: Behaviour, model: Model, common: Params, features: Features, labels: Labels, client: int, seed: int
) -> tuple[Features, Labels]:
    """The samples that a client trains on in a round, and their labels."""
    if behaviour.unlabeled not in (Unlabeled.LEFT_OUT, Unlabeled.PREDICTED) or behaviour.labeling_effort == 1:
        return features, labels
    by_hand = samples_by_hand(behaviour, len(labels), client, seed)
    if by_hand.all():
        return features, labels
    if behaviour.unlabeled is Unlabeled.LEFT_OUT:
        return features[by_hand], labels[by_hand]
    used = labels.copy()
    used[~by_hand] = model.predict(common, features[~by_hand])
    return features, used


def samples_by_hand(behaviour: Behaviour, samples: int, client: int, seed: int) -> NDArray[np.bool_]:
    """A mask of the samples that a client labels by hand."""
    effort = behaviour.labeling_effort_for(samples)
    return labeled_by_hand(np.array([client]), np.array([samples]), np.array([effort]), seed)


def updated_memory(behaviour: Behaviour, received: Sequence[Params], common: Params) -> list[Params]:
    """The models received before that the behaviour remembers, followed by the new common model."""
    return [*received[-behaviour.remembers :], common] if behaviour.remembers else [common]


def report_noise(seed: int, client: int, round_: int) -> np.random.Generator:
    """The generator of the noise in a client's report of a round."""
    return generator(seed, Purpose.REPORT, client, round_)


def takes_part(seed: int, client: int, round_: int, participation: float) -> bool:
    """Whether a client participates in a round; true with probability `participation`, q_i."""
    return participation >= 1.0 or bool(taking_part(seed, client, round_, participation))


def taking_part(
    seed: int, clients: ArrayLike, round_: int, participation: NDArray[np.float64] | float
) -> NDArray[np.bool_]:
    """Which of these clients participate in a round; each with its probability `participation`, q_i."""
    return np.asarray(uniform(bits_at(key(seed, Purpose.AVAILABILITY, clients, round_), 0)) < participation)
