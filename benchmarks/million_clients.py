"""Plan, contract, audition and pay for up to a million clients, compared with one NumPy pass over the same arrays.

    python -m benchmarks.million_clients [--clients 10000 100000 1000000] [--json]

Two jobs, each from the clients' fields and with all checks of the input:

    lceme     `Clients(…)`, `paper_bound`, `optimal_batch_sizes`, `lceme`, `contract.reward`
    audition  `Clients(…)`, `plan_audition` on a measured solo curve (labels, batches, terms); then from given solo
              losses `peer_shifts`, the clients who pass, and the labels that take part; then pay by solo losses and
              delivered rounds, rounded to whole minor units

One pass is `numpy.multiply(array, 2.0)` for each array that the job reads or returns, with one number per client. Terms
with one number for all clients do not count. That is 16 arrays for lceme and 22 for the audition. The budget, if any,
is 0.7 of the plan's pay without one. Times are processor time, which other load affects less than wall-clock time;
nothing here uses more than one core. Passes and jobs take turns, and the best time of each counts.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc

import numpy as np

from truthfl import (
    Clients,
    Constants,
    Observation,
    SoloResult,
    Training,
    lceme,
    optimal_batch_sizes,
    paper_bound,
    peer_shifts,
)
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement, plan_audition
from truthfl.contracts.setting import batch_price

SIZES = (10_000, 100_000, 1_000_000)
CONSTANTS = Constants(
    smoothness=1.0, strong_convexity=0.1, label_shift=2.0, gradient_bound=4.0, initial_distance=1.0, optimal_loss=0.25
)
TRAINING = Training(rounds=100, local_steps=1, step_size=0.05)
TEST_LOSS, MINOR_UNITS = 0.5, 100
PILOT_CLIENTS = 41
ROUNDS_OF_TIMES = 4
BUDGET = 0.7  # of what would be paid without one


def client_fields(count):
    """Random keyword arguments of `Clients`."""
    generator = np.random.default_rng(0)
    weight = generator.uniform(0.5, 1.5, count)
    return {
        "weight": weight / weight.sum(),
        "gradient_variance": generator.uniform(10, 60, count),
        "sample_cost": generator.uniform(0.001, 0.004, count),
        "labeling_cost": generator.uniform(1, 5, count) * 10 / count,
        "dataset_size": generator.integers(100, 1000, count),
        "heterogeneity": generator.uniform(0, 1, count),
        "participation": generator.uniform(0.5, 1, count),
    }


class LcemeJob:
    """Plans and settles under LCEME."""

    def __init__(self, count):
        self.fields = client_fields(count)

    def run(self, budget=None):
        """All arrays that the job reads or returns, and what is paid if all are honest."""
        clients = Clients(**self.fields)
        model = paper_bound(clients, TRAINING, CONSTANTS)
        loss_value = 3.0 * len(clients) ** 2
        batches = optimal_batch_sizes(clients, model, TRAINING, loss_value=loss_value, budget=budget)
        contract = lceme(clients, model, TRAINING, batches)
        pay = contract.reward(TEST_LOSS)
        terms = [model.sampling, model.labeling, model.reporting, model.reporting_sampling, model.reporting_labeling]
        return [*_arrays_of(clients), *terms, batches, contract.slope, contract.base, pay]

    def full_pay(self):
        """Total pay without a budget."""
        clients, batches = Clients(**self.fields), self.run()[12]
        return float(clients.labeling_cost.sum() + batch_price(clients, TRAINING) @ batches)


class AuditionJob:
    """Plans, auditions and settles under the audition contract; some clients deliver no model, or a bad one."""

    def __init__(self, count):
        generator = np.random.default_rng(1)
        self.fields = client_fields(count) | {"labeling_cost": generator.uniform(60, 500, count)}
        numbers = np.unique(np.rint(np.geomspace(20, 300, 24)))
        scores = generator.standard_normal((PILOT_CLIENTS, 1))
        self.solo = SoloCurve(numbers, 0.3 + 60.0 / numbers * (1.0 + 0.05 * scores))
        self.audition_cost = generator.uniform(0.5, 2.0, count)
        self.noise = generator.standard_normal(count)
        self.noise[generator.random(count) < 0.01] = 40.0
        self.noise[generator.random(count) < 0.01] = np.nan
        self.asked = generator.integers(50, 101, count)
        self.delivered = self.asked - (generator.random(count) < 0.05)
        contract = plan_audition(self._inputs(Clients(**self.fields), None))
        self.solo_loss = contract.solo_level + contract.solo_spread * self.noise

    def run(self, budget=None):
        """All arrays that the job reads or returns."""
        clients = Clients(**self.fields)
        contract = plan_audition(self._inputs(clients, budget))
        excess = self.solo_loss - contract.solo_level
        excess /= contract.solo_spread
        shifts = peer_shifts(excess)
        passed = contract.passes(Observation(TEST_LOSS, solo=SoloResult(self.solo_loss, shifts)))
        share = self.delivered / self.asked
        share *= contract.labels
        present = (share * passed).sum()
        own = np.where(passed, present, present + contract.labels)
        seen = Observation(
            TEST_LOSS,
            solo=SoloResult(self.solo_loss, shifts),
            present_labels=own,
            delivered=self.delivered,
            asked=self.asked,
        )
        pay = contract.pay(seen)
        pay *= MINOR_UNITS
        pay = np.rint(pay, out=pay).astype(np.int64)
        terms = [values for values in contract.terms().values() if values.strides != (0,)]
        given = [self.audition_cost, self.solo_loss, self.asked, self.delivered]
        return [*_arrays_of(clients), *given, contract.batch_size, *terms, pay]

    def full_pay(self):
        """Expected total pay without a budget."""
        contract = plan_audition(self._inputs(Clients(**self.fields), None))
        return float((contract.label_base + contract.computing_base).sum())

    def _inputs(self, clients, budget):
        """The inputs for the choice of an audition, whose computing is paid a fixed amount."""
        measured = AuditionMeasurement(
            solo=self.solo,
            joint_curve=60.0,
            joint_curve_error=3.0,
            audition_cost=self.audition_cost,
            batch=64.0,
        )
        return AuditionInputs(clients, measured, TRAINING, 400.0 * len(clients) ** 2, budget=budget)


JOBS = {"lceme": LcemeJob, "audition": AuditionJob}


def _arrays_of(clients):
    return [getattr(clients, field) for field in client_fields(1)]


def one_pass(arrays):
    for array in arrays:
        np.multiply(array, 2.0)


def timed(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(kind, count):
    """Best times of a pass, of the job, and of the job with a budget; the three take turns."""
    job = JOBS[kind](count)
    arrays, budget = job.run(), BUDGET * job.full_pay()
    repeats = max(3, min(25, 2_000_000 // count))
    functions = {"pass": lambda: one_pass(arrays), "job": job.run, "budget": lambda: job.run(budget)}
    best = dict.fromkeys(functions, np.inf)
    for _ in range(ROUNDS_OF_TIMES):  # in turn, so that other load on the machine affects all
        for name, function in functions.items():
            best[name] = min(best[name], *(timed(function) for _ in range(repeats)))
    tracemalloc.start()
    job.run()
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "contract": kind,
        "clients": count,
        "arrays": len(arrays),
        "pass_ms": best["pass"] * 1e3,
        "job_ms": best["job"] * 1e3,
        "ratio": best["job"] / best["pass"],
        "with_budget_ms": best["budget"] * 1e3,
        "ratio_with_budget": best["budget"] / best["pass"],
        "peak_bytes_per_client": memory / count,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=SIZES)
    parser.add_argument("--contract", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    rows = [measure(kind, count) for kind in arguments.contract for count in arguments.clients]
    if arguments.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    print("Plan, contract, audition and pay, against one NumPy pass over the same arrays\n")
    print(
        f"{'contract':10}{'clients':>10}{'arrays':>8}{'pass ms':>10}{'job ms':>10}{'ratio':>8}{'budget ms':>12}"
        f"{'ratio':>8}{'bytes/client':>14}"
    )
    for r in rows:
        print(
            f"{r['contract']:10}{r['clients']:>10,}{r['arrays']:>8}{r['pass_ms']:>10.2f}{r['job_ms']:>10.2f}"
            f"{r['ratio']:>8.1f}{r['with_budget_ms']:>12.1f}{r['ratio_with_budget']:>8.1f}"
            f"{r['peak_bytes_per_client']:>14.0f}"
        )


if __name__ == "__main__":
    main()
