"""How often the demo's statements are true: the built-in job with twenty seeds, none of them chosen.

    python -m benchmarks.demo_seeds [--seeds 20] [--first 0] [--json]

Run k is `truthfl run --seed k` with newly drawn data (data seed 1 + k): other pictures for everybody, another pilot,
another test set. A sentence is about one participant, or about all honest ones; the table shows in how many runs it is
true. Each seed takes about half a minute.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from truthfl.federation.simulated.in_process import run_job
from truthfl.job import read_job


def one_run(job, seed: int) -> dict:
    """Pay, cost and payoffs of all clients in one run."""
    job = replace(job, data=replace(job.data, seed=1 + seed))
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_job(job, Path(folder), seed=seed)
    honest = np.isnan(outcome.payoff_if_honest)
    return {
        "seed": seed,
        "name": list(job.clients.name),
        "behaviour": list(outcome.behaviour),
        "honest": honest.tolist(),
        "pay": outcome.pay.tolist(),
        "cost": outcome.cost.tolist(),
        "payoff": outcome.payoff.tolist(),
        "payoff_if_honest": np.where(honest, 0.0, outcome.payoff_if_honest).tolist(),
        "stopped_at_gate": outcome.stopped_at_gate.tolist(),
    }


def sentences(rows: list[dict]) -> list[tuple[str, int, int]]:
    """Each sentence, with how often it is true and how often it could be."""
    honest = [(row, i) for row in rows for i, alone in enumerate(row["honest"]) if alone]
    result = [
        ("an honest participant is paid above cost", sum(r["payoff"][i] > 0 for r, i in honest), len(honest)),
        (
            "all honest participants are paid above cost",
            sum(all(p > 0 for p, h in zip(r["payoff"], r["honest"], strict=True) if h) for r in rows),
            len(rows),
        ),
        ("an honest participant passes the audition", sum(not r["stopped_at_gate"][i] for r, i in honest), len(honest)),
        ("nobody is paid less than 0", sum(min(r["pay"]) >= 0 for r in rows), len(rows)),
    ]
    for i, alone in enumerate(rows[0]["honest"]):
        if not alone:
            who = f"{rows[0]['name'][i]} ({rows[0]['behaviour'][i]})"
            less = sum(row["payoff"][i] < row["payoff_if_honest"][i] for row in rows)
            result.append((f"{who} is left with less than after honest work", less, len(rows)))
            result.append((f"{who} is stopped at the audition", sum(r["stopped_at_gate"][i] for r in rows), len(rows)))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.first < 0:
        parser.error("seeds must be at least 1, and the first at least 0")
    job, rows = read_job(None), []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        rows.append(one_run(job, seed))
        if not arguments.json:
            paid = sum(p > 0 for p, h in zip(rows[-1]["payoff"], rows[-1]["honest"], strict=True) if h)
            stopped = sum(rows[-1]["stopped_at_gate"])
            print(f"seed {seed}: {paid} of {sum(rows[-1]['honest'])} honest above cost, {stopped} stopped", flush=True)
    counted = sentences(rows)
    if arguments.json:
        print(json.dumps({"runs": rows, "sentences": counted}, indent=2))
        return
    for sentence, times, of in counted:
        print(f"{times:4d} of {of:4d}  {sentence}")
    pay, cost = (sum(r[name][i] for r in rows for i, h in enumerate(r["honest"]) if h) for name in ("pay", "cost"))
    print(f"honest pay is {pay / cost:.2f} times its cost")


if __name__ == "__main__":
    main()
