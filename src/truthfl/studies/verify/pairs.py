"""A first look at coalitions: two clients of whom one labels, and both train on her samples and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.adversary.lie_pay import Honest, Lied, pay
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.observation import Evidence
from truthfl.studies.verify.lie_trainer import Place, payers_of, place_settings
from truthfl.studies.verify.rule_tests import RuleTest
from truthfl.studies.work import Progress, Store, Workers, WorkItem, do_all


@dataclass(frozen=True, eq=False)
class PairGains:
    """Money of one pair per split, arrays (splits,): what they gain together, and their honest pay."""

    gain: FloatArray
    pay: FloatArray


def pair_gains(
    test: RuleTest,
    places: Sequence[Place],
    first_seed: int,
    store: Store,
    *,
    workers: int | Workers | None,
    progress: Progress | None,
) -> list[PairGains]:
    """The gains of one pair on each split, for each rule; empty with fewer than two clients.

    The partner saves the cost of labeling, and computes and reports as she was asked, on the other's samples.
    """
    counts = [len(test.draws[place.draw].clients) for place in places]
    if min(counts) < 2:
        return []
    pairs = [(k % count, (k + 1 + k // count % (count - 1)) % count) for k, count in enumerate(counts)]
    settings = {"coalitions": True} if test.needs(Evidence.SHAPLEY) else {}
    items = [
        WorkItem(
            "studies.verify.lie_training:pair_losses",
            place_settings(test, place) | settings | {"pairs": [list(pair)], "seeds": [first_seed + number]},
        )
        for number, (place, pair) in enumerate(zip(places, pairs, strict=True))
    ]
    results = do_all(items, store, workers=workers, progress=progress)
    fields = ("loss", "without", "joined", "alone")
    arrays = [np.concatenate([result[name] for result in results], axis=1) for name in fields]
    nobody = np.repeat(np.concatenate([result["nobody"] for result in results]), 2)
    solo = np.concatenate([result["solo"] for result in results], axis=1)
    shift = np.concatenate([result["shift"] for result in results]).ravel()
    liar, payer = np.array(pairs, dtype=np.int64).ravel(), np.repeat([place.draw for place in places], 2)
    labeling = [test.draws[place.draw].clients.labeling_cost for place in places]
    saved = np.array([costs[partner] for costs, (_, partner) in zip(labeling, pairs, strict=True)])

    def pay_of_pairs(rule: int, shared: int) -> FloatArray:
        """The pay of both together, (pairs,); with honest labels or shared ones."""
        loss, without, joined, alone = (values[shared].ravel() for values in arrays)
        alike = solo[shared].ravel()
        observed = Honest(liar, payer, loss, without, joined, alone, nobody, alike, shift)
        lied = Lied(loss[None], np.ones((1, len(loss))), joined[None], alike[None])
        paid = pay(payers_of(test, rule), lied, observed)
        return np.asarray(paid[0].reshape(-1, 2).sum(axis=1))

    return [
        PairGains(pay_of_pairs(rule, 1) - pay_of_pairs(rule, 0) + saved, pay_of_pairs(rule, 0))
        for rule in range(len(test.names))
    ]


def runs_per_pair(test: RuleTest) -> int:
    """Training runs for each pair: honest and shared labels, with both and without each; coalitions for Shapley pay."""
    return 14 if test.needs(Evidence.SHAPLEY) else 6
