"""A custom Flower project: the apps of its operator and its participants, and the example."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvgM

from helpers.databases import KEY
from helpers.small_jobs import small_job_file
from truthfl.errors import TruthflError
from truthfl.federation.protocol.enrolment import Roster
from truthfl.flower import SERVER, InProcessGrid, client_app, kept_key, open_ledger, server_app
from truthfl.job import read_job
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_app"


def test_the_apps_of_a_flower_project(tmp_path):
    """Eight rounds of the small job with pictures, under LCEME; another job needs other test samples."""
    path = small_job_file(tmp_path, "rounds = 30", "rounds = 8\nstep_size = 0.5")
    path.write_text(path.read_text().replace("[server]", "[server]\nenrol_seconds = 0.01"))
    federated = read_job(path).simulated_federation().federated
    nodes = {}
    for client, name in enumerate(("Ada", "Ben", "Cleo", "Dora")):
        rows, home = federated.partition.rows_of(client), tmp_path / name
        kept_key(home / "key")
        np.savez(home / "data.npz", images=federated.data.features[rows], labels=federated.data.labels[rows])
        nodes[10 + client] = {"name": name, "data": str(home / "data.npz"), "home": str(home)}
        nodes[10 + client] |= {"key": str(home / "key"), "accept": "all"}
    grid, config = InProcessGrid(client_app(), nodes), {"folder": str(tmp_path / "run")}
    app = server_app(path, FedAvgM(server_momentum=0.3))
    app(grid, context := Context(1, SERVER, {}, RecordDict(), config))
    app(nobody := InProcessGrid(client_app(), {}), context)  # it is complete: nothing happens
    with pytest.raises(TruthflError, match="published"):
        app(nobody, Context(1, SERVER, {}, RecordDict(), config | {"new": True}))
    with open_for_reading(tmp_path / "run" / "ledger.db") as book:
        entries = book.entries()
    assert check(entries) is None
    assert sum(entry.kind == "job" for entry in entries) == 1
    assert sum(entry.kind == "receipt" for entry in entries) == 4


def test_the_participants_of_the_example_bring_what_its_job_asks_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    example = import_module("digits.app")
    job = read_job(example.JOB)
    assert "strategy.py:strategy" in job.aggregation
    federation, path = job.simulated_federation(), tmp_path / "Ada.csv"
    rows = federation.federated.partition.rows_of(0)
    federation.task.write(path, replace(federation.clients_read.take(rows), labels=None))
    kept_key(tmp_path / "key")
    node = {"name": "Ada", "data": str(path), "home": str(tmp_path / "home"), "key": str(tmp_path / "key")}
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        grid = InProcessGrid(example.client, {10: node})
        roster = Roster(grid, book, "j", job.clients.name, job.server, None, task=job.task)
        roster.refresh()
    assert roster.descriptions["Ada"]["samples"] == 120
