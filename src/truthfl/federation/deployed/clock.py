"""Whether this machine's clock is so far from the server's that the server refuses its node.

Nodes sign the time of each request, and Flower's server takes no time that is far from its own. Imports
`flower_patches.server_time` and Flower.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

from truthfl.federation.flower_patches.server_time import HEALTH_PATH, TIME_HEADER

MOST_AHEAD, MOST_BEHIND = float(SYSTEM_TIME_TOLERANCE), float(SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE)
REQUEST_TIMEOUT = 5.0  # seconds


def seconds_ahead(
    host: str, port: int, root: Path, clock: Callable[[], float] = time.time
) -> tuple[float, float] | None:
    """By how many seconds this machine's clock is ahead of the server's: at least, and at most.

    The answer takes its time, so there are two numbers. None if the server does not tell its time.
    """
    try:
        context = ssl.create_default_context(cafile=str(root))
        with closing(http.client.HTTPSConnection(host, port, timeout=REQUEST_TIMEOUT, context=context)) as connection:
            connection.connect()
            before = clock()
            connection.request("GET", HEALTH_PATH)
            server_time = float(connection.getresponse().headers[TIME_HEADER])
            return before - server_time, clock() - server_time
    except (OSError, http.client.HTTPException, TypeError, ValueError):
        return None


def clock_fault(ahead: tuple[float, float] | None) -> str | None:
    """A sentence if the clock is so far off that the server refuses this machine's node; None otherwise."""
    if ahead is None:
        return None
    least, most = ahead
    if not (least >= MOST_AHEAD or most <= -MOST_BEHIND):
        return None
    seconds, where = abs(least + most) / 2.0, "ahead of" if least > 0 else "behind"
    return (
        f"this machine's clock is {seconds:,.0f} seconds {where} the server's; it may be {MOST_AHEAD:g} ahead and "
        f"{MOST_BEHIND:g} behind: set it right and join again."
    )
