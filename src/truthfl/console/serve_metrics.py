"""Serve a job's metrics to Prometheus, on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from truthfl.console.metrics import CONTENT_TYPE, metrics_text
from truthfl.errors import TruthflError
from truthfl.federation.protocol.job_watch import JobWatch, job_watch
from truthfl.page.access_secrets import LOOPBACK
from truthfl.page.routing import get_route
from truthfl.page.serving import HOST, listen, served


@contextmanager
def serve_metrics(
    port: int, folder: Path, ledger_address: str | None = None, job: str | None = None, *, by_client: bool = False
) -> Iterator[str]:
    """Serve the metrics of this job at /metrics until the context ends; gives the URL.

    port       0 for any free one
    by_client  also a line for each participant, under her name, which all accounts of this machine can then read
    """
    with (
        listen(port) as listener,
        job_watch(folder, ledger_address, job) as watched,
        served(lambda: metrics_app(watched, by_client=by_client), listener, "metrics"),
    ):
        yield f"http://{HOST}:{listener.getsockname()[1]}/metrics"


def metrics_app(watched: JobWatch, *, by_client: bool = False) -> ASGIApp:
    """The application; requests for another machine's name are refused, as a page elsewhere could cause them."""
    reading = threading.Lock()

    def metrics(request: Request) -> Response:
        if (request.url.hostname or "") not in {name.strip("[]") for name in LOOPBACK}:
            return PlainTextResponse("This machine is not known here by that name.\n", 403)
        try:
            with reading:
                text = metrics_text(watched.read(), by_client=by_client)
        except TruthflError as error:
            return PlainTextResponse(f"{error}\n", 503)
        headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store", "x-content-type-options": "nosniff"}
        return Response(text, headers=headers)

    return Starlette(routes=[get_route("/metrics", metrics)])
