"""Send the examples of an offer's classes to participants who lack them.

A message has the signed offer and the files, so that who gets it can check them by itself.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.messages import EXAMPLES, query_message, reply_in
from truthfl.instructions import Instructions
from truthfl.ledger.terms import Offer
from truthfl.samples.example_files import kept_example
from truthfl.texts import plain

AT_ONCE = 8  # participants to whom they are sent at the same time; a message may have some megabytes
MOST_TIMES = 5  # that they are sent to one participant, whatever her computer says


class ExampleDelivery:
    """Sends the examples in an operator's folder.

    sent  by client: how often they were sent to her
    """

    def __init__(self, roster: Roster, folder: Path) -> None:
        self.roster, self.folder = roster, folder
        self.sent: Counter[str] = Counter()

    def send(self, offers: Mapping[int, Offer]) -> dict[str, str]:
        """Send the examples to these nodes; return by client why her computer refused them, if it did."""
        refused: dict[str, str] = {}
        due = {node: offer for node, offer in offers.items() if self.sent[offer.client.name] < MOST_TIMES}
        nodes = list(due)
        for first in range(0, len(nodes), AT_ONCE):
            chosen = {node: due[node] for node in nodes[first : first + AT_ONCE]}
            self.sent.update(offer.client.name for offer in chosen.values())
            messages = [query_message(EXAMPLES, node, self._document(offer)) for node, offer in chosen.items()]
            for node, reply in self.roster.ask(messages, timeout=REPLY_TIMEOUT):
                if node in chosen and (fault := _fault(reply)) is not None:
                    refused[chosen[node].client.name] = fault
        return refused

    def _document(self, offer: Offer) -> dict[str, Any]:
        instructions = offer.job.instructions or Instructions()
        files = {}
        for example in instructions.examples:
            content = kept_example(self.folder, example)
            if content is None:
                raise InputError(
                    f"the example {example.sha256} is not in {self.folder} any more, and offers name it; put it back "
                    "from a backup, or begin another job."
                )
            files[example.sha256] = b64encode(content).decode()
        return {"offer": offer.envelope(), "examples": files}


def _fault(reply: Message) -> str | None:
    """Why a participant's computer refused the examples; None if it did not, or says nothing."""
    if reply.has_error():
        return plain(reply.error.reason or "her computer failed")
    try:
        reason = reply_in(reply).get("refused")
    except InputError as error:
        return plain(error)
    return None if reason is None else plain(reason)
