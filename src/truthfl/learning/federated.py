"""`Federated`: the model, the data, their partition among clients, and the training parameters."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.learning.aggregation import ReportRule
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Labels, Model
from truthfl.learning.partition import Partition
from truthfl.mechanism.checks import FloatArray, client_array
from truthfl.mechanism.setting import Training


@dataclass(frozen=True, init=False, eq=False)
class Federated:
    """The setting of training runs; the clients' behaviour, labels and the seed are passed to `train`.

    weight         p_i, by default each client's share of all samples
    participation  q_i, by default 1
    rule           what the server does with reports, by default the mean of all
    merged         how many clients each one stands for, by default 1; in private training each of these adds noise
    """

    model: Model
    data: LabeledSamples
    partition: Partition
    training: Training
    weight: FloatArray
    participation: FloatArray
    merged: FloatArray
    rule: ReportRule

    def __init__(
        self,
        model: Model,
        data: LabeledSamples,
        partition: Partition,
        training: Training,
        *,
        weight: ArrayLike | None = None,
        participation: ArrayLike = 1.0,
        merged: ArrayLike = 1.0,
        rule: ReportRule | None = None,
    ) -> None:
        count = len(partition)
        if len(partition.rows) and int(partition.rows.max()) >= len(data):
            raise InputError(
                f"the partition speaks of sample {int(partition.rows.max())}; the data have {len(data)} samples."
            )
        shares = partition.weights() if weight is None else weight
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "training", training)
        object.__setattr__(self, "weight", client_array("weight", shares, count, _label, positive=True))
        q = client_array("participation", participation, count, _label, positive=True, at_most=1.0)
        object.__setattr__(self, "participation", q)
        object.__setattr__(self, "rule", rule or ReportRule())
        object.__setattr__(self, "merged", client_array("merged", merged, count, _label, positive=True))

    def samples_of(self, client: int) -> slice:
        """The positions of a client's samples among all clients' samples."""
        return slice(int(self.partition.starts[client]), int(self.partition.starts[client + 1]))

    def true_labels(self) -> Labels:
        """The correct labels of all clients' samples, ordered by client."""
        return self.data.labels[self.partition.rows]


def _label(position: int) -> str:
    return f"client {position}"
