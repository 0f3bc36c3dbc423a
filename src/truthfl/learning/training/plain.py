"""The paper's training as a plain loop over rounds and clients: the reference for the fast `training`."""

from __future__ import annotations

import numpy as np

from truthfl.contracts.setting import Strategies
from truthfl.learning.data.partition import Federated
from truthfl.learning.models.model import Labels, Params
from truthfl.learning.people.labels import sets_given, several_of
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.aggregation import limited_changes, new_combiner, taken_weights, with_momentum
from truthfl.learning.training.local_training import report_of_round, takes_part, updated_memory


def train_plainly(
    federated: Federated,
    strategies: Strategies | Profile,
    seed: int,
    *,
    labels: Labels | None = None,
    start: Params | None = None,
) -> Params:
    """Train T rounds and return the final model.

    In each round every participating client receives the common model and reports by its behaviour; the server combines
    the reported changes, weighted p_i/q_i, by the federation's rule. `labels` and `start` as in `train`.
    """
    model, data, training, clients = federated.model, federated.data, federated.training, len(federated.partition)
    profile = strategies if isinstance(strategies, Profile) else Profile.of_strategies(strategies, clients)
    all_labels = profile.labels(federated, seed) if labels is None else labels
    effort = profile.labeling_effort(federated.partition.sizes)
    several = None if labels is not None else several_of(federated, sets_given(federated, all_labels, effort, seed))
    received: list[list[Params]] = [[] for _ in range(clients)]
    common, combine = model.init(seed) if start is None else start, new_combiner(federated.rule.aggregation)
    before = common
    for t in range(training.rounds):
        changes, weights = [], []
        if several is not None:
            all_labels = all_labels.copy()
            all_labels[several.samples] = several.in_round(seed, t)
        for i in range(clients):
            if not takes_part(seed, i, t, federated.participation[i]):
                continue
            received[i] = updated_memory(profile[i], received[i], common)
            report = report_of_round(
                profile[i],
                model,
                received[i],
                data.features[federated.partition.rows_of(i)],
                all_labels[federated.samples_of(i)],
                client=i,
                round_=t,
                rounds=training.rounds,
                assigned_batch_size=int(profile.assigned[i]),
                local_steps=training.local_steps,
                step_size=training.step_size,
                seed=seed,
            )
            changes.append(report - common)
            weights.append(federated.weight[i] / federated.participation[i])
        reported = np.array(changes, dtype=np.float32).reshape(-1, len(common))
        rows, taken = limited_changes(reported, federated.rule, t)
        counted = taken_weights(np.array(weights, dtype=float), taken, federated.rule)
        changed = combine(t + 1, common, rows[taken], counted)
        common, before = with_momentum(changed, common, before, training.momentum), common
    return common
