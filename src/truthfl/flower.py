"""For users of Flower: an app of one's own, paid. On the server a strategy around one's own, on the client a mod.

Imports `federation` and `ledger`; `import truthfl` does not load it. `InProcessGrid` runs an app in one process.
"""

from truthfl.federation.participant.client_mod import assigned_batch, paid
from truthfl.federation.protocol.operator_folder import fixed_draws, kept_draws, kept_key
from truthfl.federation.protocol.paid_strategy import PaidStrategy, Test, arrays_digest
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
