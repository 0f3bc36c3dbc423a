"""For users of Flower: an app of one's own, paid. On the server a strategy around one's own, on the client a mod.

Looks at `federation` and `ledger`; `import truthfl` does not load it.
"""

from truthfl.federation.conduct import Operator
from truthfl.federation.operating import fixed_draws, kept_draws, kept_key
from truthfl.federation.promise import Promise
from truthfl.federation.taking_part import assigned_batch, paid
from truthfl.federation.wrapping import PaidStrategy, Test, arrays_digest
from truthfl.ledger.book import open_ledger

__all__ = [
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
