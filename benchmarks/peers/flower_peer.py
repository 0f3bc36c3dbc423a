"""Flower's simulation on Ray: one process per core, federated averaging, no evaluation.

Its server polls for answers a few times per second, so a round of few clients takes a multiple of that interval.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.workload import THREADS

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def run(work, gate) -> None:
    with tempfile.TemporaryDirectory(prefix="flower") as scratch:
        here = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        os.environ.update(QUIET, FLWR_HOME=scratch, PYTHONPATH=paths)
        os.environ["TRUTHFL_BENCHMARK_WORK"] = json.dumps(dataclasses.asdict(work))
        simulate(work, gate, scratch)


def simulate(work, gate, scratch) -> None:
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks.peers.flower_app import client
    from benchmarks.peers.torch_parts import Network

    gate.imported()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    network, server = Network(work), ServerApp()

    class Clocked(FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)

            def flat():
                network.load_state_dict(arrays.to_torch_state_dict())
                return network.flat()

            if not gate.round_done(flat):
                raise KeyboardInterrupt
            return arrays, metrics

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001  (Flower's signature)
        everybody = {"min_train_nodes": work.clients, "min_available_nodes": work.clients}
        strategy = Clocked(fraction_train=1.0, fraction_evaluate=0.0, **everybody)
        if gate.open():
            try:
                strategy.start(grid=grid, initial_arrays=ArrayRecord(network.state_dict()), num_rounds=sys.maxsize)
            except KeyboardInterrupt:
                return

    ray = {"num_cpus": THREADS, "include_dashboard": False, "logging_level": "error", "log_to_driver": False}
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {**ray, "_temp_dir": scratch},
    }
    run_simulation(server, client, num_supernodes=work.clients, backend_config=backend)
