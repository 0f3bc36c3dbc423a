"""pfl-research: federated averaging in its simulated backend, on PyTorch."""

from __future__ import annotations

import logging
import sys

from benchmarks.peers.workload import CYCLE, STEP_SIZE


def run(work, gate) -> None:
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from benchmarks.peers.torch_parts import Network, tensors

    gate.imported()
    logging.disable(logging.INFO)
    images, labels, rows = tensors(work)
    handed_out = 0

    def dataset(client):
        nonlocal handed_out
        chosen = rows[(handed_out // work.clients) % CYCLE, client].reshape(-1)
        handed_out += 1
        return Dataset((images[chosen], labels[chosen]), user_id=str(client))

    class Trainable(Network):
        def loss(self, x, y, eval=False):  # noqa: A002, ARG002  (pfl's signature)
            return torch.nn.functional.cross_entropy(self(x), y)

        def metrics(self, x, y, eval=False):  # noqa: A002, ARG002
            return {}

    network = Trainable(work)

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # noqa: ARG002
            return not gate.round_done(network.flat), Metrics()

    everybody = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(work.clients))))
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    backend = SimulatedBackend(training_data=everybody, val_data=everybody, postprocessors=[WeightByDatapoints()])
    plan = NNAlgorithmParams(
        central_num_iterations=sys.maxsize,
        evaluation_frequency=sys.maxsize,
        train_cohort_size=work.clients,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(local_learning_rate=STEP_SIZE, local_num_epochs=1, local_batch_size=work.batch)
    if gate.open():
        FederatedAveraging().run(plan, backend, model, local, callbacks=[Clock()], send_metrics_to_platform=False)
