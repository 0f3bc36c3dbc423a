"""The same job in Flower's simulation, for those who have it (the extra `simulation`, which brings Ray).

Its nodes live in other processes, which build their participants anew from the job. Looks at `client_app`,
`participant`.
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


def in_simulation(clients: int, participant: Callable[[int], Participant], serve: Callable[[Grid], Result]) -> Result:
    """What `serve` makes of a grid of so many simulated nodes; `participant` is called in other processes."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("Flower's simulation is not installed; pip install 'truthfl[simulation]' brings it.")
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    made: list[Result] = []
    failed: list[Exception] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        try:
            made.append(serve(grid))
        except TruthflError as error:  # told by us; Flower would print a traceback
            failed.append(error)

    def whose(context: Context) -> Participant:
        return participant(int(context.node_config[PARTITION]))

    run_simulation(app, client_app(whose), num_supernodes=clients)
    if failed:
        raise failed[0]
    if not made:
        raise ServiceError("Flower's simulation ended without a result; its own messages say why.")
    return made[0]
