"""Time and memory of planning, by stage, for 10, 100 and 1,000 clients.

    python -m benchmarks.planning [--clients 10 100 1000] [--contract audition] [--full 40] [--json]

Each plan is made in a separate process: the built-in job's digits, 200 samples per client, 100 rounds, softmax
regression, and a value of a unit of loss at which all clients are worth asking. Processor time counts all cores. With
--full N, the LCEME loss model of N clients is also measured by runs of the whole federation, in which every client
lies in turn. It is compared with the plan's loss model at the same step size. That takes minutes: the time grows with
the square of N.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np

from truthfl.contracts import planning
from truthfl.contracts.audition import planning as audition_planning
from truthfl.contracts.audition.plan import best_choice
from truthfl.contracts.deviation import best_deviation
from truthfl.contracts.lceme import pilot as pilot_measurement
from truthfl.contracts.setting import Training
from truthfl.job import ContractChoice, DataJob, ServerSettings, participants
from truthfl.learning.data.federations import Data, ModelChoice
from truthfl.learning.pilot.runs import PilotDesign

CONTRACTS = ("audition", "lceme")
CLIENTS = "simulated clients"  # who holds which samples, which no plan needs
STAGES = {
    "usual_recipe": (audition_planning, "recipe"),
    "measure_solo_curve": (audition_planning, "solo curve"),
    "draw_jobs": (audition_planning, "solo models of drawn jobs"),
    "tune_rounds": (audition_planning, "rounds"),
    "measure_joint_curve": (audition_planning, "joint curve"),
    "measure_joint_level": (audition_planning, "joint level"),
    "measure_report_bounds": (audition_planning, "report bounds"),
    "find_step_size": (pilot_measurement, "step size"),
    "measure_reduced_and_whole": (pilot_measurement, "gradients"),
    "pilot_runs": (pilot_measurement, "trial runs"),  # gradients are measured at the same time
    "paired_pilot_runs": (pilot_measurement, "trial runs"),
    "spread_of_loss": (planning, "spread of the loss"),
}


def job(clients: int, contract: str) -> DataJob:
    """A job of `clients` clients with 200 digits each."""
    value = 500.0 * clients**2 if contract == "audition" else 360.0 * clients
    return DataJob(
        Data(pilot_samples=2000, test_samples=1000),
        ModelChoice(),
        Training(100),
        ServerSettings(loss_value=value, test_samples=10_000),
        participants([200] * clients, label_cost=1.0, sample_cost=0.0006),
        ContractChoice(contract),
        tune_step=True,
    )


def one_plan(clients: int, contract: str) -> dict:
    """Processor seconds by stage and in all, wall-clock seconds, and peak memory of one plan."""
    seconds: dict[str, float] = {}
    for name, (module, stage) in STAGES.items():
        setattr(module, name, _timed(getattr(module, name), stage, seconds))
    started, work = time.perf_counter(), job(clients, contract)
    federation = _timed(work.simulated_federation, CLIENTS, seconds)()
    plan = work.plan(federation)
    if contract == "audition":
        truthful = bool((best_choice(plan.details.inputs, plan.contract).gain <= 0.03 * plan.contract.label_base).all())
    else:
        found = best_deviation(plan.contract, plan.clients, plan.calibration.model, plan.training)
        truthful = bool((found.gain <= found.resolution).all())
    cpu = time.process_time()
    return {
        "clients": clients,
        "stages": seconds | {"all else": cpu - sum(seconds.values())},
        "cpu_seconds": cpu,
        "wall_seconds": time.perf_counter() - started,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "clients_asked": len(plan.clients),
        "truthful": truthful,
    }


def _timed(function, stage: str, seconds: dict[str, float]):
    def timed(*words, **named):
        started = time.process_time()
        result = function(*words, **named)
        seconds[stage] = seconds.get(stage, 0.0) + time.process_time() - started
        return result

    return timed


def full_against_sampled(clients: int) -> dict:
    """Coefficients of both loss models with standard errors, and processor seconds."""
    side = job(clients, "lceme").server_side()
    tuned = pilot_measurement.measure_reduced_federation(side, PilotDesign(), tune_step=True).training
    side = replace(side, pilot=replace(side.pilot, training=tuned))
    rows = {}
    for name, find in (
        ("full", pilot_measurement.measure_whole_federation),
        ("sampled", pilot_measurement.measure_reduced_federation),
    ):
        started = time.process_time()
        found = find(side, PilotDesign(), tune_step=False).calibration
        parts = [found.model.constant, *(x.sum() for x in (found.model.sampling, found.model.labeling))]
        relative = found.standard_error[:3] / np.abs(found.factor[:3])
        rows[name] = {
            "parts": [float(x) for x in parts],
            "errors": [float(x) for x in parts * relative],
            "cpu_seconds": time.process_time() - started,
        }
    return {"clients": clients, "step_size": tuned.step_size, **rows}


def in_its_own_process(*words: object) -> dict:
    command = [sys.executable, "-m", "benchmarks.planning", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def show(plans: list[dict], against: dict | None) -> None:
    names = list(dict.fromkeys(name for plan in plans for name in plan["stages"]))
    print(f"{'processor seconds':20s}" + "".join(f"{plan['clients']:>12,} clients" for plan in plans))
    for name in [*names, "cpu_seconds"]:
        values = [plan["stages"].get(name, plan.get(name, 0.0)) for plan in plans]
        cells = [f"{value:11.2f} " + (f"(×{value / values[0]:4.1f})" if values[0] else " " * 7) for value in values]
        print(f"{'all' if name == 'cpu_seconds' else name:20s}" + " ".join(cells))
    print(f"{'wall seconds':20s}" + "".join(f"{plan['wall_seconds']:20.1f}" for plan in plans))
    print(f"{'peak memory, MB':20s}" + "".join(f"{plan['peak_mb']:20.0f}" for plan in plans))
    if against:
        print(f"\nloss model of {against['clients']} clients: constant, Σv, Σb (± standard error), processor seconds")
        for name in ("full", "sampled"):
            one = against[name]
            parts = zip(one["parts"], one["errors"], strict=True)
            print(
                f"{name:10s}" + "   ".join(f"{x:.4f} ± {e:.4f}" for x, e in parts) + f"   {one['cpu_seconds']:8.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--contract", choices=CONTRACTS, default=CONTRACTS[0])
    parser.add_argument("--full", type=int, help="compare the sampled pilot with the full one, for this many clients")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one_plan(arguments.one, arguments.contract)))
        return
    contract = ("--contract", arguments.contract)
    plans = [in_its_own_process("--one", clients, *contract) for clients in arguments.clients]
    against = full_against_sampled(arguments.full) if arguments.full else None
    if arguments.json:
        print(json.dumps({"plans": plans, "against_full": against}, indent=2))
    else:
        show(plans, against)


if __name__ == "__main__":
    main()
