"""`truthfl plan`: what a job would ask for and pay, as tables or JSON."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from truthfl.adversary.pilot_lies import PilotLie, PilotLies, plan_warnings, presence_sentences, search_on_pilot
from truthfl.cli.output import (
    ActivityProgress,
    JobFile,
    console,
    exit_on_failure,
    print_json,
    progress_bar,
    table,
)
from truthfl.cli.verify import On, workers_on
from truthfl.contracts.contract import Contract
from truthfl.contracts.details import ModelReport, PlanReport, PlanWorth, honest_cost, idle_warnings, worth_warnings
from truthfl.contracts.deviation import absence_rise
from truthfl.contracts.payoff import PlanEconomics, plan_economics
from truthfl.contracts.planning import Plan, plan_worth
from truthfl.contracts.setting import Training
from truthfl.errors import InputError
from truthfl.files import require_writable
from truthfl.job import ConstantsJob, DataJob, ServerSettings, read_job
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.privacy_promise import PromisedPrivacy, promised_privacy
from truthfl.studies.cluster.workers import can_be_planned_elsewhere, planned_by
from truthfl.studies.work import Store, Workers


@dataclass(frozen=True, eq=False)
class Shown:
    """What is printed about the plan of either kind of job.

    report    the contract's report
    economics worth, cost and pay of all work
    warnings  reasons against the plan, except money
    remarks   what else an operator should know
    lies      the result of a short search for lies on pilot data; None for a job without data
    privacy   what noise promises, as JSON; empty without noise
    """

    report: PlanReport
    economics: PlanEconomics
    training: Training
    warnings: list[str]
    remarks: list[str]
    lies: PilotLies | None = None
    privacy: dict[str, object] | None = None

    @property
    def sentences(self) -> list[str]:
        """The sentences below the tables."""
        sums = self.economics
        return [
            *self.report.sentences(),
            *self.warnings,
            sums.sentence,
            *sums.warnings,
            *sums.remarks,
            *self.remarks,
        ]

    def print(self) -> None:
        """Print tables and sentences."""
        out = console()
        for one in self.report.tables():
            out.print(table(one.title, one.columns, one.rows))
        for sentence in self.sentences:
            out.print(sentence)

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values and arrays."""
        lies = self.lies
        return {
            **self.report.as_json(),
            "lies": None if lies is None else [_lie_json(lie) for lie in lies.lies],
            "lies_tried": 0 if lies is None else lies.points,
            "lie_runs": 0 if lies is None else lies.runs,
            "step_size": self.training.step_size,
            "economics": self.economics.document(),
            **(self.privacy or {}),
        }


def _lie_json(lie: PilotLie) -> dict[str, object]:
    """A lie found on pilot data: the point, the rises of the losses and the gain, for each client."""
    return {
        "words": lie.point.words,
        "kind": lie.point.kind,
        **lie.point.document(),
        "solo_rise": lie.solo_rise,
        "loss_rise": lie.rise.mean,
        "loss_rise_error": lie.rise.error,
        "gain": lie.gain,
        "gain_error": lie.gain_error,
    }


def _economics(
    report: PlanReport,
    contract: Contract,
    expected_loss: float,
    worth: PlanWorth | None,
    all_work: float,
    own: Any,
    server: ServerSettings,
) -> PlanEconomics:
    return plan_economics(
        cost=report.cost,
        expected_pay=report.expected_pay,
        most_pay=contract.pay_range(0.0, expected_loss)[1],
        has_cap=contract.has_cap,
        own_worth=own,
        worth=all_work,
        untrained_loss=None if worth is None else worth.untrained_loss,
        factors=server,
    )


def shown_constants(job: ConstantsJob) -> Shown:
    """The plan on the job's bound."""
    model, server, training = job.loss_model(), job.server, job.training
    contract = job.plan(model)
    worth = server.loss_value * absence_rise(model, contract.batch_size)
    report = ModelReport(
        job.clients,
        training,
        model,
        contract,
        server,
        server.loss_variance,
        basis=f"{server.bound} bound",
        cost=honest_cost(job.clients, training, contract.batch_size),
        worth=worth,
        worth_error=np.zeros_like(worth),
        cost_distribution=server.distribution,
    )
    all_work = float(worth.sum())  # the bound is a sum over clients
    sums = _economics(report, contract, report.expected_loss, None, all_work, worth, server)
    warnings = [
        *presence_sentences(job.clients),
        *worth_warnings(worth, report.worth_error, report.cost),
        *idle_warnings(contract, job.clients, model, training),
    ]
    return Shown(report, sums, training, warnings, [])


def shown_plan(job: DataJob, plan: Plan, lies: PilotLies) -> Shown:
    """The plan of a job on data."""
    server = job.server
    worth = plan_worth(plan, server.loss_value, lies.absence.mean, lies.absence.error)
    report = plan.details.report(plan, worth, pictures=job.task.is_pictures)
    sums = _economics(report, plan.contract, plan.expected_loss, worth, worth.all_work, worth.own, server)
    privacy = privacy_sentence(plan)
    remarks = [
        *_above_limit(plan, report, server),
        *([] if privacy is None else [privacy]),
        *server.label_time_warnings(int(max(plan.clients.dataset_size))),
    ]
    return Shown(report, sums, plan.training, plan_warnings(plan, lies, worth), remarks, lies, privacy_json(plan))


def _above_limit(plan: Plan, report: PlanReport, server: ServerSettings) -> list[str]:
    """How many clients would get no offer because it would pay more than the job allows."""
    above = int(np.count_nonzero(report.expected_pay > server.most_expected_pay * report.cost))
    if plan.contract.has_cap or not above:
        return []
    return [
        f"Beware: {above} of {len(plan.clients)} would get no offer: most_expected_pay allows "
        f"{server.most_expected_pay:g} times the cost."
    ]


def promises(plan: Plan) -> list[PromisedPrivacy]:
    """The promise to each client; empty if gradients are not clipped."""
    model, training = plan.side.pilot.model, plan.training
    if not isinstance(model, PrivateModel):
        return []
    return [
        promised_privacy(
            model.clip,
            model.noise,
            samples=int(samples),
            batch_size=float(batch),
            steps=training.rounds * training.local_steps,
            recipe=plan.recipe,
        )
        for samples, batch in zip(plan.clients.dataset_size, plan.contract.batch_size, strict=True)
    ]


def privacy_json(plan: Plan) -> dict[str, object]:
    """ε of each client and δ; empty without noise."""
    found = promises(plan)
    if not found or not found[0].noise:
        return {}
    return {"privacy": {"epsilon": [one.epsilon for one in found], "delta": found[0].delta}}


def privacy_sentence(plan: Plan) -> str | None:
    """What the noise promises; None if gradients are not clipped."""
    found = promises(plan)
    if not found:
        return None
    if not found[0].noise:
        return "Gradients are clipped; without noise that promises nothing of what can be learned from them."
    least, most = min(one.epsilon for one in found), max(one.epsilon for one in found)
    return (
        f"Noise of {found[0].noise:g} times clip: each client's epsilon, for all that they send in this job, is "
        f"{least:.1f} to {most:.1f} at a delta of {found[0].delta:g}."
    )


def plan_and_search(
    job: DataJob, workers: int | Workers | None = None, folder: Path = Path()
) -> tuple[Plan, PilotLies]:
    """Plan and search for lies on pilot data, with a progress bar; workers elsewhere keep results in a folder."""
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
    """The context of an activity in which workers elsewhere train."""
    if workers is None or isinstance(workers, int):
        return nullcontext()

    if not can_be_planned_elsewhere(job):
        raise InputError("--on plans with built-in tasks and aggregations; plan a custom one without it.")
    require_writable(folder)
    return planned_by(workers, Store(folder / "tasks"), partial(progress, activity))


def plan(
    job_file: JobFile = None,
    contract: Annotated[
        str | None, typer.Option(metavar="KIND", help="Another contract than the job's: lceme, …, or FILE.py:Class.")
    ] = None,
    on: On = None,
    out: Annotated[Path, typer.Option(help="With --on: folder for what was trained.")] = Path("truthfl-plan"),
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What each client would be asked to do, and their pay. Of a job on data, only the server's own pilot runs.

    Example: truthfl plan hospital.toml --contract lceme --json
    """
    job = read_job(job_file)
    if contract is not None:
        job = job.with_contract(contract)
    if isinstance(job, ConstantsJob):
        if on is not None:
            raise InputError("--on is for a job on data; this one states constants and is not trained.")
        shown = shown_constants(job)
    else:
        with nullcontext() if on is None else exit_on_failure(out), workers_on(on) as workers:
            plan, lies = plan_and_search(job, workers, out)
        shown = shown_plan(job, plan, lies)
    if json:
        print_json(shown.as_json())
    else:
        shown.print()
