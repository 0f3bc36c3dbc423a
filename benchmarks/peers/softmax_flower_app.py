"""A plain Flower app for `benchmarks.deployment`: FedAvg of softmax regression on pictures, with the times of rounds.

Flower's own processes load it; it uses nothing of truthfl.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

PIXELS, CLASSES, SAMPLES, BATCH, STEP = 28 * 28, 10, 200, 60, 0.1

client_app = ClientApp()  # Flower looks for one assignment to each name
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One gradient step of softmax regression on a batch of the client's own pictures."""
    draws = np.random.default_rng(context.node_id % 2**32)
    pictures, labels = draws.random((SAMPLES, PIXELS), dtype=np.float32), draws.integers(0, CLASSES, SAMPLES)
    batch = draws.choice(SAMPLES, BATCH)
    weights = message.content["arrays"]["weights"].numpy().reshape(PIXELS + 1, CLASSES)
    features = np.hstack([pictures[batch], np.ones((BATCH, 1), dtype=np.float32)])
    scores = features @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(BATCH), labels[batch]] -= 1.0
    changed = weights - STEP / BATCH * features.T @ chances
    content = {
        "arrays": ArrayRecord({"weights": Array(changed.astype(np.float32).ravel())}),
        "metrics": MetricRecord({"num-examples": SAMPLES}),
    }
    return Message(RecordDict(content), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that notes when each round starts."""

    def __init__(self, nodes: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        self.starts: list[float] = []

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid):
        made = list(super().configure_train(server_round, arrays, config, grid))  # waits for the nodes
        self.starts.append(time.monotonic())
        return made


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the rounds and write their times, in seconds, to the file that the run config names."""
    strategy = TimedFedAvg(int(context.run_config["nodes"]))
    start = ArrayRecord({"weights": Array(np.zeros((PIXELS + 1) * CLASSES, dtype=np.float32))})
    strategy.start(grid, start, num_rounds=int(context.run_config["rounds"]))
    times = np.diff([*strategy.starts, time.monotonic()])
    Path(str(context.run_config["file"])).write_text(json.dumps(times.tolist()), encoding="utf-8")
