"""Run a job on Flower's simulation, which needs Ray (the extra `simulation`).

The nodes are in other processes, where their participants are built from the job.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import Participant

Result = TypeVar("Result")
PARTITION = "partition-id"


def run_in_simulation(
    clients: int, participant_at: Callable[[int], Participant], serve: Callable[[Grid], Result]
) -> Result:
    """Return the result of `serve`, called with a grid of simulated nodes.

    clients         the number of nodes
    participant_at  returns the participant with this index; called in other processes
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("Flower's simulation is not installed; pip install 'truthfl[simulation]' brings it.")
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    results: list[Result] = []
    errors: list[Exception] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        try:
            results.append(serve(grid))
        except TruthflError as error:  # raised again below; Flower would print a traceback
            errors.append(error)

    def participant_of(context: Context) -> Participant:
        return participant_at(int(context.node_config[PARTITION]))

    run_simulation(app, client_app(participant_of), num_supernodes=clients)
    if errors:
        raise errors[0]
    if not results:
        raise ServiceError("Flower's simulation ended without a result; its own messages say why.")
    return results[0]
