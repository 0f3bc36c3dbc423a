"""`Node`: a participant's node in this process: it waits for messages, lets her ClientApp answer, and sends replies.

One thread waits for messages, so that the server sees at once whether the node is there; another one answers them, in
their order, with data and models kept in memory from one to the next.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from flwr.app import Message

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.federation.deployed.node_answers import LOG, NodeAnswers, error_reply
from truthfl.federation.deployed.node_connection import (
    ConnectedAlreadyError,
    NodeConnection,
    NotGreetedError,
    NotReachedError,
)
from truthfl.flower_patches import message_bytes, message_from_bytes, set_task_identity

Tell = Callable[[str], None]
Argument = TypeVar("Argument")
Result = TypeVar("Result")

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 3.0
KEY_IN_USE_SECONDS = 60.0  # how long a node of the same key that was cut off may count as connected
GREET_AGAIN_SECONDS = 0.5
LOST = "the operator's server does not answer; this computer tries again until it does."
AGAIN = "connected again."
FAILURES_TOLD = 3  # after so many attempts it is told that the connection is lost
SECONDS_TO_END = 2.0
SECONDS_TO_ANSWER = 20.0  # for the last replies, above all that a receipt is kept
MOST_REMEMBERED = 1000  # ids of messages


class Node:
    """A context manager that connects, and answers messages until it ends.

    tell    called with a sentence when the connection is lost or there again
    failed  the error that ended the node; None while it runs
    """

    def __init__(self, connection: NodeConnection, answers: NodeAnswers, tell: Tell = lambda _: None) -> None:
        self.connection, self.answers, self.tell = connection, answers, tell
        self.failed: TruthflError | None = None
        self._messages: queue.Queue[Message | None] = queue.Queue()
        self._ended = threading.Event()
        self._greeting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for work, name in ((self._receive, "truthfl receiver"), (self._answer, "truthfl node"))
        ]

    def __enter__(self) -> Node:
        try:
            self._greet_when_free()
        except BaseException:
            self.connection.close()
            raise
        set_task_identity(self.connection.node_id)
        self.answers.node_id = self.connection.node_id
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        self._messages.put(None)
        if error is None and self.failed is None:
            self._threads[1].join(SECONDS_TO_ANSWER)
        self._ended.set()
        self.connection.leave()
        for thread in self._threads:
            thread.join(SECONDS_TO_END)  # one that trains is left to itself

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TruthflError as error:
            self.failed = error
        except Exception:
            self.answers.log(traceback.format_exc())
            self.failed = ServiceError(f"this computer's node failed; {self.answers.home / LOG} says why.")
        finally:
            self.connection.close()

    def _greet_when_free(self) -> None:
        """Greet; wait while a node with the same key counts as connected.

        A server that goes away in the middle of a greeting, or is started again, is greeted anew.
        """
        deadline = time.monotonic() + KEY_IN_USE_SECONDS
        while not self._ended.is_set():
            try:
                self.connection.greet()
                return
            except (NotReachedError, NotGreetedError):
                self._ended.wait(GREET_AGAIN_SECONDS)
                deadline = time.monotonic() + KEY_IN_USE_SECONDS
            except ConnectedAlreadyError:
                if time.monotonic() > deadline:
                    raise ServiceError(
                        "somebody with your key is connected to the operator's server; one computer at a time can be."
                    ) from None
                time.sleep(1.0)

    def _receive(self) -> None:
        """Wait for messages; those of an unanswered number come again after a new greeting, and count once."""
        number, seen, token = 0, deque[str](maxlen=MOST_REMEMBERED), self.connection.token
        while not self._ended.is_set():
            found = self._retried(self.connection.next_message, (token, number))
            if found is None:
                current = self.connection.token
                if current != token:  # after a new greeting, numbers begin anew
                    number, token = 0, current
            else:
                number, message = found[0], message_from_bytes(found[1])
                if message.metadata.message_id not in seen:
                    seen.append(message.metadata.message_id)
                    self._messages.put(message)

    def _answer(self) -> None:
        while (message := self._messages.get()) is not None:
            send = partial(self.connection.send_reply, message.metadata.message_id)
            reply = self.answers.reply_to(message)
            try:
                if self._retried(send, message_bytes(reply)):
                    self.answers.note_taken(reply)
            except InputError as error:
                self._retried(send, message_bytes(error_reply(message, str(error))))

    def _retried(self, request: Callable[[Argument], Result], argument: Argument) -> Result | None:
        """Send a request, and again while the server does not answer; greet a server that was started again.

        None if the node ends meanwhile, or after a new greeting.
        """
        wait, lost, failures = FIRST_RETRY_SECONDS, False, 0
        while not self._ended.is_set():
            token = self.connection.token
            try:
                result = request(argument)
                if lost:
                    self.tell(AGAIN)
                return result
            except NotGreetedError:
                with self._greeting:
                    if self.connection.token == token and not self._ended.is_set():
                        self._greet_when_free()
                        self.tell(AGAIN)
                return None
            except NotReachedError:
                failures += 1
                if failures == FAILURES_TOLD and not self._ended.is_set():
                    lost = True
                    self.tell(LOST)
                self._ended.wait(wait)
                wait = min(1.5 * wait, LAST_RETRY_SECONDS)
        return None
