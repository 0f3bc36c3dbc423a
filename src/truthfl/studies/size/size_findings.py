"""What the study finds for each number of clients: worth of the work, and pay, risk and regret under both contracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truthfl.adversary.lie_pay import Gains, Honest, Lied, Payer, gains
from truthfl.adversary.lie_point import LiePoint
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Observation
from truthfl.studies.size.lies import lies
from truthfl.studies.size.size_design import SizeDesign
from truthfl.studies.verify.regret import Estimate, mean_share
from truthfl.studies.work import Result


@dataclass(frozen=True)
class LieGain:
    """A lie and what it gains, as a share of the cost of honest work."""

    lie: str
    gain: Estimate


@dataclass(frozen=True)
class RuleFinding:
    """One contract at one number of clients; gains and pay are from measured draws, spreads from all.

    pay_over_cost     honest pay over the cost of honest work
    risk              standard deviation of one client's honest pay over its mean
    spread_over_cost  the same standard deviation over the cost of honest work
    regret            gain of the best lie, as a share of honest pay (or of its cost, where that is larger)
    gain_over_cost    the same gain as a share of the cost
    best_lie          that gained most on the pilot draws
    lies              all of them
    """

    pay_over_cost: float
    risk: float
    spread_over_cost: float
    regret: Estimate
    gain_over_cost: Estimate
    best_lie: str
    lies: tuple[LieGain, ...]


@dataclass(frozen=True)
class SizeFinding:
    """One number of clients. Money is that of the job.

    cost           of one client's honest labels and computing
    loss           joint test loss of honest clients
    loss_spread    its standard deviation at settlement
    worth          κ times the fall of the loss by one client's work, measured
    worth_by_model the same on the fitted loss model
    jobs_to_tell   jobs after which their mean loss tells, with 95%, whether one of the clients worked, by the model
    lceme, audition  None if the contract cannot be made; `no_audition` says why
    solo_risk      by the pilot's curve: standard deviation of label pay over the cost of labels; None without a curve
    """

    clients: int
    labels_each: int
    batch_each: int
    participation: float
    cost: float
    loss: float
    loss_spread: float
    worth: Estimate
    worth_by_model: float
    jobs_to_tell: float
    lceme: RuleFinding
    audition: RuleFinding | None
    no_audition: str
    solo_risk: float | None


@dataclass(frozen=True, eq=False)
class SizeRuns:
    """The runs of all draws at one number of clients, those of the pilot first."""

    design: SizeDesign
    size: int
    results: Sequence[Result]
    pool: int

    @property
    def points(self) -> tuple[LiePoint, ...]:
        """The truth and the lies, in the order of the runs."""
        return lies(self.design.labels_each(self.size))

    @property
    def losses(self) -> FloatArray:
        """(draws,) honest joint losses."""
        return np.array([float(each["loss"]) for each in self.results])

    @property
    def loss_variance(self) -> float:
        """Variance of the loss between test samples."""
        return float(np.mean([each["loss_variance"] for each in self.results]))

    @property
    def rises(self) -> FloatArray:
        """(draws,) by how much the loss rises without one client, on average over those left out."""
        return np.array([float(np.mean(each["without"]) - each["loss"]) for each in self.results])

    def loss_spread(self, draws: IntArray) -> FloatArray:
        """The standard deviation of the joint loss at settlement, from draws (…, draws)."""
        between = np.var(self.losses[draws], axis=-1, ddof=1) / (1.0 - self.design.total_labels / self.pool)
        return np.asarray(np.sqrt(between + self.loss_variance / self.design.money.test_draws))

    def honest_pay(self, rule: Audition) -> list[FloatArray]:
        """Pay of honest clients under the audition, for each draw; computing pay is a fixed amount."""
        one, loss = _of_one_client(rule), float(self.losses.mean())
        return [
            np.ravel(
                one.pay(Observation(loss, solo_loss=each["peers"][:, None], level_shift=each["peers_shift"][:, None]))
            )
            for each in self.results
        ]

    def gains(self, payer: Payer) -> tuple[Gains, IntArray]:
        """What lies gain under a contract in the cases of all draws, and the draw of each case.

        Under the audition the joint loss does not count, and there are cases for solo models alone.
        """
        if isinstance(payer.rule, Audition):
            names = ("solo_liar", "shift")
            alone = np.concatenate([each["alone"] for each in self.results], axis=1)
            lied = np.repeat(self.losses, [len(each["solo_liar"]) for each in self.results])[None] + np.zeros_like(
                alone
            )
            delivered = np.ones_like(alone)
        else:
            names = ("liar", "liar")
            lied, delivered = (
                np.concatenate([each[name] for each in self.results], axis=1) for name in ("lied", "delivered")
            )
            alone = np.full_like(lied, np.nan)
        liar, shift = (np.concatenate([each[name] for each in self.results]) for name in names)
        draw = np.repeat(np.arange(len(self.results)), [len(each[names[0]]) for each in self.results])
        unknown = np.full(len(liar), np.nan)
        honest = Honest(liar, np.zeros_like(draw), lied[0], unknown, unknown, unknown, unknown, alone[0], shift)
        return gains([payer], self.points, Lied(lied, delivered, np.full_like(lied, np.nan), alone), honest), draw


def worth_estimate(runs: SizeRuns, loss_value: float) -> Estimate:
    """The worth of one client's work, with its interval over all draws."""
    return mean_share(loss_value * runs.rises, 1.0, np.arange(len(runs.rises)))


def rule_finding(runs: SizeRuns, payer: Payer) -> RuleFinding:
    """Pay, risk and regret under a contract: the best lie on the pilot draws, measured on the others."""
    found, draw = runs.gains(payer)
    on_pilot = draw < runs.design.pilot_draws
    best = 1 + int(found.gain[1:, on_pilot].mean(axis=1).argmax())
    measured = ~on_pilot
    pay, cost = float(found.pay[measured].mean()), float(found.cost[measured].mean())
    spread = float(pay_spread(runs, payer.rule)(np.arange(len(runs.results))))
    if isinstance(payer.rule, Audition):  # of more clients than those who lie
        pay = float(np.concatenate(runs.honest_pay(payer.rule)[runs.design.pilot_draws :]).mean())

    def estimate(point: int, unit: float) -> Estimate:
        return mean_share(found.gain[point, measured], unit, draw[measured])

    return RuleFinding(
        pay_over_cost=pay / cost,
        risk=spread / pay,
        spread_over_cost=spread / cost,
        regret=estimate(best, max(pay, cost)),
        gain_over_cost=estimate(best, cost),
        best_lie=runs.points[best].words,
        lies=tuple(LieGain(point.words, estimate(k, cost)) for k, point in enumerate(runs.points) if k),
    )


def pay_spread(runs: SizeRuns, rule: Mechanism) -> Callable[[IntArray], FloatArray]:
    """The function from draws (…, draws) to the standard deviation of one honest client's pay in them."""
    if isinstance(rule, Contract):
        slope = float(rule.slope[0])
        return lambda draws: slope * runs.loss_spread(draws)
    assert isinstance(rule, Audition)
    paid = runs.honest_pay(rule)
    middle = float(np.concatenate(paid).mean())
    count = np.array([len(each) for each in paid])
    first, second = (np.array([float(((each - middle) ** power).sum()) for each in paid]) for power in (1, 2))

    def spread(draws: IntArray) -> FloatArray:
        number, mean = count[draws].sum(axis=-1), first[draws].sum(axis=-1) / count[draws].sum(axis=-1)
        return np.asarray(np.sqrt((second[draws].sum(axis=-1) - number * mean**2) / (number - 1)))

    return spread


def _of_one_client(rule: Audition) -> Audition:
    """The contract of the first of equal clients."""
    terms = {name: values[:1] for name, values in rule.terms().items()}
    return replace(rule, batch_size=rule.batch_size[:1], **terms)
