"""The operator's page as a web application: one job's status, its check, and commands.

It serves the package's files and reads the ledger and the operator's folder. It fetches nothing from the network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from truthfl.console.commands import OUT, CommandRequest, asks_address, extendable, give, invitable, parse_command
from truthfl.federation.operator.approval import PlanSummary
from truthfl.federation.operator.job_status import JobStatus
from truthfl.federation.operator.job_watch import JobWatch, job_watch, ledger_address_of
from truthfl.ledger.canonical import digest
from truthfl.ledger.checking import check
from truthfl.ledger.signing import PrivateKey
from truthfl.page.access import AccessSecrets, Guard
from truthfl.page.catalogue import ENGLISH
from truthfl.page.files import script, static_files
from truthfl.page.http import (
    StaleError,
    body_fields,
    error_handlers,
    file_response,
    get_route,
    post_route,
    static_route,
)
from truthfl.page.serving import OpenPage, opened
from truthfl.texts import plain

SHARED_STYLE = ("base.css", "icon.svg")
LONGEST_FAULT = 1000


def operator_page(watched: JobWatch, ledger_address: str, key: PrivateKey | None, access: AccessSecrets) -> ASGIApp:
    """The application for the operator of one job.

    key      signs commands; None if the page only shows
    access   secrets that a request must have
    """
    own, shared = static_files(Path(__file__).parent), static_files()
    files = {name: file for name, file in own.items() if not name.endswith(".js")}
    files |= {name: shared[name] for name in SHARED_STYLE}
    files["console.js"] = script("console.js", ENGLISH, {**shared, **own})
    board = StatusBoard(watched, can_act=key is not None)

    async def page(request: Request) -> Response:
        return file_response(request, files["console.html"])

    def status(request: Request) -> Response:
        known = request.query_params.get("seen", "")
        return JSONResponse(board.news(known) | {"csrf": access.csrf})

    def act(request: CommandRequest) -> dict[str, Any]:
        with board.reading:
            return give(watched, ledger_address, key, request).document()

    routes = [
        Route("/", page),
        static_route(files),
        get_route("/api/status", status),
        post_route("/api/check", lambda body: body_fields(body, {}), ledger_check(watched)),
        post_route("/api/command", parse_command, act),
    ]
    app = Starlette(routes=[Mount(access.root, routes=routes)], exception_handlers=error_handlers())
    return Guard(app, access)


def ledger_check(watched: JobWatch) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The handler that recomputes the whole ledger, one request at a time."""
    checking = threading.Lock()

    def check_all(_: dict[str, Any]) -> dict[str, Any]:
        if not checking.acquire(blocking=False):
            raise StaleError("a check is under way; it will be done soon.")
        try:
            entries, guards = watched.ledger.rows(), watched.ledger.missing_guards()
            fault = check(entries)
        finally:
            checking.release()
        if fault is not None:
            return {"sound": False, "sentence": f"{plain(fault.message, LONGEST_FAULT)}."}
        if guards:
            return {"sound": False, "sentence": f"Triggers that forbid changes of rows are gone: {', '.join(guards)}."}
        return {"sound": True, "sentence": f"{len(entries):,} rows: the chain, signatures and pay hold."}

    return check_all


class StatusBoard:
    """The newest status as JSON, with a version. A page that already has this version gets only the version."""

    def __init__(self, watched: JobWatch, *, can_act: bool) -> None:
        self.watched, self.can_act = watched, can_act
        self.reading = threading.Lock()
        self._version = 0
        self._seen: tuple[JobStatus | None, PlanSummary | None] = (None, None)

    def news(self, known: str) -> dict[str, Any]:
        """The status, or None if the page already knows this version; and the time, for clocks."""
        with self.reading:
            seen = (self.watched.read(), self.watched.waiting_plan())
            if seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
                self._seen, self._version = seen, self._version + 1
            version = str(self._version)
        answer = {"version": version, "now": datetime.now(UTC).isoformat(timespec="milliseconds")}
        return answer | {"status": None if known == version else self._document(*seen)}

    def _document(self, status: JobStatus, plan: PlanSummary | None) -> dict[str, Any]:
        waiting = None if plan is None else _waiting_document(plan)
        acts = {"can_act": self.can_act, "extendable": extendable(status), "out": OUT}
        acts |= {"invitable": invitable(status), "asks_address": asks_address(self.watched.folder)}
        return asdict(status) | acts | {"over": status.is_over, "waiting": waiting}


def _waiting_document(plan: PlanSummary) -> dict[str, Any]:
    """The plan that waits for approval, with its totals and its digest."""
    document = plan.document()
    totals = {
        "digest": digest(document),
        "total_cost": plan.total_cost,
        "total_labels": sum(offer.labels for offer in plan.offers),
        "total_expected": plan.total_expected,
        "total_most": plan.total_most,
        "largest_factor": plan.largest_factor,
        "sentences": [plain(sentence, LONGEST_FAULT) for sentence in plan.sentences],
    }
    left_out = {plain(name): plain(reason) for name, reason in plan.left_out.items()}
    return (
        document | totals | {"left_out": left_out, "currency": plain(plan.currency), "contract": plain(plan.contract)}
    )


@contextmanager
def open_operator_page(
    folder: Path, ledger_address: str | None, job: str | None, key: PrivateKey | None, port: int = 0
) -> Iterator[OpenPage]:
    """Serve the page on loopback until the context ends. Whoever has its URL acts with the operator's key.

    folder          the operator's
    ledger_address  the folder's own if None; given together with a job, the page can watch a job that has not begun
    job             the last of the folder if None
    key             signs commands; None for a page that only shows
    port            0 for any free one
    """
    address = ledger_address or ledger_address_of(folder)
    with job_watch(folder, ledger_address, job) as watched:

        def application(access: AccessSecrets) -> ASGIApp:

            return operator_page(watched, address, key, access)

        with opened(application, port, "operator's page") as page:
            yield page
