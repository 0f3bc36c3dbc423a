"""What honest rounds do to the loss on samples that nobody trained on, and how long their sums are, from pilot data.

Honest jobs are trained with clients drawn anew from one half of the pilot's samples; the loss is that on the other
half. So the limits are rather too wide than too narrow: the clients of a job have more samples than that. Four things
are measured in windows of rounds: the rise of the loss in one round, its rise above the lowest so far, the length of a
sum, and that length beside the median of the last sums. Each is described as the lengths of reports are
(`report_bound`), and limited to what one honest round in a million exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.draws import Purpose, generator
from truthfl.learning.engines import Run, make_engine
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.partition import Partition
from truthfl.learning.report_bound import EXCEEDED, MOST_CLIENTS, fit_tail, largest_from_half, moments_of
from truthfl.learning.single_reports import SingleReports, needs_single_reports
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

DRAWS = 10  # honest jobs
FIRST_SEED = 8000
WINDOW = 10  # rounds: the last ones with whose sums another is compared
FEWEST_LENGTHS = 3  # of sums, to compare another with
MOST_SAMPLES = 2000  # on which the loss is measured


@dataclass(frozen=True, eq=False)
class Limit:
    """A limit after so many earlier rounds that changed the model; straight lines in between.

    center, beyond  what an honest round does, and how far above it one in a million is
    """

    moments: NDArray[np.int64]
    center: FloatArray
    beyond: FloatArray

    def document(self) -> dict[str, list[float]]:
        """The limit as JSON values."""
        return {"moments": self.moments.tolist(), "center": self.center.tolist(), "beyond": self.beyond.tolist()}

    def at(self, changed: int, noise: float) -> float:
        """The limit in a round whose sum has so many times the noise of a round with everybody's report."""
        center, beyond = (np.interp(changed, self.moments, values) for values in (self.center, self.beyond))
        return float(center + noise * beyond)


@dataclass(frozen=True, eq=False)
class RoundLimits:
    """What honest rounds do not exceed.

    rise    of the loss in one round
    drift   of the loss above the lowest so far
    length  of a sum, as its square root
    growth  of the logarithm of a sum's length above that of the median of the last `WINDOW` sums
    """

    rise: Limit
    drift: Limit
    length: Limit
    growth: Limit


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


def measure_round_limits(side: ServerSide, training: Training, who: WhoTrains) -> RoundLimits:
    """The limits of a job with this training in which these take part."""
    who, moments = who.some(), moments_of(training.rounds)
    rises: list[list[float]] = [[] for _ in moments]
    drifts: list[list[float]] = [[] for _ in moments]
    roots: list[list[float]] = [[] for _ in moments]
    growths: list[list[float]] = [[] for _ in moments]
    for draw in range(DRAWS):
        jobs, others = honest_job(side, training, who, FIRST_SEED + draw)
        losses, lengths = rounds_of(jobs, others, who.batches, FIRST_SEED + draw, moments)
        for place, end in enumerate(moments.tolist()):
            first = max(0, end - WINDOW)
            for changed in range(first, end + 1):
                rises[place].append(losses[changed + 1] - losses[changed])
                best = min(loss for earlier, loss in losses.items() if earlier <= changed)
                drifts[place].append(losses[changed + 1] - best)
                roots[place].append(float(np.sqrt(lengths[changed])))
                recent = [lengths[earlier] for earlier in range(first, changed)]
                if len(recent) >= FEWEST_LENGTHS and lengths[changed] > 0:
                    growths[place].append(float(np.log(lengths[changed] / np.median(recent))))
    return RoundLimits(*(_limit(moments, values) for values in (rises, drifts, roots, growths)))


def honest_job(side: ServerSide, training: Training, who: WhoTrains, seed: int) -> tuple[Federated, LabeledSamples]:
    """Clients drawn from one half of the pilot's samples, and the other half, or some of it."""
    pilot, partition = side.pilot, side.draw_clients(who.sizes, seed)
    order = generator(seed, Purpose.TEST).permutation(len(pilot.data))
    half = len(order) // 2
    trained_on, others = order[half:], order[:half]
    rows = _exchanged(pilot.data.labels, partition.rows, trained_on, others)
    moved = Partition(rows, partition.starts)
    weight, q = who.weight, who.participation
    federated = Federated(pilot.model, pilot.data, moved, training, weight=weight, participation=q, rule=pilot.rule)
    return federated, pilot.data.take(others[:MOST_SAMPLES])


def rounds_of(
    federated: Federated, others: LabeledSamples, batches: FloatArray, seed: int, moments: NDArray[np.int64]
) -> tuple[dict[int, float], dict[int, float]]:
    """Of an honest job, in the windows that end with these rounds: losses on other samples and lengths of sums.

    Both by a number of finished rounds: the loss after them, and the length of the sum that follows.
    """
    sizes = np.maximum(np.rint(batches), 1).astype(np.int64)
    run = Run(seed, federated.training.step_size, sizes, np.ones(len(sizes)), federated.true_labels())
    base, model = make_engine(federated), federated.model
    engine = SingleReports(federated, base, run) if needs_single_reports(federated, run) else base
    inner, done = base.pack(model.init(seed)), 0
    losses: dict[int, float] = {}
    lengths: dict[int, float] = {}
    for end in moments.tolist():
        first = max(0, end - WINDOW)
        engine.rounds(run, inner, done, max(done, first))
        done = max(done, first)
        for changed in range(done, end + 1):
            before = base.unpack(inner)
            if changed not in losses:
                losses[changed] = model.loss(before, others.features, others.labels)
            engine.rounds(run, inner, changed, changed + 1)
            after = base.unpack(inner)
            losses[changed + 1] = model.loss(after, others.features, others.labels)
            lengths[changed] = float(np.linalg.norm((after - before).astype(np.float64)))
        done = end + 1
    return losses, lengths


def _limit(moments: NDArray[np.int64], values: Sequence[Sequence[float]]) -> Limit:
    """The limit of values that were seen in windows that end with these rounds."""
    kept = [place for place, seen in enumerate(values) if len(seen) > 1]
    if not kept:  # so few rounds that no sum is compared with others
        return Limit(moments[:1], np.zeros(1), np.zeros(1))
    tails = fit_tail([np.array(values[place]) for place in kept])
    center = np.maximum(tails.center, 0.0)
    beyond = tails.exceeded_by(EXCEEDED) - tails.center
    ends = moments[kept]
    return Limit(ends, largest_from_half(ends, center), largest_from_half(ends, beyond))


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
