"""What the server tells participants beside papers: why they are not taken in, or how the job goes on without them.

A sentence each, with nothing to sign: it promises nothing. Looks at `ask_nodes` and `messages`.
"""

from __future__ import annotations

from collections.abc import Iterable

from flwr.serverapp import Grid

from truthfl.federation.protocol.ask_nodes import ask
from truthfl.federation.protocol.messages import NEWS, question

HEARD_WITHIN = 10.0  # seconds; who is gone is not waited for longer


def tell(grid: Grid, nodes: Iterable[int], sentence: str, *, over: bool) -> None:
    """Tell these nodes; `over`: nothing more will come to them in this job."""
    document = {"sentence": sentence, "over": over}
    ask(grid, [question(NEWS, node, document) for node in nodes], timeout=HEARD_WITHIN)
