"""A link that lets in one device, once, for some minutes.

The token in the link is compared at most so many times a minute, so it cannot be guessed. Who opens the page, and who
tries in vain, is told to who started it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from hmac import compare_digest

VALID_SECONDS = 600.0
MINUTE = 60.0
MOST_WRONG, MOST_WRONG_IN_ALL = 10, 100  # wrong tokens in a minute, from one address and from all
MOST_TOLD = 20  # in a minute


class LoginOutcome(StrEnum):
    """What becomes of who opens the link."""

    LET_IN = "let in"
    WRONG = "wrong"
    USED = "used"
    EXPIRED = "expired"
    TOO_MANY = "too many"


class OneTimeLogin:
    """The state of one token: whether it was used, when it expires, who tried a wrong one. Used in one thread.

    tell   is called with the outcome and the address of the device, for one pair at most once a minute
    clock  seconds
    """

    def __init__(
        self, token: str, tell: Callable[[LoginOutcome, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token, self._tell, self._clock = token, tell, clock
        self._expires = clock() + VALID_SECONDS
        self._used = False
        self._wrong: deque[tuple[float, str]] = deque()  # when, from which address
        self._told: deque[tuple[float, tuple[LoginOutcome, str]]] = deque()

    def attempt(self, token: str, address: str) -> LoginOutcome:
        """What becomes of a device at this address that brings this token; if it is let in, the token is spent."""
        now = self._clock()
        _forget(self._wrong, now)
        outcome = self._outcome(token, address, now)
        if outcome is LoginOutcome.LET_IN:
            self._used = True
        elif outcome is LoginOutcome.WRONG:
            self._wrong.append((now, address))
        _forget(self._told, now)
        if (outcome, address) not in (pair for _, pair in self._told) and len(self._told) < MOST_TOLD:
            self._told.append((now, (outcome, address)))
            self._tell(outcome, address)
        return outcome

    def _outcome(self, token: str, address: str, now: float) -> LoginOutcome:
        own = sum(other == address for _, other in self._wrong)
        if own >= MOST_WRONG or len(self._wrong) >= MOST_WRONG_IN_ALL:
            return LoginOutcome.TOO_MANY
        if not compare_digest(token.encode(), self._token.encode()):
            return LoginOutcome.WRONG
        if self._used:
            return LoginOutcome.USED
        return LoginOutcome.EXPIRED if now >= self._expires else LoginOutcome.LET_IN


def _forget(events: deque[tuple[float, str]] | deque[tuple[float, tuple[LoginOutcome, str]]], now: float) -> None:
    """Remove what is older than a minute."""
    while events and events[0][0] <= now - MINUTE:
        events.popleft()
