"""Whether this machine's clock is so far from the server's that the server refuses its node.

Nodes sign the time of each request, and Flower's server takes no time that is far from its own. It tells its time in
the header Date, in whole seconds. Imports Flower.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

MOST_AHEAD, MOST_BEHIND = float(SYSTEM_TIME_TOLERANCE), float(SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE)
UNSURE_SECONDS = 1.0  # of the difference: Date has no fractions, and the answer takes its time
REQUEST_TIMEOUT = 5.0


def seconds_ahead(host: str, port: int, root: Path, clock: Callable[[], float] = time.time) -> float | None:
    """By how many seconds this machine's clock is ahead of the server's; None if the server does not answer."""
    try:
        context = ssl.create_default_context(cafile=str(root))
        connection = http.client.HTTPSConnection(host, port, timeout=REQUEST_TIMEOUT, context=context)
        before = clock()
        connection.request("GET", "/health")
        server_time = parsedate_to_datetime(connection.getresponse().headers["Date"]).timestamp() + 0.5
        return (before + clock()) / 2.0 - server_time
    except (OSError, http.client.HTTPException, TypeError, ValueError):
        return None


def clock_fault(ahead: float | None, *, certain: bool) -> str | None:
    """A sentence if the clock is why a node is not admitted, or may be; None otherwise.

    certain  whether the sentence is said only if it is the reason for certain
    """
    if ahead is None:
        return None
    margin = UNSURE_SECONDS if certain else -UNSURE_SECONDS
    if not (ahead >= MOST_AHEAD + margin or ahead <= -MOST_BEHIND - margin):
        return None
    where = "ahead of" if ahead > 0 else "behind"
    return (
        f"this machine's clock is {abs(ahead):,.0f} seconds {where} the server's; it may be {MOST_AHEAD:g} ahead and "
        f"{MOST_BEHIND:g} behind: set it right and join again."
    )
