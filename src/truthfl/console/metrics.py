"""A job's status in the text format of Prometheus, served on loopback.

Every account on the machine can read its ports, so participants' names are left out unless they are requested.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from truthfl.errors import TruthflError
from truthfl.federation.operator.job_status import JobStatus
from truthfl.federation.operator.job_watch import JobWatch, job_watch
from truthfl.page.access import LOOPBACK
from truthfl.page.http import get_route
from truthfl.page.serving import HOST, listen, served

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.9, 0.99)

Sample = tuple[str, Mapping[str, str], float]
"""Suffix of the metric's name, labels, value."""


@dataclass(frozen=True)
class Metric:
    """One metric with its samples; `kind` is gauge, counter or summary."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def metrics_text(status: JobStatus, *, by_client: bool = False) -> str:
    """The status as text; with `by_client`, it also has a line for each participant, by name."""
    found = [*_job_metrics(status), *_people_metrics(status), *_training_metrics(status), *_money_metrics(status)]
    if by_client:
        found += _client_metrics(status)
    return "".join(f"{line}\n" for metric in found if metric.samples for line in _lines(metric))


def _job_metrics(status: JobStatus) -> Iterator[Metric]:
    yield _gauge("up", "Whether the job's server runs: 1 or 0.", float(status.running))
    info = {"job": status.job, "stage": status.stage, "contract": "" if status.plan is None else status.plan.contract}
    yield Metric("job_info", "gauge", "The job and the stage that it is in; the value is always 1.", (("", info, 1.0),))
    yield _gauge("job_paused", "Whether the operator paused the job: 1 or 0.", float(status.paused))
    yield _gauge("ledger_last_sequence", "Number of the job's last row in the ledger.", float(status.last_row))


def _people_metrics(status: JobStatus) -> Iterator[Metric]:
    people = status.participants
    yield _gauge("clients", "Clients of the job.", len(people))
    yield _gauge("clients_enrolled", "Clients who have enrolled.", sum(one.samples is not None for one in people))
    yield _gauge("clients_connected", "Clients who are connected now.", sum(one.connected is True for one in people))
    answers = {"accepted": 0, "declined": 0, "no answer in time": 0}
    for one in people:
        if one.answer in answers:
            answers[one.answer] += 1
    by_answer = tuple(("", {"answer": answer}, float(count)) for answer, count in answers.items())
    yield Metric("clients_answered", "gauge", "Clients by their answer to the last offer.", by_answer)
    passed = [one.passed for one in people if one.passed is not None]
    results = (
        ("", {"passed": "true"}, float(sum(passed))),
        ("", {"passed": "false"}, float(len(passed) - sum(passed))),
    )
    yield Metric("auditions", "gauge", "Auditions by whether they were passed.", results)
    asked, done = ([getattr(one, name) for one in people] for name in ("labels_asked", "labels_done"))
    yield _gauge("labels_asked", "Labels that the last offers ask for.", sum(filter(None, asked)))
    yield _gauge("labels_delivered", "Labels that are known to be made.", sum(filter(None, done)))
    refusals = tuple(("", {"stage": stage}, float(count)) for stage, count in sorted(status.refused_at.items()))
    yield Metric("refused_replies_total", "counter", "Replies that were not taken, by stage.", refusals)
    yield _gauge("refused_connections", "Refused connections that the server remembers.", len(status.connections))


def _training_metrics(status: JobStatus) -> Iterator[Metric]:
    yield Metric("rounds_total", "counter", "Rounds in the ledger.", (("", {}, float(len(status.rounds))),))
    yield _gauge("rounds_planned", "Rounds of the contract.", status.rounds_planned)
    missing = float(status.reports_missing)
    yield Metric("reports_missing_total", "counter", "Reports that were asked for and not taken.", (("", {}, missing),))
    waits = status.waits
    text = "People for whom the round waits, longer than usual."
    yield _gauge("round_waits_for_clients", text, 0 if waits is None else len(waits.names))
    since = None if waits is None else datetime.fromisoformat(waits.at).timestamp()
    yield _gauge("round_waits_since_timestamp_seconds", "Since when it waits; none while it does not.", since)
    times = status.round_times
    last = sorted(times.last)
    quantiles = [("", {"quantile": f"{share}"}, _quantile(last, share)) for share in QUANTILES] if last else []
    totals: list[Sample] = [("_sum", {}, times.seconds), ("_count", {}, float(times.count))]
    text = f"Duration of rounds since the server started; quantiles are of the last {len(last)}."
    yield Metric("round_seconds", "summary", text, (*quantiles, *totals))
    measured = next((point for point in reversed(status.rounds) if point.loss is not None), status.round_zero)
    yield _gauge("model_loss", "Loss of the model after the last round.", None if measured is None else measured.loss)
    accuracy = None if measured is None else measured.accuracy
    yield _gauge("model_accuracy_ratio", "Accuracy of the model after the last round.", accuracy)
    yield _gauge(
        "expected_loss", "Loss that the plan expects.", None if status.plan is None else status.plan.expected_loss
    )


def _money_metrics(status: JobStatus) -> Iterator[Metric]:
    money = status.money
    if money is None:
        return
    unit = {"currency": money.currency}
    amounts = {
        "expected": ("Pay if all are honest, of the offers in force.", money.expected),
        "committed": ("The part of it that belongs to accepted offers.", money.committed),
        "most": ("The most that can be owed.", money.most),
        "settled": ("Pay that is settled.", money.settled),
        "due": ("Settled and not sent yet.", money.due),
        "sent": ("Sent and not confirmed yet.", money.sent),
        "paid": ("Confirmed.", money.paid),
        "failed": ("Sent in vain.", money.failed),
    }
    for name, (text, amount) in amounts.items():
        samples: tuple[Sample, ...] = () if amount is None else (("", unit, amount),)
        yield Metric(f"money_{name}", "gauge", f"{text} In units of the currency.", samples)


def _client_metrics(status: JobStatus) -> Iterator[Metric]:
    people = status.participants
    values: tuple[tuple[str, str, list[tuple[str, float | None]]], ...] = (
        (
            "connected",
            "Whether the participant is connected: 1 or 0.",
            [(one.name, float(one.connected is True)) for one in people],
        ),
        ("labels_delivered", "Labels known to be made.", [(one.name, one.labels_done) for one in people]),
        ("rounds_delivered", "Rounds whose report was taken.", [(one.name, one.rounds_delivered) for one in people]),
        ("refused_replies", "Replies that were not taken.", [(one.name, one.refused) for one in people]),
        ("solo_loss", "Loss of the participant's solo model.", [(one.name, one.solo_loss) for one in people]),
    )
    for name, text, by_name in values:
        samples = tuple(("", {"client": client}, float(value)) for client, value in by_name if value is not None)
        yield Metric(f"client_{name}", "gauge", text, samples)


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """A gauge without labels; without samples if the value is not known."""
    return Metric(name, "gauge", text, () if value is None else (("", {}, float(value)),))


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _lines(metric: Metric) -> Iterable[str]:
    name = f"truthfl_{metric.name}"
    yield f"# HELP {name} {_escaped(metric.help)}"
    yield f"# TYPE {name} {metric.kind}"
    for suffix, labels, value in metric.samples:
        pairs = ",".join(f'{key}="{_escaped(text, quotes=True)}"' for key, text in labels.items())
        yield f"{name}{suffix}{f'{{{pairs}}}' if pairs else ''} {value!r}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped


@contextmanager
def serve_metrics(
    port: int, folder: Path, ledger_address: str | None = None, job: str | None = None, *, by_client: bool = False
) -> Iterator[str]:
    """Serve the metrics of this job at /metrics until the context ends; yield the URL.

    port       0 for any free one
    by_client  add a line for each participant, by name; all accounts of this machine can then read the names
    """
    with (
        listen(port) as listener,
        job_watch(folder, ledger_address, job) as watched,
        served(lambda: metrics_app(watched, by_client=by_client), listener, "metrics"),
    ):
        yield f"http://{HOST}:{listener.getsockname()[1]}/metrics"


def metrics_app(watched: JobWatch, *, by_client: bool = False) -> ASGIApp:
    """The application. It refuses requests for another host name, since a page elsewhere could cause them."""
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
