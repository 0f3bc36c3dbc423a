"""One client's part of one round, on her own machine: H steps on batches of her own data. Looks at `draws`, `model`.

The same draws as in `plain_training` and `training`, so that a federation of such clients trains the same model.
"""

from __future__ import annotations

import numpy as np

from truthfl.learning.draws import Purpose, below, bits, key
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
