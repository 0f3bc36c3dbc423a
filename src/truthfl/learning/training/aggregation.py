"""Rules for combining the reports of a round: weighted mean, trimmed mean, median; Flower's server optimizers.

Weights come from the contract. The two robust rules look at every parameter separately:

- sort the changes of the clients by value, and lay their weights side by side, so that they fill a line of length 1;
- "trimmed" is the mean over the line without a fifth at either end, the default of Flower's FedTrimmedAvg; a client at
  the edge counts with the part of their weight that is not cut;
- "median" is the value in the middle of the line; if the middle is the border of two clients, it is their mean.

The result is multiplied by the sum of the weights, so that missing reports reduce it as they reduce the mean. A custom
Flower strategy may combine reports in another way. A `ReportRule` says which rule is used, and what happens with long
and with missing reports.

The server optimizers take a step from the weighted mean of the changes. They are implemented here because planning
trains thousands of runs, and Flower's own records and messages would take a hundred times as long. Tests compare them
with Flower's results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.models.model import Params

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy


MEAN, TRIMMED, MEDIAN = "mean", "trimmed", "median"
Combine = Callable[[int, Params, NDArray[np.float32], NDArray[np.float64]], Params]
"""From the round (from 1), the common model, the changes (reports, parameters) and their weights: the next model."""
CUT = {TRIMMED: 0.2, MEDIAN: 0.5 - 1e-6}  # the share of the weight that is cut off at either end


@dataclass(frozen=True)
class ReportRule:
    """A server's treatment of the reports of a round.

    aggregation  how they are combined: one of the three rules, or the name of a custom strategy
    bounds       the largest length (L2 norm) of a change in the first, second … and all later rounds; none: no bound
    clips        whether longer changes are shortened to the bound, as clients do for masked reports, not left out
    rescales     whether accepted reports also count for missing ones, so that the common model moves as far
                 as with all reports
    """

    aggregation: str = MEAN
    bounds: tuple[float, ...] = ()
    clips: bool = False
    rescales: bool = False

    def __post_init__(self) -> None:
        require_aggregation(self.aggregation)


def limited_changes(
    changes: NDArray[np.float32], rule: ReportRule, round_: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The changes in a round, (reports, parameters), shortened if the rule says so, and a mask of those accepted.

    Empty changes are not accepted, unless they are masked.
    """
    length = np.sqrt(np.square(changes, dtype=np.float64).sum(axis=1))
    if not rule.bounds:
        return changes, length > 0
    bound = rule.bounds[min(round_, len(rule.bounds) - 1)]
    if not rule.clips:
        return changes, (length > 0) & (length <= bound)
    factor = np.minimum(1.0, bound / np.maximum(length, 1e-300))
    return np.asarray(changes * factor.astype(np.float32)[:, None]), np.ones(len(changes), dtype=bool)


def taken_weights(weight: NDArray[np.float64], taken: NDArray[np.bool_], rule: ReportRule) -> NDArray[np.float64]:
    """The weights of accepted reports; if the rule rescales, they sum to the weights of all clients asked."""
    own = weight[taken]
    return own * missing_factor(float(weight.sum()), float(own.sum())) if rule.rescales else own


def missing_factor(asked: float, taken: float) -> float:
    """The factor that scales reports with this total weight up to the weight of all clients asked."""
    return asked / taken if taken > 0 else 1.0


def require_aggregation(aggregation: object) -> None:
    """Raise InputError unless this names a way to combine reports."""
    known = (MEAN, *CUT)
    if aggregation not in known and not is_own(aggregation):
        raise InputError(
            f"aggregation is {aggregation!r}; it must be one of {', '.join(map(repr, known))}, or a Flower strategy: "
            '"FILE.py:NAME".'
        )


def is_own(aggregation: object) -> bool:
    """Whether this names a custom strategy."""
    return isinstance(aggregation, str) and ":" in aggregation


def aggregation_document(aggregation: str) -> dict[str, str]:
    """JSON values for `aggregation_of` in another process; they change when the file changes."""
    if not is_own(aggregation):
        return {"use": aggregation}
    from truthfl.learning.training.own_strategy import portable

    return {"use": aggregation, "source": portable(aggregation)}


def aggregation_of(document: Mapping[str, str] | None) -> str:
    """The way to combine reports given by these JSON values; the mean if there are none.

    `InputError` if the file of a custom strategy has changed since the document was made.
    """
    if document is None:
        return MEAN
    if aggregation_document(document["use"]) != dict(document):
        raise InputError(f"the file of the strategy {document['use']} was changed in the meantime; start again.")
    return document["use"]


def with_momentum(changed: Params, now: Params, before: Params, momentum: float) -> Params:
    """The model after a round: `changed`, which is `now` with its reports, and a share of the change since `before`."""
    return changed if not momentum else np.asarray(changed + np.float32(momentum) * (now - before))


def new_combiner(aggregation: str) -> Combine:
    """A function that combines the reports of one training run, round by round."""
    if is_own(aggregation):
        from truthfl.learning.training.own_strategy import combiner_of

        return combiner_of(aggregation)

    def combine(_: int, common: Params, changes: NDArray[np.float32], weight: NDArray[np.float64]) -> Params:
        return np.asarray(common + combined_change(changes, weight, aggregation))

    return combine


def combined_change(changes: NDArray[np.float32], weight: NDArray[np.float64], aggregation: str) -> Params:
    """The change of the common model from these changes, (reports, parameters), of clients with these weights."""
    if not len(changes):
        return np.zeros(changes.shape[1], dtype=np.float32)
    if aggregation == MEAN:
        change = np.zeros(changes.shape[1], dtype=np.float32)
        for own, row in zip(weight.astype(np.float32), changes, strict=True):
            change += own * row
        return change
    cut, total = CUT[aggregation], float(weight.sum())
    order = np.argsort(changes, axis=0, kind="stable")
    end = np.cumsum(weight[order] / total, axis=0)
    kept = np.diff(np.clip(end, cut, 1.0 - cut), axis=0, prepend=cut)
    ordered = np.take_along_axis(changes, order, axis=0)
    return np.asarray((kept * ordered).sum(axis=0) * (total / (1.0 - 2.0 * cut)), dtype=np.float32)


OPTIMIZERS = ("FedAvgM", "FedAdam", "FedAdagrad", "FedYogi")


class ServerOptimizer:
    """Combines the reports of one run with the settings of a strategy of one of these classes.

    first, second  the moving averages of the changes and of their squares
    """

    def __init__(self, strategy: Strategy) -> None:
        self.kind, self.settings = type(strategy).__name__, dict(vars(strategy))
        self.first: Any = 0.0
        self.second: Any = 0.0

    def __call__(
        self, round_: int, common: Params, changes: NDArray[np.float32], weight: NDArray[np.float64]
    ) -> Params:
        """The common model after round `round_`, from 1; unchanged if there are no reports."""
        if not len(changes):
            return common
        change = combined_change(changes, weight, MEAN)
        step = self._momentum(change) if self.kind == "FedAvgM" else self._adaptive(round_, change)
        return np.asarray(common + step, dtype=np.float32)

    def _momentum(self, change: Params) -> Params:
        self.first = self.settings["server_momentum"] * self.first + change
        return np.asarray(self.settings["server_learning_rate"] * self.first)

    def _adaptive(self, round_: int, change: Params) -> Params:
        eta, beta_1, beta_2 = (self.settings[name] for name in ("eta", "beta_1", "beta_2"))
        square = np.square(change)
        self.first = beta_1 * self.first + (1.0 - beta_1) * change
        if self.kind == "FedAdagrad":
            self.second = self.second + square
        elif self.kind == "FedYogi":
            self.second = self.second - (1.0 - beta_2) * square * np.sign(self.second - square)
        else:
            self.second = beta_2 * self.second + (1.0 - beta_2) * square
            eta *= np.sqrt(1.0 - beta_2 ** (round_ + 1.0)) / (1.0 - beta_1 ** (round_ + 1.0))
        return np.asarray(eta * self.first / (np.sqrt(self.second) + self.settings["tau"]))
