"""Training whose runs are computed elsewhere, in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.learning.elsewhere import MOST_BLOCKS, Elsewhere
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.profile import Profile
from truthfl.learning.training import LossAndAccuracy, TrainingResult, train
from truthfl.mechanism.strategies import Strategies

Given = Strategies | Profile | Sequence[Profile]
Common = tuple[Federated, Mapping[str, LabeledSamples], int | None]
Own = tuple[NDArray[Any], Given, NDArray[Any] | None, NDArray[Any] | None]


def train_in_blocks(
    other: Elsewhere,
    federated: Federated,
    strategies: Given,
    seeds: ArrayLike,
    labels: ArrayLike | None,
    step_sizes: ArrayLike | None,
    evaluate_on: Mapping[str, LabeledSamples] | None,
    every: int | None,
) -> TrainingResult:
    """What `train` returns, computed by `other`. How runs are divided does not depend on who that is."""
    numbers = np.atleast_1d(np.asarray(seeds))
    size = max(1, -(-len(numbers) // MOST_BLOCKS))
    blocks = [slice(first, first + size) for first in range(0, len(numbers), size)]
    own: list[Own] = [
        (
            numbers[block],
            _strategies_of(strategies, block, len(numbers)),
            _rows_of(labels, block, len(numbers), 2),
            _rows_of(step_sizes, block, len(numbers), 1),
        )
        for block in blocks
    ]
    data_sets = dict(evaluate_on or {})
    results = other("learning.training_blocks:train_block", (federated, data_sets, every), own)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([result[name] for result in results])

    evaluations = {name: LossAndAccuracy(joined(f"loss {name}"), joined(f"accuracy {name}")) for name in data_sets}
    refused: list[dict[int, int]] = [{} for _ in numbers]
    for block, result in zip(blocks, results, strict=True):
        for run, client, count in result["refused"].tolist():
            refused[block.start + run][client] = count
    return TrainingResult(joined("params"), results[0]["rounds"], evaluations, tuple(refused))


def train_block(common: Common, own: Own) -> Mapping[str, NDArray[Any]]:
    """The results of one block as named arrays; `refused` has a row (run, client, reports) for each client."""
    (federated, data_sets, every), (seeds, strategies, labels, step_sizes) = common, own
    with np.errstate(over="ignore", invalid="ignore"):  # a training may diverge; whoever called `train` looks at it
        trained = train(
            federated,
            strategies,
            seeds,
            labels=labels,
            step_sizes=step_sizes,
            evaluate_on=data_sets,
            every=every,
            threads=1,
        )
    refused = [
        (run, client, count)
        for run, by_client in enumerate(trained.refused_reports)
        for client, count in by_client.items()
    ]
    measured = {f"loss {name}": values.loss for name, values in trained.evaluations.items()}
    measured |= {f"accuracy {name}": values.accuracy for name, values in trained.evaluations.items()}
    rows = np.array(refused, dtype=np.int64).reshape(-1, 3)
    return measured | {"params": trained.params, "rounds": trained.rounds, "refused": rows}


def _strategies_of(strategies: Given, block: slice, runs: int) -> Given:
    if isinstance(strategies, Profile):
        return strategies
    if not isinstance(strategies, Strategies):
        return list(strategies)[block]
    fields = (strategies.labeling_effort, strategies.batch_size, strategies.report_scale, strategies.claimed_batch_size)
    if strategies.batch_size.ndim < 2 or len(strategies.batch_size) != runs:
        return strategies
    return Strategies(*(values[block] for values in fields))


def _rows_of(values: ArrayLike | None, block: slice, runs: int, dimensions: int) -> NDArray[Any] | None:
    """The block's part of values that may be given per run; such values have so many dimensions."""
    if values is None:
        return None
    array = np.asarray(values)
    return array[block] if array.ndim == dimensions and len(array) == runs else array
