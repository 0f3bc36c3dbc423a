"""Public names for Flower projects: a custom strategy in a paid job, and the participants' and the operator's apps.

`InProcessGrid` runs an app in one process.
"""

from truthfl.federation.deployed.flower_apps import client_app, server_app
from truthfl.federation.operator.kept_jobs import fixed_draws, kept_draws, kept_key
from truthfl.federation.protocol.server import Operator, PaidStrategy
from truthfl.federation.simulated.participants import SERVER, InProcessGrid
from truthfl.ledger.book import open_ledger

__all__ = [
    "SERVER",
    "InProcessGrid",
    "Operator",
    "PaidStrategy",
    "client_app",
    "fixed_draws",
    "kept_draws",
    "kept_key",
    "open_ledger",
    "server_app",
]
