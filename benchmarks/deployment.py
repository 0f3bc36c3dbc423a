"""The duration of a round with real nodes on this machine, compared with plain Flower; and the guide's whole job.

    python -m benchmarks.deployment [--nodes 3] [--rounds 40] [--flower-rounds 3] [--json]

`truthfl serve` and the given number of `truthfl join` processes, over TLS with keys, train softmax regression on MNIST
digits. The server measures a round from the first message to the last reply. In the same run, plain Flower does a
FedAvg of a model of the same size with Flower's own commands, over TLS. Then the commands of docs/federation.md run
from the first to the last receipt. `--flower-rounds 0` leaves out plain Flower, `--no-guide` the guide's job.

Memory is the largest resident set of a process. The server itself counts what a node costs it in a round (processor
time of all threads, and bytes of messages and replies without TLS and HTTP), during rounds only; the live status has
these counts.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.plain_flower import HOST, ROOT, flower_round_seconds, free_port
from benchmarks.peers.process_memory import most_megabytes
from truthfl.federation.operator.live_status import read_live_status

SECONDS = 1800.0
JOB = """
[data]
source = "mnist"
pilot_samples = 1000
test_samples = 1000
[model]
kind = "softmax"
[training]
rounds = {rounds}
step_size = 0.5
[server]
loss_value = 50000.0
test_samples = 2000
enrol_seconds = 600
answer_seconds = 300
label_seconds = 300
audition_seconds = 300
round_seconds = 120
[clients]
name = {names}
dataset_size = {size}
label_cost = 1.0
sample_cost = 0.0006
"""
MOST_SAMPLES = 3000  # of the 5,000 digits, without pilot and test data
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Processes:
    """Truthfl commands in one folder, with the largest memory that each has used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.megabytes: dict[str, float] = {}

    def start(self, name: str, *words: object) -> None:
        """Start a command in the background."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "truthfl", *map(str, words)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, *words: object) -> None:
        """Run a command to its end."""
        command = [sys.executable, "-m", "truthfl", *map(str, words)]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def wait(self, done: Callable[[], bool] = lambda: False) -> None:
        """Wait until this is true, or all commands have ended; note how much memory they use."""
        deadline = time.monotonic() + SECONDS
        while not done() and any(process.poll() is None for process in self.running.values()):
            for name, process in self.running.items():
                used = most_megabytes(process.pid) if process.poll() is None else 0.0
                self.megabytes[name] = max(self.megabytes.get(name, 0.0), used)
            if time.monotonic() > deadline:
                self.end()
                raise SystemExit(f"not within {SECONDS:g} seconds: {self.log('serve')[-2000:]}")
            time.sleep(0.05)
        failed = [name for name, process in self.running.items() if process.poll() not in (None, 0)]
        if failed:
            self.end()
            raise SystemExit(f"{failed[0]} failed: {self.log(failed[0])[-2000:]}")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def served(folder: Path, nodes: int, rounds: int) -> dict[str, Any]:
    """A job with this many nodes: times of rounds, a node's cost for the server, memory of a node and of the server."""
    folder.mkdir(parents=True)
    names = [f"p{number:03}" for number in range(nodes)]
    size = min(200, MOST_SAMPLES // nodes)
    (folder / "job.toml").write_text(JOB.format(rounds=rounds, names=json.dumps(names), size=size), encoding="utf-8")
    processes, port = Processes(folder), free_port()
    processes.run("keys", "server", "--host", HOST, "--out", "keys")
    processes.run("share", "job.toml", "--out", "shares", "--seed", 3)
    from truthfl.ledger.signing import new_key, write_key

    for name in names:
        write_key(new_key(), folder / "people" / name, name)
    started = time.monotonic()
    keys = ("--keys", "keys", "--participants", "people", "--host", HOST, "--port", port)
    processes.start("serve", "serve", "job.toml", *keys, "--out", "served", "--yes", "--seed", 3)
    for name in names:
        server = ("--server", f"{HOST}:{port}", "--root", "keys/ca.crt", "--name", name, "--key", f"people/{name}")
        processes.start(name, "join", *server, "--data", f"shares/{name}.npz", "--home", f"home-{name}", "--accept")
    processes.wait()
    live = read_live_status(folder / "served")
    assert live is not None
    asked = nodes * live.rounds_timed
    return {
        "rounds": len(live.round_seconds),
        "median_round_s": statistics.median(live.round_seconds),
        "slowest_round_s": max(live.round_seconds),
        "job_s": time.monotonic() - started,
        "node_mb": max(processes.megabytes[name] for name in names),
        "server_mb": processes.megabytes["serve"],
        "server_cpu_ms_per_node_round": 1000 * live.cpu_seconds_in_rounds / asked,
        "sent_bytes_per_node_round": live.sent_bytes_in_rounds / asked,
        "received_bytes_per_node_round": live.received_bytes_in_rounds / asked,
    }


def guide_seconds(folder: Path) -> float:
    """The seconds of the guide's commands, from the first to the last receipt."""
    folder.mkdir(parents=True)
    blocks = FENCE.findall((ROOT / "docs" / "federation.md").read_text(encoding="utf-8"))
    (job,) = [text for language, text in blocks if language == "toml"]
    console = "\n".join(text for language, text in blocks if language == "console")
    commands = [shlex.split(line) for line in re.findall(r"^\$ truthfl (.*)$", console, flags=re.MULTILINE)]
    (folder / "digits.toml").write_text(job, encoding="utf-8")
    processes, started, port = Processes(folder), time.monotonic(), str(free_port())
    for words in commands:
        own = [word.replace("8443", port) for word in words]
        if words[0] == "serve":
            processes.start("serve", *own)
        elif words[0] == "join":
            processes.start(f"join{len(processes.running)}", *own)
        elif words[0] == "invite":
            processes.wait(lambda: "waiting for" in processes.log("serve"))
            processes.run(*own)
        elif not any(name.startswith("join") for name in processes.running):
            processes.run(*own)
    processes.wait()
    return time.monotonic() - started


def measure(nodes: int, rounds: int, flower_rounds: int, *, with_guide: bool) -> dict[str, Any]:
    """All measurements, with this many nodes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found: dict[str, Any] = {"nodes": nodes, **served(folder / "own", nodes, rounds)}
        if flower_rounds:
            times = flower_round_seconds(folder / "flower", nodes, flower_rounds)
            found["flower_median_round_s"] = statistics.median(times)
            found["ratio_to_flower"] = found["flower_median_round_s"] / found["median_round_s"]
        if with_guide:
            found["guide_job_s"] = guide_seconds(folder / "guide")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--flower-rounds", type=int, default=3)
    parser.add_argument("--no-guide", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.nodes, options.rounds, options.flower_rounds, with_guide=not options.no_guide)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['nodes']} nodes, {found['rounds']} rounds")
    print(f"a round, median        {found['median_round_s']:8.3f} s   slowest {found['slowest_round_s']:.3f} s")
    if options.flower_rounds:
        print(f"plain Flower, median   {found['flower_median_round_s']:8.2f} s   {found['ratio_to_flower']:.0f} times")
    sent, received = (found[f"{way}_bytes_per_node_round"] for way in ("sent", "received"))
    print(f"server's CPU           {found['server_cpu_ms_per_node_round']:8.2f} ms a node and round")
    print(f"bytes a node and round {sent:8,.0f} sent, {received:,.0f} received")
    print(f"memory of a node       {found['node_mb']:8.0f} MB  of the server {found['server_mb']:.0f} MB")
    print(f"the whole job          {found['job_s']:8.1f} s")
    if "guide_job_s" in found:
        print(f"the guide's whole job  {found['guide_job_s']:8.1f} s")


if __name__ == "__main__":
    main()
