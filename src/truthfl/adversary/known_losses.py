"""`KnownLosses`: the losses of lies in a list of cases; each is trained once, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from truthfl.adversary.lie_pay import Honest, Lied
from truthfl.adversary.lie_point import ABSENCE, TRUTH, LiePoint
from truthfl.adversary.lie_runs import LieLosses
from truthfl.mechanism.checks import FloatArray, IntArray

Train = Callable[[Sequence[tuple[Sequence[LiePoint], range]]], list[LieLosses]]
"""Groups of points, each with a range of cases → the losses of each group in its cases."""


@dataclass(eq=False)
class KnownLosses:
    """Losses of lies in cases.

    liar, payer    (cases,) as in `Honest`
    train          trains what is not known yet
    runs_per_case  training runs for each point in each case
    runs           the number of training runs so far
    """

    liar: IntArray
    payer: IntArray
    train: Train
    runs_per_case: int = 1
    runs: int = 0
    _honest: Honest | None = None
    _known: dict[LiePoint, FloatArray] = field(default_factory=dict)  # (fields of `Lied`, cases so far)

    def honest(self) -> Honest:
        """Honest work in all cases."""
        if self._honest is None:
            results = self._trained([((TRUTH, ABSENCE), range(len(self.liar)))])[0]
            if self.runs_per_case == 2:
                self.runs += len(self.liar)  # of the coalitions without her
            (loss, without), (joined, _) = results.loss, results.joined
            self._honest = Honest(
                self.liar,
                self.payer,
                loss,
                without,
                joined,
                results.alone,
                results.nobody,
                results.solo[0],
                results.shift,
            )
            self._known[ABSENCE] = _columns(results, 1)
        return self._honest

    def lied(self, points: Sequence[LiePoint], cases: int) -> Lied:
        """The losses of these points in the first cases."""
        self.honest()
        waiting: dict[int, list[LiePoint]] = {}  # by the number of cases that are known
        for point in points:
            have = self._known[point].shape[1] if point in self._known else 0
            if have < cases:
                waiting.setdefault(have, []).append(point)
        groups = [(group, range(have, cases)) for have, group in waiting.items()]
        for (group, new), results in zip(groups, self._trained(groups), strict=True):
            for k, point in enumerate(group):
                earlier = [self._known[point]] if new.start else []
                self._known[point] = np.concatenate([*earlier, _columns(results, k)], axis=1)
        return Lied(*np.stack([self._known[point][:, :cases] for point in points], axis=1))

    def _trained(self, groups: Sequence[tuple[Sequence[LiePoint], range]]) -> list[LieLosses]:
        self.runs += self.runs_per_case * sum(len(points) * len(cases) for points, cases in groups)
        return self.train(groups)


def _columns(results: LieLosses, point: int) -> FloatArray:
    """The fields of `Lied` of one point, (fields, cases)."""
    return np.stack([results.loss[point], results.delivered[point], results.joined[point], results.solo[point]])
