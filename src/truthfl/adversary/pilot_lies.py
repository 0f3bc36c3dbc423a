"""A short search for lies on the operator's pilot data before any offers are made, and objections to a plan.

It shows which lies gain most under a planned contract, and what each client's work is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truthfl.adversary.measure import Case, KnownSolo, LieLosses, Payer, SoloTerms, Split, gains, train_lies
from truthfl.adversary.search import KnownLosses, rungs_of, search
from truthfl.adversary.strategy import TRUTH, LiePoint, LieSpace
from truthfl.contracts.contract import COLLECTED_BY_JOBS, Evidence, Observation
from truthfl.contracts.details import CERTAIN, PlanWorth
from truthfl.contracts.formulas import LITTLE_GAIN
from truthfl.contracts.planning import Plan
from truthfl.contracts.setting import Clients, FloatArray, IntArray, batch_price
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Federated
from truthfl.learning.pilot.reduced_federation import reduce_federation, some_clients_of
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.solo import possible_recipes

SEARCH_RUNS = 160
FEWEST_CASES = 20  # on which the best lies are measured
WHOLE_PILOT_CLIENTS = 10  # with more clients, one of some single clients lies; the others are merged into groups
MEASUREMENT_SEEDS = 1_000_000  # first seed of the runs that measure


@dataclass(frozen=True, eq=False)
class LossRise:
    """The rise of the test loss if one client does something, (clients,), and the standard errors."""

    mean: FloatArray
    error: FloatArray


@dataclass(frozen=True, eq=False)
class PilotLie:
    """A lie, and its effect on the loss for each client who tells it.

    delivered         the share of the rounds in which their report is accepted
    solo_rise, solo_rise_error
                      by how much the loss of their solo model rises, and its standard error; 0 if none is tested
    gain, gain_error  (clients,) money beyond what honest work leaves them, and its standard error
    """

    point: LiePoint
    rise: LossRise
    delivered: float
    solo_rise: float
    solo_rise_error: float
    gain: FloatArray
    gain_error: FloatArray


@dataclass(frozen=True, eq=False)
class PilotLies:
    """The results of the search.

    lies     the best lie of each kind, the one that gained most in the search first
    absence  the rise of the loss without each client
    points   lies that were tried
    runs     training runs
    """

    lies: tuple[PilotLie, ...]
    absence: LossRise
    points: int
    runs: int


@dataclass(frozen=True, eq=False)
class _Stage:
    """The federation in which lies are told.

    clients  the numbers in the job of the clients who may lie; they come first in the federation
    payer    of the job
    solo_terms  of the clients of this federation; None if the contract does not use solo models
    known_solo  losses of solo models so far
    """

    split: Split
    clients: IntArray
    batch_size: FloatArray
    payer: Payer
    solo_terms: SoloTerms | None
    known_solo: KnownSolo = field(default_factory=dict)

    def known_losses(self, cases: Sequence[Case]) -> KnownLosses:
        """The losses of lies in these cases."""
        liar = self.clients[[case.client for case in cases]]

        def train(groups: Sequence[tuple[Sequence[LiePoint], range]]) -> list[LieLosses]:
            return [
                train_lies(
                    self.split,
                    self.batch_size,
                    points,
                    [cases[k] for k in numbers],
                    solo_terms=self.solo_terms,
                    known_solo=self.known_solo,
                    threads=None,
                )
                for points, numbers in groups
            ]

        return KnownLosses(liar, np.zeros_like(liar), train)


def search_on_pilot(side: ServerSide, plan: Plan, *, runs: int = SEARCH_RUNS, seed: int = 0) -> PilotLies:
    """Search the lies that gain most under the plan's contract; the best of each kind is measured with other seeds.

    The default number of runs is small, because offers wait for it: about twenty lies are tried. `truthfl verify`
    searches longer. If the contract pays by evidence that jobs do not collect, no lie is searched.
    """
    stage = _stage(side, plan)
    count = len(stage.clients)
    cases = [Case(k % count, seed + MEASUREMENT_SEEDS + k) for k in range(-(-FEWEST_CASES // count) * count)]
    measured, weight = stage.known_losses(cases), plan.clients.weight
    honest = measured.honest()

    def rise(loss: FloatArray) -> LossRise:
        return rise_by_weight(weight[honest.liar], loss - honest.loss, weight)

    if plan.contract.needs - COLLECTED_BY_JOBS:
        return PilotLies((), rise(honest.without), 0, measured.runs)
    points, tried, search_runs = _searched(stage, plan, runs, seed)
    lied = measured.lied(points, len(cases))
    measured_gains = gains([stage.payer], points, lied, honest).gain
    lies = [
        _pilot_lie(plan, point, rise(loss), float(delivered.mean()), solo - honest.solo, gain)
        for point, loss, delivered, solo, gain in zip(
            points, lied.loss, lied.delivered, lied.solo, measured_gains, strict=True
        )
    ]
    return PilotLies(tuple(lies), rise(honest.without), tried, search_runs + measured.runs)


def _searched(stage: _Stage, plan: Plan, runs: int, seed: int) -> tuple[list[LiePoint], int, int]:
    """The best point of each kind by the search, the one that gains most first; and the numbers of points and runs."""
    rungs, count = rungs_of(runs, rules=1), len(stage.clients)
    known = stage.known_losses([Case(k % count, seed + k) for k in range(rungs[-1].cases)])

    def measure(points: Sequence[LiePoint], cases: int) -> FloatArray:
        lied, honest = known.lied(points, cases), known.honest().first(cases)
        return gains([stage.payer], points, lied, honest).gain[None]

    solo = stage.solo_terms is not None
    recipes = possible_recipes(stage.split.federated.model, stage.split.federated.data.features)
    space = LieSpace.of_job(plan.contract.batch_size, plan.clients.dataset_size, solo=solo, recipes=recipes)
    found = search(measure, space, rungs, 1, seed)
    best = found.best(0)
    others = [point for point in found.best_of_kinds(0) if point != best]
    others.sort(key=lambda point: -found.mean_so_far(0, point))
    return [best, *others], len(found.points), known.runs


def rise_by_weight(weight: FloatArray, rise: FloatArray, all_weights: FloatArray) -> LossRise:
    """The rise for every client's weight p, fitted by a p + b p² to measured rises (cases,) of liars with `weight`.

    Pilot clients hold other samples than the job's clients, so only their weight distinguishes them.
    """
    x, wanted = (np.stack([p, np.square(p)], axis=1) for p in (weight, all_weights))
    inverse = np.linalg.pinv(x.T @ x, hermitian=True)
    factor = inverse @ x.T @ rise
    freedom = max(len(rise) - np.linalg.matrix_rank(x), 1)
    variance = float(np.square(rise - x @ factor).sum()) / freedom
    return LossRise(wanted @ factor, np.sqrt(variance * np.einsum("ij,jk,ik->i", wanted, inverse, wanted).clip(min=0)))


def _pilot_lie(
    plan: Plan, point: LiePoint, rise: LossRise, delivered: float, solo_rise: FloatArray, measured: FloatArray
) -> PilotLie:
    """The lie with its effects.

    Under a contract that pays by solo models, pay is not linear in the loss. The gain is then the mean of the measured
    gains (cases,), the same for all. Under others it follows from the rise of the loss by each client's weight.
    """
    if Evidence.SOLO_LOSS in plan.contract.needs:
        count, root = len(plan.clients), np.sqrt(len(measured))
        solo, solo_error = float(solo_rise.mean()), float(solo_rise.std(ddof=1) / root)
        mean, error = np.full(count, measured.mean()), np.full(count, measured.std(ddof=1) / root)
        return PilotLie(point, rise, delivered, solo, solo_error, mean, error)
    clients, contract, price = plan.clients, plan.contract, batch_price(plan.clients, plan.training)
    own = (clients.labeling_cost, price, contract.batch_size, clients.dataset_size)
    expected = plan.expected_loss

    def pay(loss: FloatArray | float, delivered: float) -> FloatArray:
        losses = np.broadcast_to(loss, (len(clients),))
        return np.asarray(contract.pay(Observation(losses, delivered=delivered, asked=1.0)), dtype=float)

    saved = TRUTH.cost(*own) - point.cost(*own)
    gain = pay(expected + rise.mean, delivered) - pay(expected, 1.0) + saved
    low, high = (pay(expected + rise.mean + step * rise.error, delivered) for step in (1.0, -1.0))
    return PilotLie(point, rise, delivered, 0.0, 0.0, gain, np.abs(high - low) / 2.0)


def _stage(side: ServerSide, plan: Plan) -> _Stage:
    """The pilot federation; with many clients, some of them or a reduced one in which only single clients lie."""
    pilot, batches = replace(side.pilot, training=plan.training), plan.contract.batch_size
    payer = Payer(plan.contract, plan.clients, plan.training, plan.solo_cost)
    terms = None if plan.recipe is None else SoloTerms.of_contract(plan.contract, plan.recipe, plan.start)
    count = len(pilot.partition)
    if count <= WHOLE_PILOT_CLIENTS:
        return _Stage(_split(pilot, side), np.arange(count), batches, payer, terms)
    if terms is not None:  # each trains alone
        some, chosen = some_clients_of(pilot, WHOLE_PILOT_CLIENTS, 0.5)
        return _Stage(_split(some, side), chosen, batches[chosen], payer, terms.of_clients(chosen))
    reduced = reduce_federation(pilot)
    single = np.concatenate(reduced.members[: reduced.single_clients])
    return _Stage(_split(reduced.federated, side), single, reduced.assigned(batches), payer, terms)


def _split(federated: Federated, side: ServerSide) -> Split:
    nothing = np.empty(0, dtype=np.int64)
    return Split(federated, side.test, (nothing,) * len(federated.partition))


def plan_warnings(plan: Plan, lies: PilotLies, worth: PlanWorth) -> list[str]:
    """Objections of `truthfl plan` to the plan of a job on data, except about money and about clients not asked."""
    return [
        *presence_sentences(plan.clients),
        *plan.details.warnings(plan, worth),
        *_noise_warnings(plan),
        *lie_sentences(lies, plan.cost),
    ]


def _noise_warnings(plan: Plan) -> list[str]:
    """Whether clients would gain by leaving out noise from a model that is tested."""
    model = plan.side.pilot.model
    if plan.recipe is None or not isinstance(model, PrivateModel) or not model.noise:
        return []
    return [
        "Beware: a client who leaves out their own noise, which nobody sees, has a better solo model and can label "
        "fewer (docs/security.md)."
    ]


def presence_sentences(clients: Clients) -> list[str]:
    """How often clients are asked for a report, and that reports are then not masked; empty if always."""
    low, high = float(clients.participation.min()), float(clients.participation.max())
    if low == 1.0:
        return []
    share = f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}"
    return [
        f"Clients are asked for a report in {share} of the rounds, drawn by the job's seed. So reports are not masked "
        "unless [privacy] secure_aggregation is true: the server sees each of them."
    ]


def lie_sentences(lies: PilotLies | None, cost: FloatArray) -> list[str]:
    """The possible gain of the best lie, if lies were searched; `cost` of honest work."""
    if lies is None or not lies.lies:
        return []
    best = lies.lies[0]
    gain, error = float(best.gain.mean()), float(best.gain_error.mean())
    tried = f"he best of {lies.points} lies tried on pilot data ({best.point.words})"
    much = gain - CERTAIN * error > LITTLE_GAIN * float(np.mean(cost))
    little = f"T{tried} is not known to gain more than {LITTLE_GAIN:.0%} of cost:"
    start = f"Beware: t{tried} gains" if much else little
    return [f"{start} {gain:,.2f} ± {CERTAIN * error:,.2f} on average. truthfl verify searches longer."]
