"""What an honest round does to a model: trained by clients of the pilot, from any model, and tried on other samples.

How far the loss may rise in an honest round depends on the model from which the round starts far more than on the
number of the round: with a step that is nearly too long it rises often, and soon falls again. So honest rounds are
trained from that very model, each by clients drawn anew from one half of the pilot's samples; the loss is that on the
other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.aggregation import Combine
from truthfl.learning.client_changes import ClientChanges
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.engines import Engine, Run, make_engine
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Model, Params
from truthfl.learning.partition import Partition
from truthfl.learning.report_bound import MOST_CLIENTS
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

DRAWS = 8  # honest rounds
FIRST_SEED = 8000
MOST_SAMPLES = 1000  # on which the loss is measured


@dataclass(frozen=True, eq=False)
class WhoTrains:
    """Those who take part in a job: numbers of samples, batches, weights (of sum 1) and shares of rounds."""

    sizes: tuple[int, ...]
    batches: FloatArray
    weight: FloatArray
    participation: FloatArray

    def some(self) -> WhoTrains:
        """All, or `MOST_CLIENTS` of them, whose sums are noisier than those of all."""
        if len(self.sizes) <= MOST_CLIENTS:
            return self
        order = np.argsort(self.batches, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, MOST_CLIENTS).astype(int)]
        weight = self.weight[chosen] / self.weight[chosen].sum()
        sizes = tuple(self.sizes[client] for client in chosen)
        return WhoTrains(sizes, self.batches[chosen], weight, self.participation[chosen])


@dataclass(frozen=True, eq=False)
class HonestRounds:
    """The losses after honest rounds from a model, and how far they move it."""

    loss: FloatArray
    length: FloatArray


def lengths(changes: NDArray[np.float32]) -> FloatArray:
    """The L2 norms of changes, (changes, parameters)."""
    return np.asarray(np.linalg.norm(changes.astype(np.float64), axis=1))


@dataclass(frozen=True, eq=False)
class PilotRounds:
    """Honest rounds of pilot clients, who stand for those of a job.

    model    of the job
    samples  that nobody of them trains on
    drawn    for each draw of clients, what computes their changes
    weight   of their reports
    combine  the server's rule for reports
    """

    model: Model
    samples: LabeledSamples
    drawn: Sequence[tuple[Engine, ClientChanges]]
    weight: FloatArray
    combine: Combine

    def loss(self, params: Params) -> float:
        """The loss of a model on the samples; infinity if it is none."""
        with np.errstate(all="ignore"):
            loss = self.model.loss(params, self.samples.features, self.samples.labels)
        return loss if np.isfinite(loss) else np.inf

    def after(self, params: Params, round_: int) -> HonestRounds:
        """What honest rounds from this model do."""
        models = [self.combine(round_ + 1, params, changes, self.weight) for changes in self._changes(params, round_)]
        return HonestRounds(np.array([self.loss(one) for one in models]), lengths(np.array(models) - params))

    def after_one(self, params: Params, round_: int, weight: float) -> HonestRounds:
        """What single honest reports do to this model, at this weight; the lengths are those of their changes."""
        reports = np.concatenate(self._changes(params, round_))
        losses = [self.loss(params + np.float32(weight) * change) for change in reports]
        return HonestRounds(np.array(losses), lengths(reports))

    def _changes(self, params: Params, round_: int) -> list[NDArray[np.float32]]:
        everybody = np.arange(len(self.weight))
        return [changes.of(engine.pack(params), round_, everybody) for engine, changes in self.drawn]


def pilot_rounds(side: ServerSide, training: Training, who: WhoTrains, combine: Combine) -> PilotRounds:
    """Honest rounds of a job with this training in which these take part."""
    who, pilot = who.some(), side.pilot
    order = generator(FIRST_SEED, Purpose.TEST).permutation(len(pilot.data))
    half = len(order) // 2
    inside, outside = order[half:], order[:half]
    sizes, drawn = np.maximum(np.rint(who.batches), 1).astype(np.int64), []
    for seed in range(FIRST_SEED, FIRST_SEED + DRAWS):
        partition = side.draw_clients(who.sizes, seed)
        rows = _exchanged(pilot.data.labels, partition.rows, inside, outside)
        everybody = Federated(
            pilot.model, pilot.data, Partition(rows, partition.starts), training, weight=who.weight, rule=pilot.rule
        )
        run = Run(seed, training.step_size, sizes, np.ones(len(sizes)), everybody.true_labels())
        engine = make_engine(everybody)
        drawn.append((engine, ClientChanges(everybody, engine, run)))
    return PilotRounds(pilot.model, pilot.data.take(outside[:MOST_SAMPLES]), drawn, who.weight, combine)


def _exchanged(
    labels: NDArray[np.int64], rows: NDArray[np.int64], inside: NDArray[np.int64], outside: NDArray[np.int64]
) -> NDArray[np.int64]:
    """These rows, with those outside replaced by ones inside of the same class, in turn; of any, if it has none."""
    exchanged, leaves = rows.copy(), np.isin(rows, outside)
    for label in np.unique(labels[rows[leaves]]).tolist():
        places = np.flatnonzero(leaves & (labels[rows] == label))
        same = inside[labels[inside] == label]
        exchanged[places] = np.resize(same if len(same) else inside, len(places))
    return exchanged
