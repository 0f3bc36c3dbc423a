"""Unsigned one-sentence messages from the server to participants, for example why an enrolment was rejected.

Imports `ask_nodes`, `messages` and Flower.
"""

from __future__ import annotations

from collections.abc import Iterable

from flwr.serverapp import Grid

from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.federation.protocol.messages import NEWS, query_message

NEWS_TIMEOUT = 10.0  # seconds


def send_news(grid: Grid, nodes: Iterable[int], sentence: str, *, over: bool) -> None:
    """Send a sentence to these nodes; `over` means that they receive nothing more in this job."""
    document = {"sentence": sentence, "over": over}
    ask_nodes(grid, [query_message(NEWS, node, document) for node in nodes], timeout=NEWS_TIMEOUT)
