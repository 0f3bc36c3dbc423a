"""The training of the paper, client by client and step by step: the version to read, to which the fast one is held.

Looks at `federated`, `local_training` and `draws`.
"""

from __future__ import annotations

import numpy as np

from truthfl.learning.draws import Purpose, bits, key, uniform
from truthfl.learning.federated import Federated
from truthfl.learning.local_training import local_model
from truthfl.learning.model import Labels, Params
from truthfl.mechanism.strategies import Strategies


def train_plainly(federated: Federated, strategies: Strategies, labels: Labels, seed: int) -> Params:
    """T rounds: each client takes H steps from the common model on batches of her own data and reports γ_i times her
    update; the server adds the reports, weighted p_i (p_i/q_i where a client is not always there)."""
    model, data, training = federated.model, federated.data, federated.training
    common = model.init(seed)
    for t in range(training.rounds):
        reports = np.zeros_like(common)
        for i in range(len(federated.partition)):
            there = uniform(bits(key(seed, Purpose.AVAILABILITY, i, t), 1))[0] < federated.participation[i]
            if not there:
                continue
            rows, own_labels = federated.partition.rows_of(i), labels[federated.samples_of(i)]
            local = local_model(
                model,
                common,
                data.images[rows],
                own_labels,
                client=i,
                round_=t,
                batch_size=int(strategies.batch_size[i]),
                local_steps=training.local_steps,
                step_size=training.step_size,
                seed=seed,
            )
            share = federated.weight[i] / federated.participation[i] * strategies.report_scale[i]
            reports += np.float32(share) * (local - common)
        common = common + reports
    return common
