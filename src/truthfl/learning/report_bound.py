"""How long honest reports are: the length that one honest report in a million exceeds, measured on pilot data.

The length of a report is the L2 norm of its change of the common model. Honest jobs are trained with clients drawn anew
from the pilot data, and the lengths are taken in some rounds. Lengths of one round are described by the mean and the
standard deviation of their logarithms; how far the longest are from the mean, in standard deviations, by a generalized
Pareto tail over all rounds. The bound is that of the round in which it is largest, and at most ten times the longest
report that was seen: small batches of samples that are learned already make reports of nearly 0, which spread the
logarithms without making any report longer. Imports `client_changes`, `engines`, `federated`, `federations`,
`mechanism.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from truthfl.learning.client_changes import ClientChanges
from truthfl.learning.engines import Run, make_engine
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide
from truthfl.mechanism.checks import FloatArray

EXCEEDED = 1e-6  # of honest reports
DRAWS = 10  # honest jobs
MOST_CLIENTS = 16  # of a job
MOST_ROUNDS = 10  # of a job
FIRST_SEED = 7000
TAIL = 0.1  # the share of reports that counts as the tail
MOST_TIMES_LONGEST = 10.0  # the bound, as a multiple of the longest report that was seen
LIGHTEST, HEAVIEST = -0.25, 0.3  # the shapes that the tail may have; it is never lighter than a normal one


@dataclass(frozen=True, eq=False)
class ReportLengths:
    """The distribution of the lengths of honest reports.

    center, spread  of the logarithms, one for each of the rounds looked at
    start           of the tail, in standard deviations above the center
    scale, shape    of the generalized Pareto distribution of what is beyond
    longest         the longest that was seen
    """

    center: FloatArray
    spread: FloatArray
    start: float
    scale: float
    shape: float
    longest: float

    def exceeded_by(self, share: float) -> float:
        """The length that this share of honest reports exceeds, in the round in which it is largest."""
        normal = NormalDist().inv_cdf(1.0 - share)
        if share < TAIL:
            ratio = TAIL / share
            beyond = np.log(ratio) if self.shape == 0 else (ratio**self.shape - 1.0) / self.shape
            normal = max(normal, self.start + self.scale * float(beyond))
        fitted = float(np.exp(self.center + normal * self.spread).max())
        return min(fitted, MOST_TIMES_LONGEST * self.longest)


def measure_report_bound(side: ServerSide, batches: FloatArray) -> float:
    """The bound for jobs like this pilot federation's: its training, numbers of samples and these batches."""
    return fit_lengths(honest_lengths(side, batches, FIRST_SEED, DRAWS)).exceeded_by(EXCEEDED)


def honest_lengths(side: ServerSide, batches: FloatArray, first_seed: int, draws: int) -> FloatArray:
    """Lengths of honest reports, (rounds, draws · clients), of clients drawn anew from the pilot data."""
    sizes, rounds = side.pilot.partition.sizes, side.pilot.training.rounds
    chosen = np.argsort(batches, kind="stable")
    if len(chosen) > MOST_CLIENTS:
        chosen = chosen[np.linspace(0, len(chosen) - 1, MOST_CLIENTS).astype(int)]
    moments = np.unique(np.rint(np.geomspace(1, rounds, min(MOST_ROUNDS, rounds))).astype(int)) - 1
    lengths = []
    for draw in range(draws):
        partition = side.draw_clients(tuple(int(size) for size in sizes[chosen]), first_seed + draw)
        federated = Federated(side.pilot.model, side.pilot.data, partition, side.pilot.training)
        lengths.append(_lengths_of_job(federated, batches[chosen], first_seed + draw, moments))
    return np.concatenate(lengths, axis=1)


def _lengths_of_job(
    federated: Federated, batches: FloatArray, seed: int, moments: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> FloatArray:
    """Lengths (moments, clients) in one honest job."""
    sizes = np.maximum(np.rint(batches), 1).astype(np.int64)
    run = Run(seed, federated.training.step_size, sizes, np.ones(len(sizes)), federated.true_labels())
    engine = make_engine(federated)
    changes, inner = ClientChanges(federated, engine, run), engine.pack(federated.model.init(seed))
    everybody, done, lengths = np.arange(len(sizes)), 0, []
    for moment in moments.tolist():
        engine.rounds(run, inner, done, moment)
        done = moment
        lengths.append(np.linalg.norm(changes.of(inner, moment, everybody).astype(np.float64), axis=1))
    return np.array(lengths)


def fit_lengths(lengths: FloatArray) -> ReportLengths:
    """The distribution of these lengths, (rounds, reports)."""
    logarithms = np.log(np.maximum(lengths, 1e-300))
    center, spread = logarithms.mean(axis=1), logarithms.std(axis=1, ddof=1)
    deviation = ((logarithms - center[:, None]) / np.maximum(spread, 1e-12)[:, None]).ravel()
    start = float(np.quantile(deviation, 1.0 - TAIL))
    beyond = np.sort(deviation[deviation > start] - start)
    mean = float(beyond.mean())
    rising = float((beyond * (np.arange(len(beyond)) / max(len(beyond) - 1, 1))).mean())  # probability-weighted moment
    falling = mean - rising
    shape = min(max(2.0 - mean / (mean - 2.0 * falling), LIGHTEST), HEAVIEST) if mean > 2.0 * falling else HEAVIEST
    return ReportLengths(center, spread, start, mean * (1.0 - shape), shape, float(lengths.max()))
