"""The findings of the study of sizes for each number of clients, and the power laws through them.

The loss model is fitted at ten clients and extended to n by its own law: v_i ∝ p_i²/q_i, b_i ∝ p_i. The expected loss
and its spread are measured at n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from truthfl.adversary.measure import Gains, Honest, Lied, Payer, gains
from truthfl.adversary.strategy import LiePoint
from truthfl.contracts.audition.labels import CAP_DEVIATIONS, SLOPE_ERRORS, LabelTask
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement, contract_for, label_task
from truthfl.contracts.contract import Contract, Observation
from truthfl.contracts.lceme.contract import LCEME, lceme_with_margin
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, FloatArray, IntArray, Training
from truthfl.contracts.solo import SoloResult
from truthfl.errors import InputError
from truthfl.learning.solo import Recipe
from truthfl.studies.size.design import FITTED_CLIENTS, Money, SizeDesign, lies
from truthfl.studies.verify.regret import Estimate, mean_share
from truthfl.studies.work import Result

RESAMPLES = 1000
STEEPEST = 4.0  # exponents are searched between minus this and this
COARSE, FINER, REFINEMENTS = 81, 21, 4
LEAST_ERROR = 1e-9  # of a value, as a share of it; values that do not vary all have this one


@dataclass(frozen=True)
class PowerLaw:
    """y = factor · (n − offset)^exponent, with the 95% interval of the exponent."""

    factor: float
    exponent: float
    low: float
    high: float
    offset: float = 0.0

    def at(self, sizes: FloatArray) -> FloatArray:
        return np.asarray(self.factor * (np.asarray(sizes, dtype=float) - self.offset) ** self.exponent)

    @property
    def words(self) -> str:
        """The law with the interval of its exponent."""
        exponent, low, high = (f"{value:.2f}".replace("-", "−") for value in (self.exponent, self.low, self.high))
        return f"{f'(n − {self.offset:g})' if self.offset else 'n'}^{exponent} [{low}, {high}]"


def fit_power_law(
    sizes: Sequence[float], draws: int, values: Callable[[IntArray], FloatArray], *, offset: float = 0.0
) -> PowerLaw | None:
    """The law that fits best by least squares, in units of the values' errors; None for fewer than three sizes.

    values  from numbers of draws (resamples, draws), with repetitions, to values (resamples, sizes). Its results for
            resampled draws give the errors and the interval
    """
    if len(sizes) < 3:
        return None
    n = np.asarray(sizes, dtype=float) - offset
    own = values(np.arange(draws)[None])
    resampled = values(np.random.default_rng(0).integers(draws, size=(RESAMPLES, draws)))
    error = np.maximum(resampled.std(axis=0, ddof=1), LEAST_ERROR * np.abs(own[0]))
    factor, exponent = _fitted(n, own, error)
    _, exponents = _fitted(n, resampled, error)
    low, high = np.quantile(exponents, [0.025, 0.975])
    return PowerLaw(float(factor[0]), float(exponent[0]), float(low), float(high), offset)


def _fitted(n: FloatArray, values: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Factor and exponent of each row of `values`, (rows, sizes); the best factor for each exponent has a formula."""
    grid = np.broadcast_to(np.linspace(-STEEPEST, STEEPEST, COARSE), (len(values), COARSE))
    step = 2.0 * STEEPEST / (COARSE - 1)
    middle = np.sqrt(n.min() * n.max())
    for _ in range(1 + REFINEMENTS):
        shape = (n / middle) ** grid[..., None] / error
        scaled = (values / error)[:, None]
        factor = (shape * scaled).sum(axis=2) / np.square(shape).sum(axis=2)
        misfit = np.square(scaled - factor[..., None] * shape).sum(axis=2)
        best = misfit.argmin(axis=1)
        rows = np.arange(len(values))
        exponent, chosen = grid[rows, best], factor[rows, best]
        grid = exponent[:, None] + np.linspace(-step, step, FINER)
        step *= 2.0 / (FINER - 1)
    return np.asarray(chosen / middle**exponent), np.asarray(exponent)


@dataclass(frozen=True)
class FittedLoss:
    """The total effects of batches, labels and random labels on the joint loss.

    batch_noise     V: the loss has a part V / (samples of all clients in a round)
    random_labels   β: it rises by β times the share of labels drawn at random
    label_curve     A: it has a part A / (labels of all clients); label_error is the standard error of A
    """

    batch_noise: float
    random_labels: float
    label_curve: float
    label_error: float

    def worth(self, size: int, design: SizeDesign) -> float:
        """κ (A/N + V/B) / (n − 1): the worth of the work of one of n equal clients, in money.

        Without this client there are N (1 − 1/n) labels, and B (1 − 1/n) samples in a round.
        """
        lost = self.label_curve / design.total_labels + self.batch_noise / design.batch_of_all
        return design.money.loss_value * lost / (size - 1)


@dataclass(frozen=True)
class PilotLevel:
    """The joint loss of honest clients on pilot draws: mean, spread around it at settlement."""

    mean: float
    spread: float


@dataclass(frozen=True, eq=False)
class SoloPlan:
    """The pilot's results on solo models with this many labels.

    reason  why label pay cannot use them; empty if it can
    """

    recipe: Recipe
    curve: SoloCurve
    reason: str


def fitted_loss(design: SizeDesign, results: Sequence[Result]) -> FittedLoss:
    """Least squares over the pilot draws; `InputError` if batches or labels do not show in the loss."""
    by_batch, by_labels = (np.stack([each[name] for each in results]) for name in ("by_batch", "by_labels"))
    batch_noise = _slopes(1.0 / (FITTED_CLIENTS * results[0]["batch"]), by_batch)
    label_curve = _slopes(1.0 / results[0]["labels"], by_labels)
    rise = np.array([float(each["random"]) for each in results]) - by_labels[:, -1]
    fitted = FittedLoss(
        float(batch_noise.mean()),
        FITTED_CLIENTS * float(rise.mean()),
        float(label_curve.mean()),
        float(label_curve.std(ddof=1) / sqrt(len(results))),
    )
    if min(fitted.batch_noise, fitted.random_labels, fitted.label_curve) <= 0:
        raise InputError(
            f"on {design.data.source} the joint loss of {FITTED_CLIENTS} clients does not show batches or labels; "
            "there is nothing to pay by it. Another seed may show them."
        )
    return fitted


def joint_level(design: SizeDesign, losses: Sequence[float], loss_variance: float, pool: int) -> PilotLevel:
    """The level and spread from the losses of pilot draws.

    Draws of N labels from a pool of P overlap. This makes the variance between them smaller by the factor 1 − N/P.
    """
    count = len(losses)
    between = float(np.var(losses, ddof=1)) / (1.0 - design.total_labels / pool)
    variance = between * (1.0 + 1.0 / count) + loss_variance / design.money.test_draws
    return PilotLevel(float(np.mean(losses)), sqrt(variance))


def equal_clients(design: SizeDesign, size: int) -> Clients:
    """The clients of a federation of this size."""
    money, labels = design.money, design.labels_each(size)
    return Clients(
        weight=np.full(size, 1.0 / size),
        gradient_variance=1.0,
        sample_cost=money.sample_cost,
        labeling_cost=money.label_cost * labels,
        dataset_size=labels,
        participation=design.participation(size),
    )


def lceme_for(
    design: SizeDesign, size: int, clients: Clients, training: Training, fitted: FittedLoss, level: PilotLevel
) -> LCEME:
    """LCEME for the assigned batches.

    If they are below the floor at which labels pay on the loss model, the slope is the floor's.
    """
    batches = np.full(size, float(design.batch_each(size)))
    total, labels_cost = design.batch_of_all, design.money.label_cost * design.total_labels
    price = design.rounds * design.money.sample_cost
    slope = max(price * total**2 / fitted.batch_noise, labels_cost / fitted.random_labels)
    noise = price * total**2 / slope  # V, or less where the slope is the floor's
    sampling = noise / (size**2 * design.participation(size))
    model = LossModel(
        constant=max(level.mean - noise / total, 0.0),
        sampling=np.full(size, sampling),
        labeling=np.full(size, fitted.random_labels / size),
        reporting=np.zeros(size),
    )
    return lceme_with_margin(clients, model, training, batches, level.spread, confidence=design.money.confidence)


def solo_plan(design: SizeDesign, size: int, stored: Result) -> SoloPlan:
    """What the stored solo curve allows in a federation of this size."""
    steps, batch, step_size, penalty, shifts = stored["recipe"].tolist()
    recipe = Recipe(int(steps), int(batch), step_size, penalty, int(shifts))
    labels, curve, clients = (
        design.labels_each(size),
        SoloCurve(stored["numbers"], stored["loss"]),
        equal_clients(design, size),
    )
    task = label_task(_inputs(design.money, clients, Training(design.rounds, 1, 1.0), recipe, curve, None))
    return SoloPlan(recipe, curve, _why_not(task, labels))


def audition_for(
    design: SizeDesign,
    size: int,
    clients: Clients,
    training: Training,
    solo: SoloPlan,
    fitted: FittedLoss,
) -> Audition:
    """The audition with these labels; computing is so cheap here that it is paid a fixed amount."""
    inputs = _inputs(design.money, clients, training, solo.recipe, solo.curve, fitted, design.batch_each(size))
    return contract_for(inputs, clients.dataset_size.astype(float))


def _inputs(
    money: Money,
    clients: Clients,
    training: Training,
    recipe: Recipe,
    curve: SoloCurve,
    fitted: FittedLoss | None,
    batch: float = 1.0,
) -> AuditionInputs:
    measured = AuditionMeasurement(
        solo=curve,
        joint_curve=0.0 if fitted is None else fitted.label_curve,
        joint_curve_error=0.0 if fitted is None else fitted.label_error,
        batch=batch,
        audition_cost=np.full(len(clients), money.sample_cost * recipe.samples),
        most_pay=money.most_pay,
    )
    return AuditionInputs(clients, measured, training, money.loss_value, confidence=money.confidence)


def _why_not(task: LabelTask, labels: int) -> str:
    """Why this many labels cannot be asked for; empty if they can. The rules are those of `LabelTask.usable`."""
    at = int(np.flatnonzero(task.numbers == labels)[0])
    if task.usable[at]:
        return ""
    slope, error = (float(part([labels])[0]) for part in (task.solo.slope, task.solo.slope_error))
    if slope <= SLOPE_ERRORS * error:
        return (
            f"the slope of the solo loss, {slope:.3f} ± {error:.3f} for a factor e of labels, is not known well enough"
        )
    cap = 1.0 + (task.margin_deviations + CAP_DEVIATIONS) * float(task.risk[at])
    if cap > task.most_pay:
        return (
            f"the cap of label pay had to be {cap:.1f} times the cost of labels; at most {task.most_pay:g} is allowed"
        )
    return "another number of labels would serve a client better on the measured curve"


def _slopes(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The slope of each row of `values` in x."""
    centered = x - x.mean()
    return np.asarray(values @ centered / (centered @ centered))


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
    best_lie          the lie that gained most on the pilot draws
    lies              all lies
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
    """One number of clients. Money is in the job's unit.

    cost           of one client's honest labels and computing
    loss           joint test loss of honest clients
    loss_spread    its standard deviation at settlement
    worth          κ times the fall of the loss through one client's work, measured
    worth_by_model the same on the fitted loss model
    jobs_to_tell   jobs after which their mean loss shows, with 95%, whether one of the clients worked, by the model
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
    """The runs of all draws at one number of clients, the pilot's first."""

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
        """(draws,) the rise of the loss without one client, averaged over the clients left out."""
        return np.array([float(np.mean(each["without"]) - each["loss"]) for each in self.results])

    def loss_spread(self, draws: IntArray) -> FloatArray:
        """The standard deviation of the joint loss at settlement, from draws (…, draws)."""
        between = np.var(self.losses[draws], axis=-1, ddof=1) / (1.0 - self.design.total_labels / self.pool)
        return np.asarray(np.sqrt(between + self.loss_variance / self.design.money.test_draws))

    def honest_pay(self, rule: Audition) -> list[FloatArray]:
        """Pay of honest clients under the audition, for each draw; computing pay is a fixed amount."""
        one, loss = _of_one_client(rule), float(self.losses.mean())
        return [
            np.ravel(one.pay(Observation(loss, solo=SoloResult(each["peers"][:, None], each["peers_shift"][:, None]))))
            for each in self.results
        ]

    def gains(self, payer: Payer) -> tuple[Gains, IntArray]:
        """The gains of lies under a contract in the cases of all draws, and the draw of each case.

        Under the audition the joint loss does not count, and there are separate cases for solo models.
        """
        if isinstance(payer.contract, Audition):
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
    spread = float(pay_spread(runs, payer.contract)(np.arange(len(runs.results))))
    if isinstance(payer.contract, Audition):  # of more clients than those who lie
        pay = float(np.concatenate(runs.honest_pay(payer.contract)[runs.design.pilot_draws :]).mean())

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


def pay_spread(runs: SizeRuns, rule: Contract) -> Callable[[IntArray], FloatArray]:
    """The function from draws (…, draws) to the standard deviation of one honest client's pay in them."""
    if isinstance(rule, LCEME):
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
