"""Let a ClientApp answer a message in this process; a failure becomes an error reply."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from flwr.app import Context, Error, Message, RecordDict

from truthfl.errors import TruthflError
from truthfl.federation.protocol.messages import ROUND
from truthfl.files import append_text
from truthfl.flower_patches import CLIENT_APP_FAILED
from truthfl.ledger.taken_reports import note_taken
from truthfl.texts import plain

App = Callable[[Message, Context], Message]
LOG = "node.log"
FAILED = "her computer failed to answer; its log says why"


@dataclass(eq=False)
class NodeAnswers:
    """A ClientApp with the settings of one node.

    home  the participant's folder, for the log of failures
    """

    app: App
    node_config: Mapping[str, str | int | float | bool]
    home: Path
    run_id: int = 1
    node_id: int = 0

    @cached_property
    def context(self) -> Context:
        return Context(self.run_id, self.node_id, dict(self.node_config), RecordDict(), {})

    def reply_to(self, message: Message) -> Message:
        """The app's reply, or one that says that it failed."""
        try:
            return self.app(message, self.context)
        except TruthflError as error:
            return error_reply(message, str(error))
        except Exception:  # of a task of one's own
            self.log(traceback.format_exc())
            return error_reply(message, FAILED)

    def note_taken(self, reply: Message) -> None:
        """Note in the participant's folder that the server took this reply, if it is a report."""
        answered = None if reply.has_error() else reply.content.config_records.get(ROUND)
        if answered is not None:
            note_taken(self.home, str(answered["offer"]), cast(int, answered["round"]))

    def log(self, text: str) -> None:
        """Append a failure to the log."""
        append_text(self.home / LOG, text)


def error_reply(message: Message, reason: str) -> Message:
    """The reply that says why there is no other."""
    return Message(Error(CLIENT_APP_FAILED, plain(reason)), reply_to=message)
