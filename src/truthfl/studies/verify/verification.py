"""Measures the gains from lies in real training under payment rules, adding runs until each answer is decided.

Rules that pay for the same training share its runs. Imports `lie_grid`, `gains`, `verdicts`, `studies.cells`,
`studies.work`, `learning.behaviour` and `mechanism`; the work items call `lie_training`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.behaviour import Behaviour
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence
from truthfl.mechanism.setting import Clients, Training
from truthfl.studies.cells import FederationSpec
from truthfl.studies.verify.gains import ElicitedEffort, Gains, Losses, elicited_effort, gains
from truthfl.studies.verify.lie_grid import EMPTY_REPORT, GRID, KINDS, TRUTH, kind_of
from truthfl.studies.verify.verdicts import BestOfKind, Verdict, WorstDeviation
from truthfl.studies.work import Progress, Result, Store, WorkItem, do_all

BoolArray = NDArray[np.bool_]

MOST_PROMISING = 3  # number of lies per client that are trained further under Shapley pay
TOLERANCE = 0.02  # gain that does not count, as a share of the cost of honest work


@dataclass(frozen=True, eq=False)
class RuleTest:
    """A federation, training parameters, and the rules that pay for this training; all assign the same batches."""

    federation: FederationSpec
    training: Training
    clients: Clients
    rules: tuple[Mechanism, ...]

    @property
    def batch_size(self) -> FloatArray:
        return self.rules[0].batch_size


@dataclass(frozen=True)
class VerificationDesign:
    """The lies and clients to examine.

    looks       numbers of runs of each lie after which intervals are computed; decided lies get no further runs
    tolerance   a lie pays if it gains more than this share of the cost of honest work
    first_seed  of the runs
    """

    clients: tuple[int, ...]
    lies: tuple[Behaviour, ...] = GRID
    looks: tuple[int, ...] = (6, 12, 24, 48)
    tolerance: float = TOLERANCE
    first_seed: int = 0


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """The verdicts of a rule test, and the losses of each client's lies from which they were computed."""

    test: RuleTest
    design: VerificationDesign
    verdicts: tuple[Verdict, ...]
    losses: Mapping[int, Losses]


def verify(
    test: RuleTest,
    design: VerificationDesign,
    store: Store,
    *,
    workers: int | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> VerificationResult:
    """Train every lie with a few seeds, and with more as long as the verdict of a rule is undecided.

    progress  called with the name of each look; returns the callback for the progress of its tasks
    """
    most = design.looks[-1]
    shape = (1 + len(design.lies), most)
    losses = {c: Losses(*(np.full(s, np.nan) for s in (shape, most, shape, most, most))) for c in design.clients}
    open_lies = {c: np.ones(len(design.lies), dtype=bool) for c in design.clients}
    done, runs = 0, 0
    for number, seeds in enumerate(design.looks):
        shapley = any(Evidence.SHAPLEY in rule.needs for rule in _undecided_rules(test, design, losses, done))
        trained = {c: lies for c, lies in open_lies.items() if lies.any()}
        tasks = [_task(test, design, c, lies, range(done, seeds), shapley) for c, lies in trained.items()]
        look = f"look {number + 1}: {sum(map(np.sum, trained.values()))} lies"
        results = do_all(tasks, store, workers=workers, progress=None if progress is None else progress(look))
        for (client, lies), result in zip(trained.items(), results, strict=True):
            _store_result(losses[client], design, lies, slice(done, seeds), result)
            runs += result["loss"].size * (2 if shapley else 1)
        done = seeds
        undecided = _undecided_rules(test, design, losses, done)
        for client in trained:
            still_open = np.zeros(len(design.lies), dtype=bool)
            for rule in undecided:
                still_open |= _open_lies(rule, _gains(test, design, rule, client, losses[client]), design)
            open_lies[client] &= still_open
        if not any(lies.any() for lies in open_lies.values()):
            break
    verdicts = tuple(_verdict(test, design, rule, losses, runs) for rule in test.rules)
    return VerificationResult(test, design, verdicts, losses)


def _trained(design: VerificationDesign, chosen: BoolArray) -> IntArray:
    """The chosen lies that need runs of their own: all but empty reports, which have the loss without the client."""
    return np.flatnonzero(chosen & ~_empty(design))


def _empty(design: VerificationDesign) -> BoolArray:
    return np.array([lie.reports_nothing for lie in design.lies], dtype=bool)


def _store_result(losses: Losses, design: VerificationDesign, chosen: BoolArray, seeds: slice, result: Result) -> None:
    """Store a task's result in `losses`: rows of the truth and the trained lies, and a last row without the client."""
    rows = np.concatenate(([0], 1 + _trained(design, chosen)))
    empty = 1 + np.flatnonzero(_empty(design))
    losses.without[seeds] = result["loss"][-1]
    losses.loss[rows, seeds], losses.loss[empty, seeds] = result["loss"][:-1], result["loss"][-1]
    if "joined" in result:
        losses.joined[rows, seeds], losses.joined[empty, seeds] = result["joined"][:-1], result["joined"][-1]
        losses.alone[seeds], losses.nobody[seeds] = result["alone"], result["nobody"]


def _task(
    test: RuleTest, design: VerificationDesign, client: int, chosen: BoolArray, seeds: Sequence[int], shapley: bool
) -> WorkItem:
    assigned, owned = float(test.batch_size[client]), float(test.clients.dataset_size[client])
    lies = [TRUTH, *(design.lies[k] for k in _trained(design, chosen)), EMPTY_REPORT]
    for lie in lies:
        if not lie.is_strategy:
            raise InputError(f"{lie.name} is more than (e, D, γ); such lies cannot be verified yet.")
    return WorkItem(
        "studies.verify.lie_training:lied_losses",
        test.federation.settings()
        | {
            "rounds": test.training.rounds,
            "local_steps": test.training.local_steps,
            "step_size": test.training.step_size,
            "batch_size": test.batch_size.tolist(),
            "client": client,
            "lies": [
                [lie.labeling_effort, float(lie.batch_size(assigned, at_most=owned)), lie.report_scale] for lie in lies
            ],
            "seeds": [design.first_seed + seed for seed in seeds],
            "coalitions": shapley,
        },
    )


def _gains(test: RuleTest, design: VerificationDesign, rule: Mechanism, client: int, losses: Losses) -> Gains:
    return gains(
        rule,
        test.clients,
        test.training,
        client,
        design.lies,
        losses,
        looks=len(design.looks),
        compared=len(design.lies) * len(design.clients),
    )


def _empty_report_if_paid(
    test: RuleTest, design: VerificationDesign, rule: Mechanism, client: int, losses: Losses
) -> float:
    """The gain of an empty report as a share of honest pay, if it were paid like any other."""
    losses, looks = losses.with_empty_report(), len(design.looks)
    gain = gains(rule, test.clients, test.training, client, [EMPTY_REPORT], losses, looks=looks, empty_is_paid=True)
    return float(gain.share[0])


def _undecided_rules(
    test: RuleTest, design: VerificationDesign, losses: Mapping[int, Losses], done: int
) -> tuple[Mechanism, ...]:
    """The rules under which no lie is known to pay yet."""
    if done == 0:
        return test.rules
    return tuple(
        rule
        for rule in test.rules
        if not any(_pays(_gains(test, design, rule, c, of_client), design).any() for c, of_client in losses.items())
    )


def _pays(gain: Gains, design: VerificationDesign) -> BoolArray:
    """A mask of the lies that are known to pay, by intervals that hold for all lies at once."""
    return gain.simultaneous_low > design.tolerance / gain.cost_factor


def _open_lies(rule: Mechanism, gain: Gains, design: VerificationDesign) -> BoolArray:
    """A mask of the lies whose intervals contain the tolerance.

    Under Shapley pay the noise of coalitions keeps nearly all intervals open, so only the most promising lies are kept.
    """
    limit = design.tolerance / gain.cost_factor
    is_open = (gain.low <= limit) & (gain.high >= limit)
    if Evidence.SHAPLEY in rule.needs:
        is_open &= gain.share >= np.sort(gain.share)[-MOST_PROMISING:].min()
    return is_open


def _verdict(
    test: RuleTest, design: VerificationDesign, rule: Mechanism, losses: Mapping[int, Losses], runs: int
) -> Verdict:
    by_client = {c: _gains(test, design, rule, c, of_client) for c, of_client in losses.items()}
    client = max(by_client, key=lambda c: float(np.nanmax(by_client[c].share)) * by_client[c].cost_factor)
    all_gains, of_worst = tuple(by_client.values()), by_client[client]
    lie = int(np.nanargmax(of_worst.share))
    worst = design.lies[lie]
    assigned, owned = float(rule.batch_size[client]), float(test.clients.dataset_size[client])
    pays = any(_pays(gain, design).any() for gain in all_gains)
    highest = max(float(np.nanmax(gain.high)) * gain.cost_factor for gain in all_gains)
    effort: ElicitedEffort = elicited_effort(rule, test.clients, test.training, design.lies, losses)
    return Verdict(
        rule=rule.name,
        elicited_effort=effort.effort,
        elicited_low=effort.low,
        elicited_high=effort.high,
        regret=float(of_worst.share[lie]),
        regret_low=float(of_worst.low[lie]),
        regret_high=float(of_worst.high[lie]),
        certain_regret=max(float(np.nanmax(gain.low)) for gain in all_gains),
        gain_over_cost=float(of_worst.share[lie]) * of_worst.cost_factor,
        worst_deviation=WorstDeviation(
            client=test.clients.label(client),
            description=worst.name,
            labeling_effort=worst.labeling_effort,
            batch_size=float(worst.batch_size(assigned, at_most=owned)) if worst.computes else 0.0,
            assigned_batch_size=assigned,
            report_scale=worst.report_scale,
            gain=float(of_worst.money[lie]),
        ),
        lying_pays=True if pays else False if highest < design.tolerance else None,
        empty_report=max(_empty_report_if_paid(test, design, rule, c, of_client) for c, of_client in losses.items()),
        pay_over_cost=sum(gain.pay for gain in all_gains) / sum(gain.cost for gain in all_gains),
        runs=runs,
        by_kind=tuple(_best_of_kind(kind, design.lies, all_gains) for kind in KINDS),
    )


def _best_of_kind(kind: str, lies: Sequence[Behaviour], gains_of_clients: Sequence[Gains]) -> BestOfKind:
    of_kind = np.array([kind_of(lie) == kind for lie in lies])
    if not of_kind.any():
        return BestOfKind(kind, float("nan"), float("nan"), float("nan"))
    best = max(gains_of_clients, key=lambda gain: float(np.nanmax(gain.share[of_kind])))
    at = int(np.flatnonzero(of_kind)[np.nanargmax(best.share[of_kind])])
    return BestOfKind(kind, float(best.share[at]), float(best.low[at]), float(best.high[at]))
