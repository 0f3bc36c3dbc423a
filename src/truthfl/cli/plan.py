"""`truthfl plan`: what a job would ask and pay, as tables or JSON."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from truthfl.adversary.pilot_lies import (
    CERTAIN,
    PilotLies,
    audition_warnings,
    honest_cost,
    idle_warnings,
    lie_sentences,
    presence_sentences,
    worth_warnings,
)
from truthfl.cli.output import ActivityProgress, JobFile, console, exit_on_failure, print_json, progress_bar, table
from truthfl.cli.verify import On, workers_on
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import best_choice
from truthfl.contracts.audition.planning import AuditionDetails
from truthfl.contracts.contract import COLLECTED_BY_JOBS, Mechanism, Observation, PlanInputs
from truthfl.contracts.deviation import Deviation, absence_rise, free_riding_gain
from truthfl.contracts.lceme.assignment import labeling_floor
from truthfl.contracts.lceme.loss_model import LossModel
from truthfl.contracts.payoff import PlanEconomics, WarnFactors, plan_economics, samples_for_share, server_payoff
from truthfl.contracts.planning import Plan, plan_worth
from truthfl.contracts.setting import Clients, FloatArray, Training, batch_price
from truthfl.errors import InputError
from truthfl.job import ServerSettings
from truthfl.learning.solo import Recipe

if TYPE_CHECKING:
    from truthfl.adversary.pilot_lies import PilotLie
    from truthfl.job import ConstantsJob, DataJob
    from truthfl.studies.work import Workers


ROWS_SHOWN = 40


def as_json(planned: Planned, deviation: Deviation) -> dict[str, object]:
    clients, contract = planned.clients, planned.contract
    return {
        "clients": {
            "name": clients.name,
            "labeling_floor": labeling_floor(clients, planned.model, planned.training),
            "batch_size": contract.batch_size,
            **contract.terms(),
            "labeling_cost": clients.labeling_cost,
            "expected_pay": deviation.honest_pay,
            "pay_standard_deviation": [_number_or_none(value) for value in planned.spread.tolist()],
            "expected_payoff": deviation.honest_payoff,
            "largest_gain_from_lying": deviation.gain,
            "gain_from_free_riding": free_riding_gain(contract, clients, planned.model, planned.training),
            "worth": planned.worth,
            "worth_error": planned.worth_error,
            **({} if planned.rent is None else {"rent": planned.rent}),
        },
        "lies": None if planned.lies is None else [_lie_json(lie) for lie in planned.lies.lies],
        "lies_tried": 0 if planned.lies is None else planned.lies.points,
        "lie_runs": 0 if planned.lies is None else planned.lies.runs,
        "step_size": planned.training.step_size,
        "contract": contract.kind,
        "expected_loss": planned.expected_loss,
        "total_pay": float(deviation.honest_pay.sum()),
        "server_payoff": server_payoff(contract, planned.model, loss_value=planned.loss_value),
        "confirmed_by_search": deviation.confirmed,
        "economics": planned.economics(deviation.honest_pay).document(),
    }


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number_or_dash(value: float) -> str:
    return f"{value:,.2f}" if math.isfinite(value) else "–"


def _lie_json(lie: PilotLie) -> dict[str, object]:
    """A lie that was found on pilot data: the point, the rise of the loss and the gain, for each client."""
    return {
        "words": lie.point.words,
        "kind": lie.point.kind,
        **lie.point.document(),
        "loss_rise": lie.rise.mean,
        "loss_rise_error": lie.rise.error,
        "gain": lie.gain,
        "gain_error": lie.gain_error,
    }


def print_plan(planned: Planned, deviation: Deviation) -> None:
    clients, contract, spread = planned.clients, planned.contract, planned.spread
    floor, slope = labeling_floor(clients, planned.model, planned.training), planned.slope
    cost = planned.cost
    rows = [
        [
            str(i) if clients.name is None else clients.name[i],
            f"{clients.weight[i]:.4g}",
            f"{floor[i]:.1f}",
            f"{contract.batch_size[i]:.0f}",
            f"{cost[i]:,.2f}",
            f"{deviation.honest_pay[i]:,.2f}",
            _number_or_dash(spread[i]),
            _number_or_dash(slope[i]),
            f"{planned.worth[i]:,.0f}",
            f"{CERTAIN * planned.worth_error[i]:,.0f}",
        ]
        for i in range(min(len(clients), ROWS_SHOWN))
    ]
    if len(clients) > ROWS_SHOWN:
        rows.append([f"… {len(clients) - ROWS_SHOWN} more", *[""] * 9])
    rows.append(["total", "", "", "", f"{cost.sum():,.2f}", f"{deviation.honest_pay.sum():,.2f}", *[""] * 4])
    columns = ["client", "weight", "floor", "batch", "cost", "pay", "± pay", "slope", "worth", "±"]
    out = console()
    people = f"{len(clients)} client{'s' * (len(clients) > 1)}"
    out.print(table(f"Plan for {people}, {planned.training.rounds} rounds", columns, rows))
    out.print(
        f"Expected loss {planned.expected_loss:.4f} ({planned.basis}); "
        f"server's payoff {server_payoff(contract, planned.model, loss_value=planned.loss_value):,.2f}.\n"
        "slope: pay lost per unit of test loss; worth: what the loss without her, minus the loss, costs the server."
    )
    samples = planned.test_samples
    known = bool(np.isfinite(spread).all())
    if known and planned.loss_variance > 0 and (deviation.honest_pay > 0).all() and contract.linear() is not None:
        enough = samples_for_share(contract, deviation.honest_pay, planned.loss_variance, share=0.1)
        out.print(
            f"± pay: standard deviation with {samples:,} test sample{'s' * (samples > 1)}; "
            f"it stays within a tenth of everybody's pay from {enough:,} on."
        )
    worst = float(np.max(np.where(deviation.gain > deviation.resolution, deviation.gain, 0.0)))
    evidence = "by search" if deviation.closed_form_gain is None else "formula and search disagree"
    evidence = "formula and search agree" if deviation.confirmed else evidence
    out.print(f"The most anybody gains by lying, on this loss model: {worst:.2f} ({evidence}).")
    if planned.rent is not None:
        rents = ", ".join(
            f"{clients.label(i)} {rent:,.2f}" for i, rent in enumerate(planned.rent[:ROWS_SHOWN].tolist())
        )
        out.print(
            "Costs are private. If everybody states the job's, the rents that make the true cost the best statement, "
            f"without the margin for errors of the loss, are {rents}."
        )
    economics = planned.economics(deviation.honest_pay)
    found = [
        *presence_sentences(clients),
        *worth_warnings(planned.worth, planned.worth_error, cost),
        *lie_sentences(planned.lies),
    ]
    for sentence in (*found, economics.sentence, *economics.warnings, *economics.remarks):
        out.print(sentence)
    if above := planned.above_limit(deviation.honest_pay):
        out.print(
            f"Beware: {above} of {len(clients)} would get no offer: most_expected_pay allows "
            f"{planned.largest_factor:g} times the cost."
        )
    for sentence in idle_warnings(contract, clients, planned.model, planned.training):
        out.print(sentence)


FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


def details_of(plan: Plan) -> AuditionDetails:
    """How the plan came about."""
    assert plan.audition is not None
    return plan.audition


def costs(plan: Plan) -> FloatArray:
    """The cost of each client's honest work: labels, training alone, rounds."""
    computing = batch_price(plan.clients, plan.training) * plan.contract.batch_size
    return np.asarray(plan.clients.labeling_cost + details_of(plan).measurement.audition_cost + computing)


def expected_pay(plan: Plan) -> tuple[FloatArray, FloatArray]:
    """What each client is paid for labels and for computing, if all losses are as expected."""
    contract = plan.contract
    assert isinstance(contract, Audition)
    expected = Observation(contract.expected_joint_loss(Observation(0.0)))
    return contract.label_pay(expected), contract.computing_pay(expected)


def economics(plan: Plan, lies: PilotLies, server: ServerSettings) -> PlanEconomics:
    """Worth, cost and pay of all work."""
    contract, worth = plan.contract, plan_worth(plan, server.loss_value, lies.absence.mean)
    label_pay, computing_pay = expected_pay(plan)
    return plan_economics(
        cost=costs(plan),
        expected_pay=label_pay + computing_pay,
        most_pay=contract.pay_range(0.0, plan.expected_loss)[1],
        has_cap=True,
        own_worth=worth.own,
        worth=worth.all_work,
        untrained_loss=worth.untrained_loss,
        factors=server.warn_factors,
    )


def largest_gain(plan: Plan) -> FloatArray | None:
    """What each client gains at most by other labels or batches, on the curves; None for a custom contract."""
    contract = plan.contract
    return best_choice(details_of(plan).inputs, contract).gain if type(contract) is Audition else None


def audition_json(plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings) -> dict[str, Any]:
    """Everything of the plan as JSON values."""
    details, contract = details_of(plan), plan.contract
    assert isinstance(contract, Audition)
    gain, (label_pay, computing_pay) = largest_gain(plan), expected_pay(plan)
    on_curves = {} if gain is None else {"largest_gain_on_the_curves": gain}
    return {
        "contract": contract.kind,
        "clients": {
            "name": plan.clients.name,
            **contract.terms(),
            "batch_size": contract.batch_size,
            "cost": costs(plan),
            "expected_pay": label_pay + computing_pay,
            "most_pay": contract.pay_range(0.0, plan.expected_loss)[1],
            "worth": details.worth,
            **on_curves,
            "not_computing_gains": details.plan.unproven,
        },
        "left_out": left_out,
        "recipe": details.recipe.document(),
        "solo_curve": {
            "labels": details.solo.labels,
            "loss": details.solo.level(details.solo.labels),
            "spread": details.solo.spread(details.solo.labels),
            "slope": details.solo.slope(details.solo.labels),
            "slope_error": details.solo.slope_error(details.solo.labels),
        },
        "joint_curve": {"curve": details.joint.curve, "error": details.joint.error},
        "labels_bought": [_bought(plan, factor) for factor in FACTORS],
        "lies": [
            {
                "words": lie.point.words,
                "kind": lie.point.kind,
                "solo_rise": lie.solo_rise,
                "loss_rise": lie.rise.mean,
                "gain": lie.gain,
                "gain_error": lie.gain_error,
            }
            for lie in lies.lies
        ],
        "lies_tried": lies.points,
        "step_size": plan.training.step_size,
        "expected_loss": plan.expected_loss,
        "total_pay": float((label_pay + computing_pay).sum()),
        "economics": economics(plan, lies, server).document(),
    }


def _bought(plan: Plan, factor: float) -> dict[str, float]:
    """Loss, cost and pay if this factor of the labels were bought, and what that leaves the server with."""
    details = details_of(plan)
    loss, cost, pay = details.at_labels(factor)
    labels = float(np.rint(details.labels * factor).sum())
    server = details.inputs.loss_value * loss + pay
    return {"factor": factor, "labels": labels, "loss": loss, "cost": cost, "label_pay": pay, "server_cost": server}


def print_audition(
    plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings, *, pictures: bool = True
) -> None:
    """Two tables and some sentences. `pictures`: whether that is what clients have."""
    details, contract, clients = details_of(plan), plan.contract, plan.clients
    assert isinstance(contract, Audition)
    cost, (label_pay, computing_pay) = costs(plan), expected_pay(plan)
    most = contract.pay_range(0.0, plan.expected_loss)[1]
    deviation = contract.deviation(plan.expected_loss, plan.loss_error)
    rows = [
        [
            str(i) if clients.name is None else clients.name[i],
            f"{contract.labels[i]:.0f}",
            f"{contract.batch_size[i]:.0f}",
            f"{cost[i]:,.2f}",
            f"{label_pay[i]:,.2f}",
            f"{computing_pay[i]:,.2f}",
            f"{deviation[i]:,.2f}",
            f"{most[i]:,.2f}",
            f"{details.worth[i]:,.0f}",
        ]
        for i in range(min(len(clients), ROWS_SHOWN))
    ]
    if len(clients) > ROWS_SHOWN:
        rows.append([f"… {len(clients) - ROWS_SHOWN} more", *[""] * 8])
    sums = (label_pay.sum(), computing_pay.sum())
    rows.append(
        [
            "total",
            f"{contract.labels.sum():,.0f}",
            "",
            f"{cost.sum():,.2f}",
            *(f"{s:,.2f}" for s in sums),
            "",
            f"{most.sum():,.2f}",
            "",
        ]
    )
    columns = ["client", "labels", "batch", "cost", "for labels", "computing", "± pay", "most", "worth"]
    out, count = console(), len(clients)
    title = f"Plan for {count} client{'s' * (count > 1)}, {plan.training.rounds} rounds, contract {contract.kind}"
    out.print(table(title, columns, rows))
    bought = [_bought(plan, factor) for factor in FACTORS]
    best = min(row["server_cost"] for row in bought)
    out.print(
        table(
            "Labels bought",
            ["of the plan", "labels", "joint loss", "cost", "pay for them", "loss and pay", ""],
            [
                [
                    f"{row['factor']:.0%}",
                    f"{row['labels']:,.0f}",
                    f"{row['loss']:.4f}",
                    f"{row['cost']:,.0f}",
                    _amount(row["label_pay"]),
                    _amount(row["server_cost"]),
                    "least" if row["server_cost"] == best else "",
                ]
                for row in bought
            ],
        )
    )
    for sentence in sentences(plan, lies, left_out, server, pictures=pictures):
        out.print(sentence)


def recipe_words(recipe: Recipe, *, pictures: bool) -> str:
    """How a client trains alone."""
    shifts = f", {'with' if recipe.shifts else 'without'} shifted copies" if pictures else ""
    return f"{recipe.steps} steps of {recipe.batch_size}{shifts}"


def _amount(value: float) -> str:
    """A whole amount; a dash for labels that no pay elicits on these curves."""
    return f"{value:,.0f}" if np.isfinite(value) else "–"


def sentences(
    plan: Plan, lies: PilotLies, left_out: list[str], server: ServerSettings, *, pictures: bool = True
) -> list[str]:
    """What an operator should know besides the tables. `pictures`: whether that is what clients have."""
    details, contract = details_of(plan), plan.contract
    assert isinstance(contract, Audition)
    of_curves, recipe, sums = largest_gain(plan), details.recipe, economics(plan, lies, server)
    result = [
        f"Expected joint loss {plan.expected_loss:.4f}; honest pay is {sums.pay_over_cost:.2f} times its cost. A "
        f"client's own model is expected at a loss of {contract.solo_level.min():.3f} to "
        f"{contract.solo_level.max():.3f} ± {contract.solo_spread.mean():.3f}, trained in "
        f"{recipe_words(recipe, pictures=pictures)}.",
        "± pay: standard deviation; most: no client is paid more; worth: what the loss without her labels costs more.",
    ]
    if of_curves is not None:
        most = max(float(of_curves.max()), 0.0)
        result.append(f"The most anybody gains by other labels or batches, on these curves: {most:.2f}.")
    result += presence_sentences(plan.clients)
    if left_out:
        names = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
        result.append(
            f"Not asked: {names}. Their labels are worth less than their price, or they hold too few samples."
        )
    if contract.joint_slope.max() == 0:
        result.append("The joint loss does not show the batch size: computing is paid a fixed amount.")
    return [*result, *audition_warnings(plan), sums.sentence, *sums.warnings, *sums.remarks, *lie_sentences(lies)]


HUNDREDTH = 0.01


@dataclass(frozen=True)
class Planned:
    """The plan of either kind of job.

    basis        the loss model in words, for the printed plan
    worth        (clients,) what each client's work is worth to the server, in money, with its standard error
    rent         (clients,) what is paid beyond cost and margins so that clients state their true costs; None if costs
                 are known
    lies         what a short search for lies found on pilot data; None for a job without data
    worth_of_all    of all work together, untrained_loss: the loss without any; None if not known. See `PlanEconomics`
    factors         above which multiples of cost and worth expected pay is warned of
    largest_factor  the largest expected pay that is offered under a contract without caps, as a multiple of cost; None
                    if there is no limit
    """

    clients: Clients
    training: Training
    model: LossModel
    contract: Mechanism
    loss_value: float
    test_samples: int
    loss_variance: float
    basis: str
    worth: FloatArray
    worth_error: FloatArray
    lies: PilotLies | None = None
    rent: FloatArray | None = None
    worth_of_all: float | None = None
    untrained_loss: float | None = None
    factors: WarnFactors | None = None
    largest_factor: float | None = None

    def economics(self, expected_pay: FloatArray) -> PlanEconomics:
        """Worth, cost and pay of all work, with this expected pay (clients,)."""
        return plan_economics(
            cost=self.cost,
            expected_pay=expected_pay,
            most_pay=self.contract.pay_range(0.0, self.expected_loss)[1],
            has_cap=self.contract.has_cap,
            own_worth=self.worth,
            worth=self.worth_of_all,
            untrained_loss=self.untrained_loss,
            factors=self.factors,
        )

    def above_limit(self, expected_pay: FloatArray) -> int:
        """How many clients would get no offer, because it would pay more than the job allows."""
        if self.largest_factor is None:
            return 0
        return int(np.count_nonzero(expected_pay > self.largest_factor * self.cost))

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each client's pay: half the difference of her pay at loss ± one deviation."""
        return np.abs(self._difference(math.sqrt(self.loss_variance / self.test_samples))) / 2.0

    @property
    def slope(self) -> FloatArray:
        """Pay that each client loses per unit of test loss, around the expected loss."""
        return self._difference(HUNDREDTH) / (2 * HUNDREDTH)

    def _difference(self, step: float) -> FloatArray:
        """Pay at the expected loss − step, less that at + step; NaN if pay needs evidence that jobs do not collect."""
        low, high = (self.contract.pay(Observation(self.expected_loss + sign * step)) for sign in (-1, 1))
        known = not self.contract.needs - COLLECTED_BY_JOBS
        return np.asarray(low - high if known else np.full(len(self.clients), np.nan), dtype=float)

    @property
    def cost(self) -> FloatArray:
        """The cost of each client's honest work."""
        return honest_cost(self.clients, self.training, self.contract.batch_size)

    @property
    def expected_loss(self) -> float:
        return self.model.truthful_loss(self.contract.batch_size)


def plan_constants_job(job: ConstantsJob) -> Planned:
    """Plan on the job's bound."""
    model, server = job.loss_model(), job.server
    contract = job.plan(model)
    worth = server.loss_value * absence_rise(model, contract.batch_size)
    return Planned(
        job.clients,
        job.training,
        model,
        contract,
        server.loss_value,
        server.test_samples,
        server.loss_variance,
        basis=f"{server.bound} bound",
        worth=worth,
        worth_error=np.zeros_like(worth),
        worth_of_all=float(worth.sum()),  # the bound is a sum over clients
        factors=server.warn_factors,
        rent=_rents(server, job.clients, model, job.training),
    )


def plan_and_search(
    job: DataJob, workers: int | Workers | None = None, folder: Path = Path()
) -> tuple[Plan, PilotLies]:
    """Plan on pilot data and search for lies there, with a progress bar; workers elsewhere keep results in a folder."""
    from truthfl.adversary.pilot_lies import search_on_pilot

    with progress_bar() as report_progress:
        progress = report_progress or (lambda *_: None)
        progress("trying out on pilot data", 0, 0)
        side = job.server_side()
        with _trained_by(workers, job, folder, progress, "trying out on pilot data"):
            plan = job.plan(side)
        progress("searching for lies", 0, 0)
        with _trained_by(workers, job, folder, progress, "searching for lies"):
            return plan, search_on_pilot(plan.side, plan)


def _trained_by(
    workers: int | Workers | None, job: DataJob, folder: Path, progress: ActivityProgress, activity: str
) -> AbstractContextManager[None]:
    """The context of one activity, in which workers elsewhere train."""
    if workers is None or isinstance(workers, int):
        return nullcontext()
    from truthfl.files import require_writable
    from truthfl.studies.cluster.workers import can_be_planned_elsewhere, planned_by
    from truthfl.studies.work import Store

    if not can_be_planned_elsewhere(job):
        raise InputError("--on plans with the tasks and aggregations that come along; plan one of your own without it.")
    require_writable(folder)
    return planned_by(workers, Store(folder / "tasks"), partial(progress, activity))


def plan_data_job(job: DataJob, plan: Plan, lies: PilotLies) -> Planned:
    """The plan of a job on data."""
    from truthfl.contracts.planning import plan_worth

    worth = plan_worth(plan, job.server.loss_value, lies.absence.mean)
    return Planned(
        plan.clients,
        plan.training,
        plan.calibration.model,
        plan.contract,
        job.server.loss_value,
        job.server.test_samples,
        plan.loss_variance,
        basis=f"calibrated, R² {plan.calibration.sampling_r_squared:.3f}, step size {plan.training.step_size:.3g}",
        worth=worth.own,
        worth_error=job.server.loss_value * lies.absence.error,
        lies=lies,
        worth_of_all=worth.all_work,
        untrained_loss=worth.untrained_loss,
        factors=job.server.warn_factors,
        largest_factor=None if plan.contract.has_cap else job.server.most_expected_pay,
        rent=_rents(job.server, plan.clients, plan.calibration.model, plan.training),
    )


def _rents(server: ServerSettings, clients: Clients, model: LossModel, training: Training) -> FloatArray | None:
    if server.cost_distribution is None:
        return None
    from truthfl.contracts.lceme.private_costs import stated_rents
    from truthfl.job.sections import cost_distribution

    distribution = cost_distribution(server.cost_distribution)
    return stated_rents(PlanInputs(clients, model, training, server.loss_value, cost_distribution=distribution))


def plan(
    job_file: JobFile = None,
    contract: Annotated[
        str | None, typer.Option(help="Kind of contract, in place of the job's: audition, lceme, …")
    ] = None,
    on: On = None,
    out: Annotated[Path, typer.Option(help="With --on: folder for what was trained.")] = Path("truthfl-plan"),
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What each client would be asked to do and paid for it. Of a job on data, nothing runs but the server's own pilot.

    Example: truthfl plan hospital.toml --contract lceme --json
    """
    from truthfl.contracts.audition.pay import Audition
    from truthfl.contracts.deviation import best_deviation
    from truthfl.job import ConstantsJob, read_job

    job, more, of_noise = read_job(job_file), list[str](), {}
    if contract is not None:
        job = job.with_contract(contract)
    if isinstance(job, ConstantsJob):
        if on is not None:
            raise InputError("--on is for a job on data; this one states constants and is not trained.")
        planned = plan_constants_job(job)
    else:
        from truthfl.cli.output import privacy_json, privacy_sentence

        with nullcontext() if on is None else exit_on_failure(out), workers_on(on) as workers:
            plan, lies = plan_and_search(job, workers, out)
        privacy, of_noise = privacy_sentence(plan), privacy_json(plan)
        labels = plan.contract.labels if isinstance(plan.contract, Audition) else job.clients.dataset_size
        more = [*([] if privacy is None else [privacy]), *job.server.label_time_warnings(int(max(labels)))]
        if plan.audition is not None:
            asked = set(plan.clients.name or ())
            left_out = [name for name in job.clients.name if name not in asked]
            if json:
                print_json(audition_json(plan, lies, left_out, job.server) | of_noise)
            else:
                print_audition(plan, lies, left_out, job.server, pictures=job.task.is_pictures)
                _print_lines(more)
            return
        planned = plan_data_job(job, plan, lies)
    deviation = best_deviation(planned.contract, planned.clients, planned.model, planned.training)
    if json:
        print_json(as_json(planned, deviation) | of_noise)
    else:
        print_plan(planned, deviation)
        _print_lines(more)


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line)
