"""truthfl: one call of `train` per block, with the kernel unless TRUTHFL_KERNEL=off."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.peers.workload import SEED, THREADS
from truthfl import Strategies, Training
from truthfl.learning.data.partition import Federated
from truthfl.learning.training.compute import kernel
from truthfl.learning.training.train import train


def run(work, gate) -> None:
    if os.environ.get("TRUTHFL_KERNEL") != "off" and kernel() is None:
        raise ModuleNotFoundError("the compiled kernel was not built")
    gate.imported()
    first = work.federated(1)
    honest = Strategies.truthful(np.full(work.clients, work.batch))
    going = gate.open()
    while going:
        training = Training(gate.requested, work.local_steps, first.training.step_size)
        federated = Federated(first.model, first.data, first.partition, training)
        train(federated, honest, SEED, threads=THREADS)
        going = gate.rounds_done(gate.requested)
