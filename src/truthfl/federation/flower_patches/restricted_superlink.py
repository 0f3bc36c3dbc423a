"""Flower's SuperLink with access control. Flower serves all of its APIs on one port and asks nobody who they are.

Participants' paths are open to all machines; Flower knows their nodes by their keys. The control API (register nodes,
submit and observe runs) needs a secret that only the operator's user can read, from the operator's own machine, and
accepts one run. The runtime API, which Flower protects by secrets of its own, is for this machine alone. All else is
not found.

Run as `python -m truthfl.federation.flower_patches.restricted_superlink SECRET_FILE` with the arguments of
flower-superlink. The file has the secret; a second line says that a run was submitted. Imports `server_time`,
`files`, Flower and Starlette.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from truthfl.federation.flower_patches.server_time import HEALTH_PATH, Application, Receive, Scope, Send, TellTime
from truthfl.files import write_file

PARTICIPANT_PATHS = "/v1/fleet/"
RUNTIME_PATHS, CONTROL_PATHS = "/v1/runtime/", "/v1/control/"
SUBMIT_PATH = CONTROL_PATHS + "start-run"
CONTROL_METHODS = ("list-nodes", "register-node", "list-runs", "start-run", "stop-run", "stream-logs")
SUBMITTED = "submitted"
NOT_FOUND = (HTTPStatus.NOT_FOUND, "")
NO_SECRET = (HTTPStatus.UNAUTHORIZED, "Only the operator of this server may do this; her secret is missing or wrong.")
RUN_SUBMITTED = (HTTPStatus.FORBIDDEN, "A run was submitted already; this server accepts one.")


@dataclass(frozen=True)
class Request:
    """What access depends on.

    client_host, server_host  the addresses of the connection's ends, as far as they are known
    authorization             the header of this name
    """

    path: str
    client_host: str | None
    server_host: str | None
    authorization: str = ""


def refusal(request: Request, secret: str, *, submitted: bool) -> tuple[HTTPStatus, str] | None:
    """The status and the reason with which a request is refused; None if it is allowed.

    secret     the operator's; "" allows no request of the control API
    submitted  whether a run was submitted
    """
    path = request.path
    if "//" in path or ".." in path:
        return NOT_FOUND
    if path.startswith(PARTICIPANT_PATHS) or path == HEALTH_PATH:
        return None
    if not _is_from_this_machine(request):
        return NOT_FOUND
    if path.startswith(RUNTIME_PATHS):
        return None
    if path.removeprefix(CONTROL_PATHS) not in CONTROL_METHODS or not path.startswith(CONTROL_PATHS):
        return NOT_FOUND
    if not secret or not hmac.compare_digest(request.authorization.encode(), f"Bearer {secret}".encode()):
        return NO_SECRET
    return RUN_SUBMITTED if submitted and path == SUBMIT_PATH else None


class AccessControl:
    """ASGI middleware that refuses what `refusal` says."""

    def __init__(self, app: Application, secret_file: Path) -> None:
        self.app, self.secret_file = app, secret_file
        self.secret, _, state = secret_file.read_text(encoding="utf-8").partition("\n")
        self.submitted = state == SUBMITTED

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request = _request(scope)
        refused = refusal(request, self.secret, submitted=self.submitted)
        if refused is not None:
            await _refuse(scope, send, *refused)
        elif request.path == SUBMIT_PATH:
            await self._submit(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _submit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a run be submitted; no other is accepted meanwhile, nor later if it succeeds."""
        self.submitted, status = True, HTTPStatus.INTERNAL_SERVER_ERROR

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            if message["type"] == "http.response.start" and status == HTTPStatus.OK:
                write_file(self.secret_file, f"{self.secret}\n{SUBMITTED}", private=True)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            self.submitted = status == HTTPStatus.OK


def main() -> None:
    """Run flower-superlink with `AccessControl` as the outermost middleware."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    secret_file = Path(sys.argv.pop(1))
    get_middleware = extensions.get_middleware
    own = (Middleware(AccessControl, secret_file), Middleware(TellTime))
    extensions.get_middleware = lambda: (*own, *get_middleware())
    flower_superlink()


def _request(scope: Scope) -> Request:
    headers = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
    authorization = headers[0].decode("latin-1") if len(headers) == 1 else ""
    return Request(scope.get("path", ""), _host(scope, "client"), _host(scope, "server"), authorization)


async def _refuse(scope: Scope, send: Send, status: HTTPStatus, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = json.dumps({"detail": reason}).encode() if reason else b""
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _host(scope: Scope, side: str) -> str | None:
    address = scope.get(side)
    return str(address[0]) if address else None


def _is_from_this_machine(request: Request) -> bool:
    client = request.client_host
    return bool(client) and (_is_loopback(str(client)) or client == request.server_host)


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


if __name__ == "__main__":
    main()
