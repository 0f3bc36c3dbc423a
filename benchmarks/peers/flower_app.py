"""Flower's client app, in its own module so that each of Ray's processes imports it and creates the data once."""

from __future__ import annotations

import json
import os
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers.torch_parts import Network, tensors
from benchmarks.peers.workload import CYCLE, STEP_SIZE, Work

client = ClientApp()


@cache
def prepared():
    work = Work(**json.loads(os.environ["TRUTHFL_BENCHMARK_WORK"]))
    parts = work, Network(work), *tensors(work)
    torch.set_num_threads(1)  # one process per core
    return parts


@client.train()
def take_steps(message: Message, context: Context) -> Message:
    work, network, images, labels, rows = prepared()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=STEP_SIZE)
    round_ = int(message.content["config"]["server-round"]) - 1
    for batch in rows[round_ % CYCLE, int(context.node_config["partition-id"])]:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
    weight = MetricRecord({"num-examples": work.each})
    return Message(RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": weight}), reply_to=message)
