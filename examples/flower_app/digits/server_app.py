"""The server: federated averaging."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.pilot import promise
from digits.task import CLASSES, Softmax, load_servers_data, test
from truthfl.flower import Operator, PaidStrategy, Test, arrays_digest, kept_draws, kept_key, open_ledger

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, folder = context.run_config, Path(context.run_config["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    strategy = FedAvg()
    with open_ledger(folder / "ledger.db") as ledger:
        strategy = under_contract(strategy, config, folder, ledger)
        result = strategy.start(grid, ArrayRecord(Softmax().get_weights()), num_rounds=config["num-server-rounds"])
    np.savez(folder / "model.npz", *result.arrays.to_numpy_ndarrays())


def under_contract(strategy, config, folder, ledger):
    draws = kept_draws(folder, fresh=True)
    key = kept_key(folder / "operator")
    operator = Operator(ledger, folder, key, draws.secret, draws.seed, authenticated=config["authenticated"])
    samples = {name.removeprefix("clients."): config[name] for name in config if name.startswith("clients.")}
    return PaidStrategy(strategy, samples, lambda names: promise(names, samples, config), a_test(config), operator)


def a_test(config):
    _, (features, labels) = load_servers_data()

    def loss(arrays, drawn):
        model = Softmax()
        model.set_weights(arrays.to_numpy_ndarrays())
        return test(model, (features[drawn], labels[drawn]))[0]

    return Test(arrays_digest(ArrayRecord([features, labels])), len(labels), config["test-draws"], loss, CLASSES)
