"""How reports are combined: averaging with momentum on the server."""

from flwr.serverapp.strategy import FedAvgM

strategy = FedAvgM(server_momentum=0.5)
