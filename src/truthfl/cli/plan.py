"""`truthfl plan`: what each client would be asked and paid. Nothing runs."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from truthfl.cli.output import JobFile, console, print_json, table
from truthfl.job import Job, read_job
from truthfl.mechanism.assignment import labeling_floor
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.deviation import Deviation, best_deviation, free_riding_gain
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.payoff import server_payoff
from truthfl.mechanism.spread import pay_standard_deviation, samples_for_share

ROWS_SHOWN = 40


def plan(
    job_file: JobFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What each client would be asked to do and paid for it; nothing runs.

    Example: truthfl plan hospital.toml --json
    """
    job = read_job(job_file)
    model = job.loss_model()
    batches = job.assignment(model)
    contract = lceme(job.clients, model, job.training, batches, margin=job.server.margin)
    found = best_deviation(contract, job.clients, model, job.training)
    if json:
        print_json(_as_json(job, model, contract, found))
    else:
        _print(job, model, contract, found)


def _as_json(job: Job, model: LossModel, contract: Contract, found: Deviation) -> dict[str, object]:
    return {
        "clients": {
            "name": job.clients.name,
            "labeling_floor": labeling_floor(job.clients, model, job.training),
            "batch_size": contract.batch_size,
            "slope": contract.slope,
            "base": contract.base,
            "labeling_cost": contract.labeling_cost,
            "expected_pay": found.honest_pay,
            "pay_standard_deviation": _spread(job, contract),
            "expected_payoff": found.honest_payoff,
            "largest_gain_from_lying": found.gain,
            "gain_from_free_riding": free_riding_gain(contract, job.clients, model, job.training),
        },
        "expected_loss": model.truthful_loss(contract.batch_size),
        "total_pay": float(found.honest_pay.sum()),
        "server_payoff": server_payoff(contract, model, loss_value=job.server.loss_value),
        "confirmed_by_search": found.confirmed,
    }


def _print(job: Job, model: LossModel, contract: Contract, found: Deviation) -> None:
    clients, spread = job.clients, _spread(job, contract)
    floor = labeling_floor(clients, model, job.training)
    cost = found.honest_pay - found.honest_payoff
    rows = [
        [
            str(i) if clients.name is None else clients.name[i],
            f"{clients.weight[i]:.4g}",
            f"{floor[i]:.1f}",
            f"{contract.batch_size[i]:.0f}",
            f"{cost[i]:,.2f}",
            f"{found.honest_pay[i]:,.2f}",
            f"{spread[i]:,.2f}",
            f"{contract.slope[i]:,.2f}",
        ]
        for i in range(min(len(clients), ROWS_SHOWN))
    ]
    if len(clients) > ROWS_SHOWN:
        rows.append([f"… {len(clients) - ROWS_SHOWN} more", *[""] * 7])
    rows.append(["total", "", "", "", f"{cost.sum():,.2f}", f"{found.honest_pay.sum():,.2f}", "", ""])
    columns = ["client", "weight", "floor", "batch", "cost", "pay", "± pay", "slope"]
    out = console()
    out.print(table(f"Plan for {len(clients)} clients, {job.training.rounds} rounds", columns, rows))
    out.print(
        f"Expected loss {model.truthful_loss(contract.batch_size):.4f} ({job.server.bound} bound); "
        f"server's payoff {server_payoff(contract, model, loss_value=job.server.loss_value):,.2f}.\n"
        "slope: pay lost per unit of test loss."
    )
    samples = job.server.test_samples
    if job.server.loss_variance > 0 and (found.honest_pay > 0).all():
        enough = samples_for_share(contract, found.honest_pay, job.server.loss_variance, share=0.1)
        out.print(
            f"± pay: standard deviation with {samples:,} test sample{'s' * (samples > 1)}; "
            f"it stays within a tenth of everybody's pay from {enough:,} on."
        )
    worst = float(np.max(np.where(found.gain > found.resolution, found.gain, 0.0)))
    evidence = "formula and search agree" if found.confirmed else "formula and search disagree"
    out.print(f"The most anybody gains by lying, on this loss model: {worst:.2f} ({evidence}).")
    idle = free_riding_gain(contract, clients, model, job.training)
    if (idle > found.resolution).any():
        out.print(
            f"Beware: {int((idle > found.resolution).sum())} of {len(clients)} would gain, up to {idle.max():,.2f}, by "
            "sending the model back unworked, which is outside the contract's proof (docs/mechanism.md, section 6)."
        )


def _spread(job: Job, contract: Contract) -> np.ndarray:
    return pay_standard_deviation(contract, job.server.loss_variance, test_samples=job.server.test_samples)
