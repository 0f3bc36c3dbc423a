"""Public names for Flower apps: a strategy that wraps your own strategy and pays, and a client mod.

`InProcessGrid` runs an app in one process. Imports `federation` and `ledger`; `import truthfl` does not import it.
"""

from truthfl.federation.participant.client_mod import assigned_batch, paid
from truthfl.federation.protocol.messages import arrays_digest
from truthfl.federation.protocol.operator_folder import fixed_draws, kept_draws, kept_key
from truthfl.federation.protocol.paid_strategy import PaidStrategy, Test
from truthfl.federation.protocol.promise import Promise
from truthfl.federation.protocol.server import Operator
from truthfl.federation.simulated.grid import SERVER, InProcessGrid
from truthfl.ledger.book import open_ledger

__all__ = [
    "SERVER",
    "InProcessGrid",
    "Operator",
    "PaidStrategy",
    "Promise",
    "Test",
    "arrays_digest",
    "assigned_batch",
    "fixed_draws",
    "kept_draws",
    "kept_key",
    "open_ledger",
    "paid",
]
