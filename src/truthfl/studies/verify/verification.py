"""Does lying pay in real training? For any payment rule: runs where they are undecided, until they are decided.

All rules that are paid for the same training share its runs. Looks at `lie_grid`, `lie_training`, `gains`, `work`,
`learning` and the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.behaviour import Behaviour
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence
from truthfl.mechanism.setting import Clients, Training
from truthfl.studies.cells import Place
from truthfl.studies.verify.gains import Elicited, Gains, Losses, elicited_effort, gains
from truthfl.studies.verify.lie_grid import EMPTY_REPORT, GRID, KINDS, TRUTH, kind_of
from truthfl.studies.work import Progress, Result, Store, WorkItem, do_all

BoolArray = NDArray[np.bool_]

MOST_PROMISING = 3
TOLERANCE = 0.02  # of truthful pay: what counts as a gain


@dataclass(frozen=True, eq=False)
class Contest:
    """One way of training, and the rules that pay for it; all ask for the same batches."""

    place: Place
    training: Training
    clients: Clients
    rules: tuple[Mechanism, ...]

    @property
    def batch_size(self) -> FloatArray:
        return self.rules[0].batch_size


@dataclass(frozen=True)
class Examination:
    """Which lies of which clients, and after how many runs each to look whether it is decided if they pay.

    A lie pays if it gains more than the tolerance, a share of what honest work costs her.
    """

    clients: tuple[int, ...]
    lies: tuple[Behaviour, ...] = GRID
    looks: tuple[int, ...] = (6, 12, 24, 48)
    tolerance: float = TOLERANCE
    first_seed: int = 0


@dataclass(frozen=True)
class Worst:
    """The lie that gains most, and what it is in numbers."""

    client: str
    description: str
    labeling_effort: float
    batch_size: float
    assigned_batch_size: float
    report_scale: float
    gain: float


@dataclass(frozen=True)
class ByKind:
    """The best lie of one kind."""

    kind: str
    regret: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """One rule's answer.

    elicited_effort     real best-response batch over the assigned one
    regret              the largest gain of any lie, as a share of that client's truthful pay; with its 95% interval
    certain_regret      the largest lower end of any lie's interval: no lie is known to gain a larger share of pay
    gain_over_cost      the largest gain as a share of what honest work costs her
    lying_pays          whether that exceeds the tolerance; None where the interval does not say
    empty_report        what an empty report would gain if it were paid like any other
    pay_over_cost       what honest work is paid, over what it costs
    runs                how many training runs this rests on
    """

    rule: str
    elicited_effort: float
    elicited_low: float
    elicited_high: float
    regret: float
    regret_low: float
    regret_high: float
    certain_regret: float
    gain_over_cost: float
    worst_deviation: Worst
    lying_pays: bool | None
    empty_report: float
    pay_over_cost: float
    runs: int
    by_kind: tuple[ByKind, ...] = field(default=())


@dataclass(frozen=True, eq=False)
class Verified:
    """A contest's verdicts, and the losses of each client's lies that they rest on."""

    contest: Contest
    examined: Examination
    verdicts: tuple[Verdict, ...]
    losses: Mapping[int, Losses]


def verify(
    contest: Contest,
    examined: Examination,
    store: Store,
    *,
    workers: int | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Verified:
    """Look at every lie with a few runs; make more where some rule's answer is still open."""
    most = examined.looks[-1]
    shape = (1 + len(examined.lies), most)
    losses = {c: Losses(*(np.full(s, np.nan) for s in (shape, most, shape, most, most))) for c in examined.clients}
    open_lies = {c: np.ones(len(examined.lies), dtype=bool) for c in examined.clients}
    done, runs = 0, 0
    for number, seeds in enumerate(examined.looks):
        shapley = any(Evidence.SHAPLEY in rule.needs for rule in _unsettled(contest, examined, losses, done))
        asked = {c: some for c, some in open_lies.items() if some.any()}
        tasks = [_task(contest, examined, c, some, range(done, seeds), shapley) for c, some in asked.items()]
        tell = None if progress is None else progress(f"look {number + 1}: {sum(map(np.sum, asked.values()))} lies")
        for (client, some), result in zip(
            asked.items(), do_all(tasks, store, workers=workers, progress=tell), strict=True
        ):
            _write_down(losses[client], examined, some, slice(done, seeds), result)
            runs += result["loss"].size * (2 if shapley else 1)
        done = seeds
        waiting = _unsettled(contest, examined, losses, done)
        for client in asked:
            still = np.zeros(len(examined.lies), dtype=bool)
            for rule in waiting:
                still |= _open(rule, _gains(contest, examined, rule, client, losses[client]), examined)
            open_lies[client] &= still
        if not any(some.any() for some in open_lies.values()):
            break
    verdicts = tuple(_verdict(contest, examined, rule, losses, runs) for rule in contest.rules)
    return Verified(contest, examined, verdicts, losses)


def _trained(examined: Examination, some: BoolArray) -> IntArray:
    """Which of these lies take runs of their own: an empty report does not, for the loss without her says it all."""
    return np.flatnonzero(some & ~_empty(examined))


def _empty(examined: Examination) -> BoolArray:
    return np.array([lie.reports_nothing for lie in examined.lies], dtype=bool)


def _write_down(losses: Losses, examined: Examination, some: BoolArray, seeds: slice, result: Result) -> None:
    """What a task found: rows for the truth and the lies that were trained, and a last one without her."""
    rows = np.concatenate(([0], 1 + _trained(examined, some)))
    empty = 1 + np.flatnonzero(_empty(examined))
    losses.without[seeds] = result["loss"][-1]
    losses.loss[rows, seeds], losses.loss[empty, seeds] = result["loss"][:-1], result["loss"][-1]
    if "joined" in result:
        losses.joined[rows, seeds], losses.joined[empty, seeds] = result["joined"][:-1], result["joined"][-1]
        losses.alone[seeds], losses.nobody[seeds] = result["alone"], result["nobody"]


def _task(
    contest: Contest, examined: Examination, client: int, some: BoolArray, seeds: Sequence[int], shapley: bool
) -> WorkItem:
    assigned, owned = float(contest.batch_size[client]), float(contest.clients.dataset_size[client])
    lies = [TRUTH, *(examined.lies[k] for k in _trained(examined, some)), EMPTY_REPORT]
    for lie in lies:
        if not lie.is_strategy:
            raise InputError(f"{lie.name} is more than (e, D, γ); such lies cannot be verified yet.")
    return WorkItem(
        "studies.verify.lie_training:lied_losses",
        contest.place.said()
        | {
            "rounds": contest.training.rounds,
            "local_steps": contest.training.local_steps,
            "step_size": contest.training.step_size,
            "batch_size": contest.batch_size.tolist(),
            "client": client,
            "lies": [
                [lie.labeling_effort, float(lie.batch_size(assigned, at_most=owned)), lie.report_scale] for lie in lies
            ],
            "seeds": [examined.first_seed + seed for seed in seeds],
            "coalitions": shapley,
        },
    )


def _gains(contest: Contest, examined: Examination, rule: Mechanism, client: int, seen: Losses) -> Gains:
    return gains(
        rule,
        contest.clients,
        contest.training,
        client,
        examined.lies,
        seen,
        looks=len(examined.looks),
        compared=len(examined.lies) * len(examined.clients),
    )


def _empty_report_if_paid(contest: Contest, examined: Examination, rule: Mechanism, client: int, seen: Losses) -> float:
    """What an empty report would gain her as a share of honest pay, were it paid like any other."""
    seen, looks = seen.of_an_empty_report(), len(examined.looks)
    found = gains(
        rule, contest.clients, contest.training, client, [EMPTY_REPORT], seen, looks=looks, empty_is_paid=True
    )
    return float(found.share[0])


def _unsettled(
    contest: Contest, examined: Examination, losses: Mapping[int, Losses], done: int
) -> tuple[Mechanism, ...]:
    """Rules of which no lie is known to pay: one that does settles the matter."""
    if done == 0:
        return contest.rules
    return tuple(
        rule
        for rule in contest.rules
        if not any(_pays(_gains(contest, examined, rule, c, seen), examined).any() for c, seen in losses.items())
    )


def _pays(found: Gains, examined: Examination) -> BoolArray:
    """Which lies are known to pay, even though they are the best of many."""
    return found.surely > examined.tolerance / found.of_cost


def _open(rule: Mechanism, found: Gains, examined: Examination) -> BoolArray:
    """Which lies' intervals do not say on which side of the tolerance they are.

    Coalitions scatter so much that under Shapley pay all lies would stay open: of them, only the most promising.
    """
    limit = examined.tolerance / found.of_cost
    still = (found.low <= limit) & (found.high >= limit)
    if Evidence.SHAPLEY in rule.needs:
        still &= found.share >= np.sort(found.share)[-MOST_PROMISING:].min()
    return still


def _verdict(
    contest: Contest, examined: Examination, rule: Mechanism, losses: Mapping[int, Losses], runs: int
) -> Verdict:
    found = {c: _gains(contest, examined, rule, c, seen) for c, seen in losses.items()}
    client = max(found, key=lambda c: float(np.nanmax(found[c].share)) * found[c].of_cost)
    lie = int(np.nanargmax(found[client].share))
    worst, at = examined.lies[lie], found[client]
    assigned, owned = float(rule.batch_size[client]), float(contest.clients.dataset_size[client])
    pays = any(_pays(one, examined).any() for one in found.values())
    highest = max(float(np.nanmax(one.high)) * one.of_cost for one in found.values())
    effort: Elicited = elicited_effort(rule, contest.clients, contest.training, examined.lies, losses)
    return Verdict(
        rule=rule.name,
        elicited_effort=effort.effort,
        elicited_low=effort.low,
        elicited_high=effort.high,
        regret=float(at.share[lie]),
        regret_low=float(at.low[lie]),
        regret_high=float(at.high[lie]),
        certain_regret=max(float(np.nanmax(one.low)) for one in found.values()),
        gain_over_cost=float(at.share[lie]) * at.of_cost,
        worst_deviation=Worst(
            client=contest.clients.label(client),
            description=worst.name,
            labeling_effort=worst.labeling_effort,
            batch_size=float(worst.batch_size(assigned, at_most=owned)) if worst.computes else 0.0,
            assigned_batch_size=assigned,
            report_scale=worst.report_scale,
            gain=float(at.money[lie]),
        ),
        lying_pays=True if pays else False if highest < examined.tolerance else None,
        empty_report=max(_empty_report_if_paid(contest, examined, rule, c, seen) for c, seen in losses.items()),
        pay_over_cost=sum(one.pay for one in found.values()) / sum(one.cost for one in found.values()),
        runs=runs,
        by_kind=tuple(_best_of_kind(kind, examined.lies, tuple(found.values())) for kind in KINDS),
    )


def _best_of_kind(kind: str, lies: Sequence[Behaviour], found: Sequence[Gains]) -> ByKind:
    of_kind = np.array([kind_of(lie) == kind for lie in lies])
    if not of_kind.any():
        return ByKind(kind, float("nan"), float("nan"), float("nan"))
    best = max(found, key=lambda one: float(np.nanmax(one.share[of_kind])))
    at = int(np.flatnonzero(of_kind)[np.nanargmax(best.share[of_kind])])
    return ByKind(kind, float(best.share[at]), float(best.low[at]), float(best.high[at]))
