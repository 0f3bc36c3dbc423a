"""FedLab: its standalone pipeline, serial SGD trainer and synchronous server.

The trainer receives its batches directly, without a data loader, which is fastest. FedLab imports torchvision, which is
not used here; if it is missing, empty modules replace it.
"""

from __future__ import annotations

import importlib.util
import sys
import types

from benchmarks.peers.workload import CYCLE, STEP_SIZE

PARTS = ("datasets", "datasets.utils", "datasets.vision", "models", "transforms", "utils")


class StandIn(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def run(work, gate) -> None:
    if importlib.util.find_spec("fedlab") is None:
        raise ModuleNotFoundError("No module named 'fedlab'")
    if importlib.util.find_spec("torchvision") is None:
        for name in ("torchvision", *(f"torchvision.{part}" for part in PARTS)):
            sys.modules[name] = StandIn(name)
            sys.modules[name].__path__ = []
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.standalone import StandalonePipeline

    from benchmarks.peers.torch_parts import Network, tensors

    gate.imported()
    images, labels, rows = tensors(work)
    server = SyncServerHandler(Network(work), global_round=sys.maxsize, sample_ratio=1.0)

    class Batches:
        def get_dataloader(self, client, batch_size):  # noqa: ARG002  (FedLab's signature)
            return [(images[batch], labels[batch]) for batch in rows[server.round % CYCLE, client]]

    class Pipeline(StandalonePipeline):
        def evaluate(self):
            if not gate.round_done(server.model.flat):
                server.global_round = 0

    trainer = SGDSerialClientTrainer(Network(work), work.clients)
    trainer.setup_dataset(Batches())
    trainer.setup_optim(1, work.batch, STEP_SIZE)
    if gate.open():
        Pipeline(server, trainer).main()
