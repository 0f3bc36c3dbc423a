"""Collecting the reports of a round: who is asked, how long the server waits, and for whom.

The server waits for everybody who is connected. While there are too few reports to change the model it also waits for
those who are not, up to `round_seconds`. The operator is told for whom a round waits longer than usual. Somebody who is
connected and stays silent is asked in fewer and fewer rounds until they answer, as long as the others are enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

from flwr.app import Message

from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.live_status import TRAINING
from truthfl.federation.protocol.round_outcome import Rejection
from truthfl.federation.protocol.stage_clock import StageClock
from truthfl.flower_patches import CLIENT_APP_FAILED
from truthfl.ledger.commands import time_text
from truthfl.ledger.terms import Offer

MOST_SECONDS_LATE = 20.0  # beyond the time of a round, in which what opens its sum is asked for again and again
USUAL_WAIT = 3.0  # seconds, or so many times the last rounds: nobody is told of a shorter wait


@dataclass(eq=False)
class SilentPeople:
    """Participants who were connected and did not answer, and the round in which each is asked again.

    misses  by name: how many rounds in a row were not answered
    again   by name: the next round in which they are asked
    heard   those who have answered all questions of this round so far
    """

    misses: dict[str, int] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)

    def begin_round(self) -> None:
        """Forgive those who answered all questions of the round before."""
        for name in self.heard:
            self.misses.pop(name, None)
            self.again.pop(name, None)
        self.heard.clear()

    def are_skipped(self, name: str, round_: int) -> bool:
        """Whether a participant is not asked in this round, if the others are enough."""
        return self.again.get(name, 0) > round_

    def note(self, name: str, round_: int, *, answered: bool) -> None:
        """Note whether a participant answered a question in a round."""
        if answered:
            self.heard.add(name)
        else:
            self.heard.discard(name)
            self.again[name] = round_ + 2 ** self.misses.get(name, 0)
            self.misses[name] = self.misses.get(name, 0) + 1


class RoundWait:
    """The time that a round may take; while the job is paused it does not pass."""

    def __init__(self, roster: Roster, round_: int, seconds: float) -> None:
        self.roster, self.round = roster, round_
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._clock: StageClock | None = None

    @property
    def seconds_left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.0) if self._clock is None else self._clock.seconds_left

    @property
    def over(self) -> bool:
        """Whether the time is up, or the operator ended the job."""
        return not self.seconds_left if self._clock is None else self._clock.over

    @property
    def gives_up(self) -> bool:
        """Whether nothing is asked again: the operator ended the job, or the time has been up for a while."""
        control = self.roster.control
        control.poll()
        deadline = self._deadline if self._clock is None else self._clock.deadline
        return control.ended is not None or time.monotonic() > deadline + MOST_SECONDS_LATE

    def ask(self, messages: Iterable[Message], seconds: float) -> list[tuple[int, Message]]:
        """Ask connected participants, as `Roster.ask`; the operator is told who takes longer than usual."""
        return self.roster.ask(messages, timeout=seconds, noting=self._note)

    def for_people(self, names: Collection[str]) -> None:
        """Wait a moment for participants who are away; the operator is told."""
        if self._clock is None:
            self._clock = self.roster.stage(TRAINING, self.seconds_left)
        self._note(names)
        self._clock.wait()
        self.roster.refresh()

    def ends(self) -> None:
        """Nobody is waited for any more."""
        live = self.roster.live
        if live.status.waits is not None:
            live.set_waits(())
        if self._clock is not None:
            live.begin(TRAINING)

    def _note(self, names: Collection[str]) -> None:
        """Tell for whom the round waits, if it takes longer than usual."""
        live = self.roster.live
        usual = USUAL_WAIT * max(1.0, median(live.status.round_seconds or [0.0]))
        if live.status.waits is None and time.monotonic() < self._began + usual:
            return
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=math.ceil(self.seconds_left))
        live.set_waits(names, self.round + 1, time_text(until))


def collect_reports(
    wait: RoundWait,
    offers: Sequence[Offer],
    ready: Callable[[], Sequence[Offer]],
    messages: Callable[[Sequence[Offer]], Sequence[Message]],
    take: Callable[[Offer, Message], str | None],
    enough: Callable[[Collection[str]], bool],
    silent: SilentPeople,
) -> list[Rejection]:
    """Ask for reports until all have answered; those who are away, until there are enough or the time is up.

    offers    of all who are asked in this round
    ready     the offers of those who can be asked now
    messages  the training messages to some of them; to nobody if there are too few
    take      takes a reply, or returns why it is refused
    enough    whether the reports of these people would be enough, beside those that were taken
    """
    roster, round_, answered, rejected = wait.roster, wait.round, set[str](), list[Rejection]()
    silent.begin_round()
    while True:
        there = [offer for offer in ready() if offer.client.name not in answered]
        awake = [offer for offer in there if not silent.are_skipped(offer.client.name, round_)]
        asked = awake if enough([offer.client.name for offer in awake]) else there
        sent = messages(asked)
        offer_at = {roster.node_of[offer.client.name]: offer for offer in asked}
        waited_for = {offer_at[message.metadata.dst_node_id].client.name for message in sent}
        for node, reply in wait.ask(sent, wait.seconds_left) if sent else ():
            offer = offer_at.get(node)
            if offer is None:
                rejected.append((None, node, "the node is not in the contract"))
                continue
            waited_for.discard(offer.client.name)
            if reply.has_error() and reply.error.code != CLIENT_APP_FAILED:
                continue  # the node went away; it is asked again when it is back
            answered.add(offer.client.name)
            silent.note(offer.client.name, round_, answered=True)
            reason = take(offer, reply)
            if reason is not None:
                rejected.append((offer.client.name, node, reason))
        for name in waited_for:
            silent.note(name, round_, answered=False)
        away = {offer.client.name for offer in offers} - answered - set(roster.control.removed)
        if enough(()) or not away or wait.over:
            wait.ends()
            return rejected
        wait.for_people({name for name in away if name not in roster.node_of} or away)
