"""The effect of an honest round on a model, and the lengths of honest reports, measured with pilot clients.

The length of a report is the L2 norm of its change of the common model. Honest jobs are trained with clients drawn anew
from the pilot data, and the lengths are measured in some rounds. Square roots of lengths are described by their mean
and standard deviation in each round, and by one generalized Pareto tail over all rounds. This tail is never lighter
than an exponential one. (Logarithms would be wrong: small batches of samples that are learned already make reports of
nearly 0. These spread the logarithms without making any report longer.)

A bound is stated for a number of earlier rounds that changed the model, not for a number of rounds: a skipped round
leaves the model as far behind, and the next reports as long, as before. For the same reason a bound is the largest one
from half that number on: in a job in which reports are missing, the model may be that far behind.

How far the loss may rise in an honest round depends far more on the model at the start of the round than on the number
of the round. With a step that is nearly too long, the loss rises often and soon falls again. So honest rounds are
trained from that very model, each by clients drawn anew from one half of the pilot's samples. The loss is measured on
the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import FloatArray, Training
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Model, Params
from truthfl.learning.training.aggregation import Combine
from truthfl.learning.training.draws import Purpose, generator
from truthfl.learning.training.rounds import ClientChanges, Engine, make_engine
from truthfl.learning.training.run import Run

EXCEEDED = 1e-6  # of honest reports
BOUND_DRAWS = 10  # honest jobs
MOST_CLIENTS = 16  # of a job
MOST_ROUNDS = 12  # of a job
FIRST_BOUND_SEED = 7000
TAIL = 0.1  # the share of values that counts as the tail
HEAVIEST = 0.3  # the largest shape of the tail

Bounds = tuple[tuple[int, float], ...]
"""Pairs: a number of earlier rounds that changed the model, rising from 0, and the bound after this many."""


@dataclass(frozen=True, eq=False)
class Tail:
    """The upper tail of values in several rounds.

    center, spread  one for each round
    start           of the tail, in spreads above the center
    scale, shape    of the generalized Pareto distribution of the values beyond
    """

    center: FloatArray
    spread: FloatArray
    start: float
    scale: float
    shape: float

    def exceeded_by(self, share: float) -> FloatArray:
        """By round: the value that this share of all values exceeds; a share below `TAIL`."""
        ratio = TAIL / share
        beyond = np.log(ratio) if self.shape == 0 else (ratio**self.shape - 1.0) / self.shape
        return np.asarray(self.center + (self.start + self.scale * float(beyond)) * self.spread)


def fit_tail(values: Sequence[FloatArray]) -> Tail:
    """The upper tail of these values, at least two of each round, by probability-weighted moments."""
    center = np.array([own.mean() for own in values])
    spread = np.array([max(float(own.std(ddof=1)), 1e-12) for own in values])
    deviation = np.concatenate([(own - mean) / width for own, mean, width in zip(values, center, spread, strict=True)])
    start = float(np.quantile(deviation, 1.0 - TAIL))
    beyond = np.sort(deviation[deviation > start] - start)
    mean = float(beyond.mean()) if len(beyond) else 0.0
    rising = float((beyond * (np.arange(len(beyond)) / max(len(beyond) - 1, 1))).mean()) if len(beyond) else 0.0
    falling = mean - rising
    shape = min(max(2.0 - mean / (mean - 2.0 * falling), 0.0), HEAVIEST) if mean > 2.0 * falling else HEAVIEST
    return Tail(center, spread, start, mean * (1.0 - shape), shape)


def longest_honest(lengths: FloatArray, share: float) -> FloatArray:
    """By round: the length that this share of honest reports exceeds, from lengths (rounds, reports)."""
    return np.square(fit_tail(list(np.sqrt(lengths))).exceeded_by(share))


@dataclass(frozen=True, eq=False)
class HonestJob:
    """A job of honest clients: their federation, batches and seed; `start` as in `train`."""

    federated: Federated
    batches: FloatArray
    seed: int
    start: Params | None = None


def measure_report_bounds(jobs: Sequence[HonestJob]) -> Bounds:
    """The bounds for jobs like these, of clients drawn from the pilot data."""
    rounds = jobs[0].federated.training.rounds
    if not rounds:
        return ()
    moments = moments_of(rounds)
    fitted = longest_honest(honest_lengths(jobs), EXCEEDED)
    allowed = largest_from_half(moments, fitted)
    return tuple((int(moment), float(f"{bound:.4g}")) for moment, bound in zip(moments, allowed, strict=True))


def largest_from_half(moments: NDArray[np.int64], values: FloatArray) -> FloatArray:
    """By moment: the largest value from half that moment up to it; values in between lie on straight lines."""
    halves = np.interp(moments / 2.0, moments, values)
    between = (moments[None] <= moments[:, None]) & (moments[None] >= moments[:, None] / 2.0)
    return np.asarray(np.maximum(halves, np.where(between, values[None], -np.inf).max(axis=1)))


def moments_of(rounds: int) -> NDArray[np.int64]:
    """The numbers of earlier rounds to measure, from 0 to the last, closer together at the beginning."""
    return np.unique(np.rint(np.geomspace(1, rounds, min(MOST_ROUNDS, rounds))).astype(np.int64)) - 1


def honest_jobs(
    side: ServerSide, batches: FloatArray, first_seed: int = FIRST_BOUND_SEED, draws: int = BOUND_DRAWS
) -> list[HonestJob]:
    """Jobs with this pilot federation's training and numbers of samples, of clients drawn anew."""
    sizes = side.pilot.partition.sizes
    chosen = np.argsort(batches, kind="stable")
    if len(chosen) > MOST_CLIENTS:
        chosen = chosen[np.linspace(0, len(chosen) - 1, MOST_CLIENTS).astype(int)]
    own = tuple(int(size) for size in sizes[chosen])
    return [
        HonestJob(side.pilot.of_others(side.draw_clients(own, seed)), batches[chosen], seed)
        for seed in range(first_seed, first_seed + draws)
    ]


def honest_lengths(jobs: Sequence[HonestJob]) -> FloatArray:
    """Lengths of honest reports, (moments, jobs · clients)."""
    return np.concatenate([_lengths_of_job(job) for job in jobs], axis=1)


def _lengths_of_job(job: HonestJob) -> FloatArray:
    """Lengths (moments, clients) in one honest job."""
    federated, batches, seed = job.federated, job.batches, job.seed
    moments = moments_of(federated.training.rounds)
    sizes = np.maximum(np.rint(batches), 1).astype(np.int64)
    run = Run(seed, federated.training.step_size, sizes, np.ones(len(sizes)), federated.true_labels())
    engine = make_engine(federated)
    start = federated.model.init(seed) if job.start is None else job.start
    changes, inner = ClientChanges(federated, engine, run), engine.pack(start)
    before = inner.copy()
    everybody, done, lengths = np.arange(len(sizes)), 0, []
    for moment in moments.tolist():
        engine.rounds(run, inner, before, done, moment)
        done = moment
        lengths.append(np.linalg.norm(changes.of(inner, moment, everybody).astype(np.float64), axis=1))
    return np.array(lengths)


DRAWS = 8  # honest rounds
FIRST_SEED = 8000
MOST_SAMPLES = 1000  # on which the loss is measured


@dataclass(frozen=True, eq=False)
class WhoTrains:
    """The participants of a job: numbers of samples, batches, weights (with sum 1) and shares of rounds."""

    sizes: tuple[int, ...]
    batches: FloatArray
    weight: FloatArray
    participation: FloatArray

    def some(self) -> WhoTrains:
        """All of them, or `MOST_CLIENTS`, whose sums are noisier than the sums of all."""
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
    """Honest rounds of pilot clients, who stand for the clients of a job.

    model    of the job
    samples  on which none of them trains
    drawn    for each draw of clients, the object that computes their changes
    weight   of their reports
    combine  the server's rule for reports
    """

    model: Model
    samples: LabeledSamples
    drawn: Sequence[tuple[Engine, ClientChanges]]
    weight: FloatArray
    combine: Combine

    def loss(self, params: Params) -> float:
        """The loss of a model on the samples; infinity if it is not a number."""
        with np.errstate(all="ignore"):
            loss = self.model.loss(params, self.samples.features, self.samples.labels)
        return loss if np.isfinite(loss) else np.inf

    def after(self, params: Params, round_: int) -> HonestRounds:
        """The effect of honest rounds from this model."""
        models = [self.combine(round_ + 1, params, changes, self.weight) for changes in self._changes(params, round_)]
        return HonestRounds(np.array([self.loss(one) for one in models]), lengths(np.array(models) - params))

    def after_one(self, params: Params, round_: int, weight: float) -> HonestRounds:
        """The effect of single honest reports on this model, at this weight; the lengths are those of their changes."""
        reports = np.concatenate(self._changes(params, round_))
        losses = [self.loss(params + np.float32(weight) * change) for change in reports]
        return HonestRounds(np.array(losses), lengths(reports))

    def _changes(self, params: Params, round_: int) -> list[NDArray[np.float32]]:
        everybody = np.arange(len(self.weight))
        return [changes.of(engine.pack(params), round_, everybody) for engine, changes in self.drawn]


def pilot_rounds(side: ServerSide, training: Training, who: WhoTrains, combine: Combine) -> PilotRounds:
    """Honest rounds of a job with this training and these participants."""
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
    """These rows. Those outside are replaced in turn by inside rows of the same class, or of any if it has none."""
    exchanged, leaves = rows.copy(), np.isin(rows, outside)
    for label in np.unique(labels[rows[leaves]]).tolist():
        places = np.flatnonzero(leaves & (labels[rows] == label))
        same = inside[labels[inside] == label]
        exchanged[places] = np.resize(same if len(same) else inside, len(places))
    return exchanged
