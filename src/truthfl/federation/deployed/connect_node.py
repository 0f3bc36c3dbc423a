"""Connect a participant's node to the operator's server; wait for one that is not up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from truthfl.federation.deployed.certificates import read_root
from truthfl.federation.deployed.invitation import Invitation
from truthfl.federation.deployed.job_server import require_loopback
from truthfl.federation.deployed.node import Node
from truthfl.federation.deployed.node_answers import NodeAnswers
from truthfl.federation.deployed.node_app import client_app
from truthfl.federation.deployed.node_connection import (
    ConnectedAlreadyError,
    NodeConnection,
    NotGreetedError,
    NotLetInError,
    NotReachedError,
)
from truthfl.federation.participant.node_settings import Settings
from truthfl.ledger.signing import public_line, read_key

RETRY_SECONDS = 0.5
Tell = Callable[[str], None]


def node_connection(host: str, port: int, root: Path | None, key: Path) -> NodeConnection:
    """A connection to the server at this address, not opened yet: over TLS, or to this machine alone."""
    if root is None:
        require_loopback(host)
    else:
        read_root(root)
    return NodeConnection(host, port, root, read_key(key))


def wait_for_server(connection: NodeConnection, tell: Tell) -> None:
    """Wait until the operator's server answers; raise ServiceError if another kind of server does.

    tell  called once with a sentence if nobody answers at first
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
    """Let the server admit this node's key by the invitation; one that it refuses is no matter if it knows the key.

    A server that goes away meanwhile is asked again; by then it may have admitted the key.
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
    """The node of a participant, to be entered as a context.

    tell  called with a sentence when the connection is lost or there again
    """
    return Node(connection, NodeAnswers(client_app, settings.node_config(), Path(settings.home)), tell)
