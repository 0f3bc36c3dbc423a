"""`SuperLinkNode`: a participant's node on a SuperLink of Flower's own, which can only be polled."""

from __future__ import annotations

import threading
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.errors import ServiceError, TruthflError
from truthfl.federation.deployed.node_answers import LOG, NodeAnswers
from truthfl.flower_patches.task_identity import set_task_identity
from truthfl.ledger.signing import PrivateKey

if TYPE_CHECKING:
    from truthfl.flower_patches.superlink_messages import SuperLinkMessages

FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.05, 1.0


class SuperLinkNode:
    """A context manager that connects, and answers messages until it ends; `failed` as in `Node`."""

    def __init__(self, address: str, root: Path | None, key: PrivateKey, answers: NodeAnswers) -> None:
        self.address, self.root, self.key, self.answers = address, root, key, answers
        self.failed: TruthflError | None = None
        self._ended, self._stack = threading.Event(), ExitStack()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SuperLinkNode:
        from truthfl.flower_patches.superlink_messages import superlink_messages

        messages = self._stack.enter_context(superlink_messages(self.address, self.root, self.key))
        set_task_identity(messages.node_id)
        self.answers.node_id = messages.node_id
        self._thread = threading.Thread(target=self._answer, args=(messages,), name="truthfl node", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(LAST_POLL_SECONDS)
        self._stack.close()

    def _answer(self, messages: SuperLinkMessages) -> None:
        wait = FIRST_POLL_SECONDS
        try:
            while not self._ended.is_set():
                message = messages.receive()
                if message is None:
                    self._ended.wait(wait)
                    wait = min(1.2 * wait, LAST_POLL_SECONDS)
                    continue
                started = time.monotonic()
                messages.send(self.answers.reply_to(message), time.monotonic() - started)
                wait = FIRST_POLL_SECONDS
        except TruthflError as error:
            self.failed = error
        except Exception:
            self.answers.log(traceback.format_exc())
            self.failed = ServiceError(f"the connection to the SuperLink failed; {self.answers.home / LOG} says why.")
