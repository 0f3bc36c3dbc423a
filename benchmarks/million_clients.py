"""Planning, contract and pay for up to a million clients, compared with one NumPy pass over the same arrays.

    python -m benchmarks.million_clients [--json]

One pass: `numpy.multiply(array, 2.0)` for each array of a job (clients, loss model, batch sizes, contract, pay). The
job: computing these arrays from the clients' fields, with all checks of the input: `Clients(…)`, `paper_bound`,
`optimal_batch_sizes`, `lceme`, `contract.reward`.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc

import numpy as np

from truthfl import Clients, Constants, Training, lceme, optimal_batch_sizes, paper_bound
from truthfl.mechanism.setting import batch_price

SIZES = (10_000, 100_000, 1_000_000)
CONSTANTS = Constants(
    smoothness=1.0, strong_convexity=0.1, label_shift=2.0, gradient_bound=4.0, initial_distance=1.0, optimal_loss=0.25
)
TRAINING = Training(rounds=100, local_steps=1, step_size=0.05)


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


def job(fields, budget=None):
    clients = Clients(**fields)
    model = paper_bound(clients, TRAINING, CONSTANTS)
    loss_value = 3.0 * len(clients) ** 2
    batches = optimal_batch_sizes(clients, model, TRAINING, loss_value=loss_value, budget=budget)
    contract = lceme(clients, model, TRAINING, batches)
    pay = contract.reward(0.5)
    return clients, model, batches, contract, pay


def arrays_of(clients, model, batches, contract, pay):
    client_arrays = [getattr(clients, f) for f in client_fields(1)]
    terms = [model.sampling, model.labeling, model.reporting, model.reporting_sampling, model.reporting_labeling]
    return [*client_arrays, *terms, batches, contract.slope, contract.base, pay]


def one_pass(arrays):
    for array in arrays:
        np.multiply(array, 2.0)


def best_of(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(count):
    fields = client_fields(count)
    clients, model, batches, contract, pay = job(fields)
    arrays = arrays_of(clients, model, batches, contract, pay)
    repeats = max(5, min(50, 5_000_000 // count))
    times_pass, times_job = [], []
    for _ in range(3):  # alternating, so that other load on the machine affects both
        times_pass.append(best_of(lambda: one_pass(arrays), repeats))
        times_job.append(best_of(lambda: job(fields), repeats))
    price = batch_price(clients, TRAINING)
    half = 0.5 * float(clients.labeling_cost.sum() + price @ batches)
    budget = best_of(lambda: job(fields, half), 2)
    tracemalloc.start()
    job(fields)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "clients": count,
        "pass_ms": min(times_pass) * 1e3,
        "job_ms": min(times_job) * 1e3,
        "ratio": min(times_job) / min(times_pass),
        "with_budget_ms": budget * 1e3,
        "ratio_with_budget": budget / min(times_pass),
        "peak_bytes_per_client": memory / count,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    rows = [measure(count) for count in SIZES]
    sizes, times = np.log([r["clients"] for r in rows]), np.log([r["job_ms"] for r in rows])
    exponent = float(np.polyfit(sizes, times, 1)[0])
    if arguments.json:
        print(json.dumps({"rows": rows, "time_exponent": exponent}, indent=2))
        return
    print("Plan, contract and settle, against one NumPy pass over the same arrays\n")
    print(f"{'clients':>10}{'pass ms':>10}{'job ms':>10}{'ratio':>8}{'budget ms':>12}{'ratio':>8}{'bytes/client':>14}")
    for r in rows:
        print(
            f"{r['clients']:>10,}{r['pass_ms']:>10.2f}{r['job_ms']:>10.2f}{r['ratio']:>8.1f}"
            f"{r['with_budget_ms']:>12.1f}{r['ratio_with_budget']:>8.1f}{r['peak_bytes_per_client']:>14.0f}"
        )
    print(f"\ntime grows as clients^{exponent:.2f}")


if __name__ == "__main__":
    main()
