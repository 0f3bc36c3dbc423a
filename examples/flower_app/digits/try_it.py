"""The whole job in one process, for a look: `python -m digits.try_it`, in the folder of pyproject.toml."""

import tomllib
from pathlib import Path

from flwr.app import Context, RecordDict
from flwr.common.config import flatten_dict

from digits import client_app, server_app
from truthfl.flower import SERVER, InProcessGrid, kept_key
from truthfl.ledger import check, open_for_reading, view_of_job


def run_config():
    """What pyproject.toml says."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    return flatten_dict(project["tool"]["flwr"]["app"]["config"])


def node_configs(config):
    """One node for each client; in a deployment, each is what her SuperNode is started with."""
    names = [name.removeprefix("clients.") for name in config if name.startswith("clients.")]
    homes = [Path(config["folder"]) / name for name in names]
    for home in homes:
        kept_key(home / "key")
    return {
        100 + i: {
            "partition-id": i,
            "num-partitions": len(names),
            "name": name,
            "home": str(home),
            "key": str(home / "key"),
            "accept": "all",
        }
        for i, (name, home) in enumerate(zip(names, homes, strict=True))
    }


def grid_of(app, nodes, config):
    """The nodes, in this process."""
    grid = InProcessGrid(app, nodes)
    for context in grid.contexts.values():
        context.run_config.update(config)
    return grid


def run(config, grid):
    """What Flower does on the server."""
    server_app.app(grid, Context(run_id=1, node_id=SERVER, node_config={}, state=RecordDict(), run_config=config))


def show(folder):
    """What the ledger says of the last job."""
    with open_for_reading(Path(folder) / "ledger.db") as ledger:
        entries = ledger.entries()
    job = entries[-1].job
    view = view_of_job(job, [entry for entry in entries if entry.job == job])
    print(f"{'client':8}{'batch':>6}{'expected':>10}{'cost':>8}{'pay':>6}")
    for offer in view.agreement.offers:
        pay = view.settlements[offer.client.name].document["pay"]
        print(f"{offer.client.name:8}{offer.client.batch_size:6}{offer.expected_pay:10.0f}{offer.cost:8.0f}{pay:6}")
    print(f"Test loss {view.test.document['loss']:.4f}, expected {view.agreement.terms.expected_loss:.4f}.")
    print(f"The ledger has {check(entries) or 'no fault'}.")


if __name__ == "__main__":
    config = run_config()
    run(config, grid_of(client_app.app, node_configs(config), config))
    show(config["folder"])
