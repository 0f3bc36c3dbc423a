"""Unsigned one-sentence messages from the server to participants, for example why an enrolment was rejected.

A sentence that has a form (`coded_text`) is sent with it, so that a participant's page can write it in their language.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from truthfl.coded_text import CodedText
from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.federation.protocol.messages import NEWS, query_message

NEWS_TIMEOUT = 10.0  # seconds
# What a message is about, so that a participant's page knows how long it matters; "" for as long as the job.
PAUSED, RESUMED, EXTENDED = "paused", "resumed", "extended"
LATE_LABELS, STOPPED, HELD, RECEIPTS = "late labels", "stopped", "held", "receipts"


def send_news(grid: Grid, nodes: Iterable[int], sentence: str, *, over: bool, about: str = "") -> None:
    """Send a sentence to these nodes and wait until they have it; `over` means that they receive nothing more."""
    ask_nodes(grid, news_messages(nodes, sentence, over=over, about=about), timeout=NEWS_TIMEOUT)


def news_messages(nodes: Iterable[int], sentence: str, *, over: bool, about: str = "") -> list[Message]:
    """The messages that tell these nodes a sentence."""
    document: dict[str, Any] = {"sentence": str(sentence), "over": over} | ({"about": about} if about else {})
    if isinstance(sentence, CodedText):
        document["message"] = sentence.form
    return [query_message(NEWS, node, document) for node in nodes]
