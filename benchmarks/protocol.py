"""The cost of the protocol: its rounds on the in-process grid compared with FedAvg on the same grid, for a CNN.

    python -m benchmarks.protocol [--clients 10] [--rounds 60] [--blocks 7] [--masked] [--json]

Both train the same one-layer network on the same batches of MNIST digits. The protocol also authenticates and checks
every message and reply, weights reports by the contract, hashes the model, keeps a record on the client's side, and
writes checkpoints and the ledger; with --masked, reports are masked. Bare FedAvg packs and reads its arrays with
Flower's functions, the protocol with its own, which are faster. Both sides of a message are in one process, where the
digest of the same bytes is computed once; when deployed, both sides compute it. Blocks of rounds of both alternate, so
that other load on the machine affects both; the ratio compares the medians.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from threadpoolctl import ThreadpoolController

from truthfl.contracts.lceme.contract import lceme
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, Training
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.enrolment import Roster, wait_for_clients
from truthfl.federation.protocol.final_model import Evaluation
from truthfl.federation.protocol.job_task import model_of
from truthfl.federation.protocol.messages import PARAMS, codes_with_participants, model_in, model_record
from truthfl.federation.protocol.offers import reach_agreement
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.federation.protocol.rounds import EVALUATIONS, TrainingRun, train_rounds
from truthfl.federation.simulated.participants import FIRST_NODE, InProcessGrid
from truthfl.job import ServerSettings
from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.training.local_training import local_model
from truthfl.ledger.book import open_ledger
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import AgreementKey, agreement_line, new_key, public_line

BATCH, FILTERS, STEP, SAMPLES = 50, 8, 0.1, 200
BOUND = 100.0  # of reports' lengths; large, so that none is refused


def people(count, folder):
    """Participants with MNIST digits who accept every offer, by node, and a test set."""
    data = bundled_mnist()
    rows = np.random.default_rng(0).permutation(len(data))
    made = {}
    for i in range(count):
        own = data.take(rows[(np.arange(SAMPLES) + i * SAMPLES) % len(rows)])
        made[FIRST_NODE + i] = Participant(
            name=f"client {i}",
            samples=SAMPLES,
            samples_for=lambda _, images=own.images: images,
            image_shape=own.images.shape[1:],
            labels=lambda _, labels=own.labels: labels,
            key=new_key(),
            folder=folder / str(i),
            decide=lambda _: True,
        )
    return made, data.take(rows[:200])


def bare_app(participants, model):
    """A plain Flower client app: trains, sends the model and the number of examples."""
    app, libraries = ClientApp(), ThreadpoolController()

    @app.train()
    def train(message, context):
        one = participants[context.node_id]
        with libraries.limit(limits=1, user_api="blas"):
            local = local_model(
                model,
                message.content["arrays"][PARAMS].numpy(),
                one.samples_for(None),
                one.labels(None),
                client=context.node_id - FIRST_NODE,
                round_=int(message.content["config"]["server-round"]) - 1,
                batch_size=BATCH,
                local_steps=1,
                step_size=STEP,
                seed=0,
            )
        metrics = MetricRecord({"num-examples": len(one.samples_for(None))})
        arrays = ArrayRecord({PARAMS: Array(local)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def agreed(roster, count, rounds, operator, agreement_key, masked):
    """Offers with the batches of this benchmark; the terms of pay do not matter."""
    clients = Clients(
        weight=np.full(count, 1.0 / count),
        gradient_variance=1.0,
        sample_cost=0.01,
        labeling_cost=1.0,
        dataset_size=np.full(count, SAMPLES),
        name=list(roster.names),
    )
    training = Training(rounds, 1, STEP)
    loss = LossModel(constant=0.1, sampling=np.full(count, 0.1), labeling=10.0, reporting=0.1)
    contract = lceme(clients, loss, training, np.full(count, float(BATCH)))
    promise = Promise(clients, training, contract, 0.5, report_bounds=((0, BOUND),), masked=masked)
    opening = Opening(0, "0" * 64, public_line(operator), agreement_line(agreement_key))
    task = TrainingTask({"kind": "cnn", "filters": FILTERS, "penalty": 1e-3}, (28, 28, 1), tuple("0123456789"), 1000)
    return reach_agreement(
        roster, lambda _, version: ({}, agreement_of(promise, roster, opening, task, version)), operator
    )


def looks(training, test):
    """FedAvg's evaluation function; it evaluates the test set as often as the protocol does."""
    every = max(1, training.rounds // EVALUATIONS)

    def look(round_, arrays):
        if round_ == 0 or round_ % every:
            return None
        params = model_in(arrays)
        loss = training.model.loss(params, test.images, test.labels)
        return MetricRecord({"loss": loss, "accuracy": training.model.accuracy(params, test.images, test.labels)})

    return look


def now():
    """Wall-clock seconds, and processor seconds of all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def training_of(agreement, view, operator, agreement_key, checkpoint, test):
    """The training run of all clients, with the keys of their messages."""
    codes = codes_with_participants(agreement_key, view)
    acceptances = {offer.client.name: view.answer_to(offer).document for offer in agreement.offers}
    evaluation = Evaluation(model_of(agreement.terms), test)
    return TrainingRun(evaluation, agreement, checkpoint, agreement, codes, acceptances, operator_key=operator)


def measure(count, rounds, blocks, masked=False):
    logging.getLogger("flwr").setLevel(logging.ERROR)
    operator = new_key()
    with tempfile.TemporaryDirectory() as place, open_ledger(Path(place) / "ledger.db", operator) as ledger:
        participants, test = people(count, Path(place))
        grid = InProcessGrid(
            client_app(lambda context: participants[context.node_id]), {node: {} for node in participants}
        )
        names = tuple(one.name for one in participants.values())
        ours, bare, final = [], [], {}
        for block in range(blocks + 1):
            roster = Roster(grid, ledger, f"block-{block}", names, ServerSettings(), (28, 28, 1))
            wait_for_clients(roster)
            key = AgreementKey.generate()
            agreement = agreed(roster, count, rounds, operator, key, masked)
            view = job_view(roster.job_name, ledger.entries(roster.job_name))
            training = training_of(agreement, view, operator, key, Path(place) / f"checkpoint-{block}", test)
            start = training.model.init(0)
            began = now()
            final["ours"] = train_rounds(roster, training, lambda _: None)
            ours.append((now() - began) / rounds)
            plain = InProcessGrid(bare_app(participants, training.model), {node: {} for node in participants})
            strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
            began = now()
            result = strategy.start(plain, model_record(start), rounds, evaluate_fn=looks(training, test))
            bare.append((now() - began) / rounds)
            final["bare"] = model_in(result.arrays)
    difference = float(np.abs(final["ours"] - final["bare"]).max())
    return {
        "clients": count,
        "parameters": len(start),
        "rounds": rounds,
        "ours_ms": 1e3 * float(np.median(ours[1:], axis=0)[0]),
        "bare_ms": 1e3 * float(np.median(bare[1:], axis=0)[0]),
        "ratio": float(np.divide(*np.median((ours[1:], bare[1:]), axis=1))[0]),
        "cpu_ratio": float(np.divide(*np.median((ours[1:], bare[1:]), axis=1))[1]),
        "largest_difference_of_models": difference,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--masked", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if min(arguments.clients, arguments.rounds, arguments.blocks) < 1:
        parser.error("clients, rounds and blocks must be at least 1")
    found = measure(arguments.clients, arguments.rounds, arguments.blocks, arguments.masked)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    size = f"{found['clients']} clients, a network of {found['parameters']:,} parameters"
    print(f"{size}, {found['rounds']} rounds a block")
    print(
        f"the protocol {found['ours_ms']:.2f} ms a round, bare FedAvg {found['bare_ms']:.2f} ms: {found['ratio']:.3f}"
    )
    print(f"of processor time, all threads: {found['cpu_ratio']:.3f}")
    print(f"the two final models differ by at most {found['largest_difference_of_models']:.1e}")


if __name__ == "__main__":
    main()
