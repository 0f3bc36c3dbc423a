"""The speed of federated training rounds: truthfl, plain loops, and the installed federated-learning frameworks.

    python -m benchmarks.training [--quick] [--json]

All train the same network (5 × 5 convolution with 8 filters, ReLU, 2 × 2 max-pooling, dense softmax) on the same
60,000 random images of 28 × 28 pixels, split evenly over the clients: batch 50 per client and step, full
participation, plain SGD, from the same parameters, with two threads. A block is a few rounds; contenders take turns,
block by block, each in its own process. Peers have their images as floats and, where possible, their batches drawn
beforehand; truthfl draws batches and converts bytes within its rounds. See `benchmarks/peers/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.peers.driver import Contender, Plan, environment, measure
from benchmarks.peers.tables import show
from benchmarks.peers.workload import Work

KERNEL, NUMPY = "truthfl, kernel", "truthfl, NumPy"
CONTENDERS = [
    Contender(KERNEL, "ours", is_peer=False),
    Contender(NUMPY, "ours", is_peer=False, kernel="off"),
    Contender("plain NumPy loop", "numpy_loop", threads=1),
    Contender("plain PyTorch loop", "torch_loop"),
    Contender("FedLab", "fedlab_peer"),
    Contender("pfl-research", "pfl_peer"),
    Contender("FedJAX", "fedjax_peer"),
    Contender("Flower simulation", "flower_peer", alone=True),
]
SLOW_TO_START = ("pfl-research", "FedJAX", "Flower simulation")
NOT_RUN = {"NVIDIA FLARE": "not run here: seconds per round"}
PEERS = {c.name for c in CONTENDERS if c.is_peer}


def plans(quick: bool) -> list[Plan]:
    if quick:
        small = {"images": 6000}
        return [
            Plan(Work(10, **small), rounds=3, blocks=3, seconds=1.0),
            Plan(Work(100, **small), rounds=1, blocks=2, seconds=1.0),
            Plan(Work(10, local_steps=5, **small), rounds=1, blocks=2, seconds=1.0),
        ]
    return [
        Plan(Work(10), rounds=10, blocks=16, seconds=8.0),
        Plan(Work(100), rounds=2, blocks=12, seconds=8.0),
        Plan(Work(1000), rounds=1, blocks=5, seconds=15.0),
        Plan(Work(10, local_steps=5), rounds=4, blocks=12, seconds=8.0),
    ]


def ratios(rows: list[dict], of: str) -> dict[str, float]:
    """By setting: the time of the fastest peer's best block divided by this contender's."""
    result = {}
    for row in rows:
        peers = [r["best_ms"] for r in rows if r["setting"] == row["setting"] and r["contender"] in PEERS]
        if row["contender"] == of and peers:
            result[row["setting"]] = min(peers) / row["best_ms"]
    return result


def side_job(module: str, *words: int, threads: int = 2) -> dict:
    """Run another module of `benchmarks.peers` in a separate process and return its JSON output."""
    command = [sys.executable, "-m", f"benchmarks.peers.{module}", *map(str, words)]
    done = subprocess.run(command, env=environment(threads=threads), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run(quick: bool, report) -> dict:
    absent = dict(NOT_RUN)
    if quick:
        absent |= dict.fromkeys(SLOW_TO_START, "left out by --quick")
    rows, gflops = [], []
    for plan in plans(quick):
        gflops.append(side_job("peak", 1000 if quick else 3000, 5)["gflops"])
        rows += measure(plan, CONTENDERS, absent, report)
    peak = max(gflops)
    work = {plan.work.label: plan.work for plan in plans(quick)}
    report("softmax regression")
    softmax = side_job("softmax", *((40, 20, 3) if quick else (1000, 100, 20)), threads=1)
    report("cost against clients, batch, runs and filters")
    scaling = side_job("scaling", *((6000, 1, 2) if quick else (60_000, 5, 5)))
    return {
        "rounds": rows,
        "ratio_to_fastest_peer": ratios(rows, KERNEL),
        "numpy_ratio_to_fastest_peer": ratios(rows, NUMPY),
        "softmax": softmax,
        "peak_fraction": {
            row["setting"]: work[row["setting"]].flops() / row["best_ms"] / 1e6 / peak
            for row in rows
            if row["contender"] == KERNEL
        },
        "matmul_gflops": peak,
        "exponents": {axis: found["exponent"] for axis, found in scaling.items()},
        "scaling": scaling,
        "absent": absent,
        "quick": quick,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="less of everything; for a look, not for numbers")
    arguments = parser.parse_args()
    result = run(arguments.quick, lambda what: print(f"… {what}", file=sys.stderr))
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, [c.name for c in CONTENDERS])


if __name__ == "__main__":
    main()
