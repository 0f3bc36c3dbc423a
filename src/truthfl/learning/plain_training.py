"""The paper's training as a plain loop over rounds and clients: the reference for the fast `training`.

Imports `federated`, `local_training`, `model`, `profile` and `mechanism.strategies`.
"""

from __future__ import annotations

import numpy as np

from truthfl.learning.federated import Federated
from truthfl.learning.local_training import report_of_round, takes_part, updated_memory
from truthfl.learning.model import Labels, Params
from truthfl.learning.profile import Profile
from truthfl.mechanism.strategies import Strategies


def train_plainly(
    federated: Federated, strategies: Strategies | Profile, seed: int, *, labels: Labels | None = None
) -> Params:
    """Train T rounds and return the final model.

    In each round every participating client receives the common model and reports by her behaviour; the server adds the
    reported changes, weighted p_i/q_i. `labels` as in `train`.
    """
    model, data, training, clients = federated.model, federated.data, federated.training, len(federated.partition)
    profile = strategies if isinstance(strategies, Profile) else Profile.of_strategies(strategies, clients)
    all_labels = profile.labels(federated, seed) if labels is None else labels
    received: list[list[Params]] = [[] for _ in range(clients)]
    common = model.init(seed)
    for t in range(training.rounds):
        change = np.zeros_like(common)
        for i in range(clients):
            if not takes_part(seed, i, t, federated.participation[i]):
                continue
            received[i] = updated_memory(profile[i], received[i], common)
            report = report_of_round(
                profile[i],
                model,
                received[i],
                data.images[federated.partition.rows_of(i)],
                all_labels[federated.samples_of(i)],
                client=i,
                round_=t,
                rounds=training.rounds,
                assigned_batch_size=int(profile.assigned[i]),
                local_steps=training.local_steps,
                step_size=training.step_size,
                seed=seed,
            )
            change += np.float32(federated.weight[i] / federated.participation[i]) * (report - common)
        common = common + change
    return common
