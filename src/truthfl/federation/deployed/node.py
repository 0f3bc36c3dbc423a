"""A participant's node: it waits for messages, lets the ClientApp answer, and sends replies.

One thread waits for messages, so that the server notices at once when the node leaves. Another thread answers messages
in their order. It keeps data and models in memory between them.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar, cast

from flwr.app import Context, Error, Message, RecordDict

from truthfl.certificates import read_root, require_loopback
from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.federation.deployed.invitations import Invitation
from truthfl.federation.deployed.node_connection import (
    ConnectedAlreadyError,
    NodeConnection,
    NotGreetedError,
    NotLetInError,
    NotReachedError,
)
from truthfl.federation.participant.client_app import client_app as make_client_app
from truthfl.federation.participant.node_settings import Settings, participant_of, settings_from
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.messages import ROUND
from truthfl.files import append_text
from truthfl.flower_patches import CLIENT_APP_FAILED, message_bytes, message_from_bytes, set_task_identity
from truthfl.home.record import note_taken
from truthfl.ledger.signing import public_line, read_key
from truthfl.texts import plain

App = Callable[[Message, Context], Message]
LOG = "node.log"
FAILED = "the participant's computer failed to answer; its log says why"


def _participant_of(context: Context) -> Participant:
    return participant_of(settings_from(context.node_config))


client_app = make_client_app(_participant_of)


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
        except Exception:  # of a custom task
            self.log(traceback.format_exc())
            return error_reply(message, FAILED)

    def note_taken(self, reply: Message) -> None:
        """If this reply is a report, note in the participant's folder that the server took it."""
        answered = None if reply.has_error() else reply.content.config_records.get(ROUND)
        if answered is not None:
            note_taken(self.home, str(answered["offer"]), cast(int, answered["round"]))

    def log(self, text: str) -> None:
        """Append a failure to the log."""
        append_text(self.home / LOG, text)


def error_reply(message: Message, reason: str) -> Message:
    """The error reply that says why there is no other reply."""
    return Message(Error(CLIENT_APP_FAILED, plain(reason)), reply_to=message)


Tell = Callable[[str], None]
Argument = TypeVar("Argument")
Result = TypeVar("Result")

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 3.0
KEY_IN_USE_SECONDS = 60.0  # how long a disconnected node with the same key may count as connected
GREET_AGAIN_SECONDS = 0.5
LOST = "the operator's server does not answer; this computer tries again until it does."
AGAIN = "connected again."
FAILURES_TOLD = 3  # the number of failed attempts before the loss of the connection is reported
SECONDS_TO_END = 2.0
SECONDS_TO_ANSWER = 20.0  # for the last replies, above all the one that confirms the receipt
MOST_REMEMBERED = 1000  # ids of messages


class Node:
    """A context manager that connects, and answers messages until it ends.

    tell    called with a sentence when the connection is lost or restored
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
            thread.join(SECONDS_TO_END)  # a thread that is training is not stopped

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
        """Greet the server; wait while a node with the same key counts as connected.

        A server that stops or restarts during a greeting is greeted again.
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
        """Wait for messages; unanswered ones come again after a new greeting, and count once."""
        number, seen, token = 0, deque[str](maxlen=MOST_REMEMBERED), self.connection.token
        while not self._ended.is_set():
            found = self._retried(self.connection.next_message, (token, number))
            if found is None:
                current = self.connection.token
                if current != token:  # a new greeting restarts the numbering
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
        """Send a request, and repeat it until the server answers; greet a server that was restarted.

        Return None after a new greeting, or if the node ends in the meantime.
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


RETRY_SECONDS = 0.5


def node_connection(host: str, port: int, root: Path | None, key: Path) -> NodeConnection:
    """A connection to the server at this address, not opened yet. Without TLS it must be on this machine."""
    if root is None:
        require_loopback(host)
    else:
        read_root(root)
    return NodeConnection(host, port, root, read_key(key))


def wait_for_server(connection: NodeConnection, tell: Tell) -> None:
    """Wait until the operator's server answers; raise ServiceError if it is not a truthfl server.

    tell  called once with a sentence if the first attempt gets no answer
    """
    told = False
    while True:
        try:
            connection.ask_nonce()
            return
        except (NotReachedError, ConnectedAlreadyError):
            if not told:
                told = True
                tell(f"nobody answers at {connection.address} yet; waiting for the operator's server.")
            time.sleep(RETRY_SECONDS)


def admit_once(connection: NodeConnection, invitation: Invitation) -> None:
    """Ask the server to admit this node's key by the invitation; a refusal is ignored if it knows the key.

    A server that stops in the meantime is asked again. By then it may have admitted the key.
    """
    request = {"name": invitation.name, "code": invitation.code, "public_key": public_line(connection.key)}
    while True:
        try:
            _admit(connection, request)
            return
        except (NotReachedError, NotGreetedError):
            time.sleep(RETRY_SECONDS)


def _admit(connection: NodeConnection, request: dict[str, str]) -> None:
    try:
        connection.admit(request)
    except NotLetInError as refusal:
        try:
            connection.greet()
            connection.leave()
        except ConnectedAlreadyError:
            pass
        except NotLetInError:
            raise refusal from None


def open_node(connection: NodeConnection, settings: Settings, tell: Tell) -> Node:
    """The node of a participant, used as a context manager.

    tell  called with a sentence when the connection is lost or restored
    """
    return Node(connection, NodeAnswers(client_app, settings.node_config(), Path(settings.home)), tell)
