"""Metrics for Prometheus: the text by a small parser of the format, the numbers by the status, who may read them."""

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import httpx
import pytest

from helpers.commanded_jobs import ConsoleJob
from helpers.databases import KEY, opening
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.cli.status import status_lines
from truthfl.console.metrics import CONTENT_TYPE, metrics_app, metrics_text, serve_metrics
from truthfl.federation.operator.job_status import StatusReader
from truthfl.federation.operator.job_watch import job_watch
from truthfl.federation.operator.live_status import LiveStatus, LiveWriter, ServerUse, now, read_live_status
from truthfl.ledger.book import open_ledger

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r"[a-zA-Z_][a-zA-Z0-9_]*"
PAIR = rf'{LABEL}="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:{{({PAIR}(?:,{PAIR})*)}})? (\S+)")
SUFFIXES = {"summary": ("", "_sum", "_count"), "gauge": ("",), "counter": ("",)}


def parsed(text):
    """By name and labels, the values; everything that the format demands is asserted on the way."""
    assert text.endswith("\n")
    values, kinds, helped, current = {}, {}, set(), None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in helped, "a metric's lines stand together"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in SUFFIXES
            kinds[name] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in {current + suffix for suffix in SUFFIXES[kinds[current]]}
            pairs = tuple(
                (key, re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text))
                for key, text in re.findall(rf'({LABEL})="((?:[^"\\]|\\.)*)"', labels or "")
            )
            assert (name, pairs) not in values, "no sample twice"
            values[name, pairs] = float(value)
    assert helped == set(kinds)
    assert all(name.startswith("truthfl_") for name in kinds)
    assert all(name.endswith("_total") for name, kind in kinds.items() if kind == "counter")
    return {f"{name}{dict(labels) or ''}": value for (name, labels), value in values.items()}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return ConsoleJob.finished(tmp_path_factory)


def test_a_jobs_numbers(done):
    with job_watch(done.folder) as watched:
        status = watched.read()
    found = parsed(metrics_text(status))
    info = {"job": done.name, "stage": "over", "contract": "audition"}
    assert found["truthfl_up"] == 0
    assert found[f"truthfl_job_info{info}"] == 1
    assert found["truthfl_rounds_total"] == found["truthfl_rounds_planned"] == 12
    assert found["truthfl_clients"] == found["truthfl_clients_enrolled"] == 4
    assert found["truthfl_clients_answered{'answer': 'accepted'}"] == 4
    assert found["truthfl_auditions{'passed': 'false'}"] == 1
    assert found["truthfl_labels_asked"] == found["truthfl_labels_delivered"] == status.plan.labels
    assert found["truthfl_round_seconds_count"] == 12
    assert 0 < found["truthfl_round_seconds{'quantile': '0.5'}"] <= found["truthfl_round_seconds{'quantile': '0.99'}"]
    assert found["truthfl_model_loss"] == status.rounds[-1].loss
    currency = {"currency": status.money.currency}
    for name in ("expected", "committed", "most", "settled", "due"):
        assert found[f"truthfl_money_{name}{currency}"] == getattr(status.money, name)
    assert found[f"truthfl_money_paid{currency}"] == 0


def test_names_only_if_they_are_asked_for(done):
    with job_watch(done.folder) as watched:
        status = watched.read()
    assert not any(name in metrics_text(status) for name in ("Ada", "Ben", "Cleo", "Dora"))
    found = parsed(metrics_text(status, by_client=True))
    assert found["truthfl_client_rounds_delivered{'client': 'Ada'}"] == 12
    assert found["truthfl_client_solo_loss{'client': 'Ben'}"] == status.participants[1].solo_loss


def test_names_that_would_break_the_format(tmp_path):
    name = 'A"d\\a{x="1"} 2'
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append("job", "job", "job", opening(job={"clients": {"name": [name]}}))
        status = StatusReader(book, "job").read(LiveStatus("job", at=now(), stage="enrolling"))
    found = parsed(metrics_text(status, by_client=True))
    assert found["truthfl_up"] == 1
    assert found[f"truthfl_client_connected{ {'client': name} }"] == 0
    assert "truthfl_money_expected" not in metrics_text(status)


def test_round_times_are_counted_over_all_and_kept_of_the_last(tmp_path):
    with LiveWriter(tmp_path, "job") as live:
        for number in range(250):
            live.note_round(ServerUse(1.0 + number, 0.5, 3000, 2000))
    live = read_live_status(tmp_path)
    assert (live.rounds_timed, live.seconds_in_rounds) == (250, sum(range(1, 251)))
    used = live.cpu_seconds_in_rounds, live.sent_bytes_in_rounds, live.received_bytes_in_rounds
    assert used == (125.0, 750_000, 500_000)
    with open_ledger(tmp_path / "ledger.db") as book:
        found = parsed(metrics_text(StatusReader(book, "job").read(live)))
    assert found["truthfl_round_seconds_sum"] == sum(range(1, 251))
    assert found["truthfl_round_seconds{'quantile': '0.5'}"] == 150  # the middle of 51 to 250
    assert found["truthfl_round_seconds{'quantile': '0.99'}"] == 248


def test_a_round_that_waits(tmp_path):
    with LiveWriter(tmp_path, "job") as live:
        live.set_waits(["Ben", "Cleo"], 74, now())
        waits = read_after_write(tmp_path, lambda found: found.waits is not None).waits
        live.set_waits(["Cleo"], 74, now())
        later = read_after_write(tmp_path, lambda found: found.waits.names == ("Cleo",)).waits
        assert later.at == waits.at
        with open_ledger(tmp_path / "ledger.db") as book:
            status = StatusReader(book, "job").read(read_live_status(tmp_path))
        live.set_waits(())
    found = parsed(metrics_text(status))
    assert found["truthfl_round_waits_for_clients"] == 1
    assert found["truthfl_round_waits_since_timestamp_seconds"] == datetime.fromisoformat(waits.at).timestamp()
    lines = status_lines(status)
    assert any(line.startswith("round 74 waits for Cleo since ") and line.endswith(" at most.") for line in lines)
    with open_ledger(tmp_path / "ledger.db") as book:
        found = parsed(metrics_text(StatusReader(book, "job").read(read_live_status(tmp_path))))
    assert found["truthfl_round_waits_for_clients"] == 0
    assert "truthfl_round_waits_since_timestamp_seconds" not in found


def read_after_write(folder, condition):
    """The first status in the folder of which this is true."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found = read_live_status(folder)
        if found is not None and condition(found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_they_are_served_on_this_machine_alone(done):
    with serve_metrics(0, done.folder) as url, httpx.Client(trust_env=False) as client:
        assert url.startswith("http://127.0.0.1:")
        answer = client.get(url)
        assert answer.headers["content-type"] == CONTENT_TYPE
        assert parsed(answer.text)["truthfl_rounds_total"] == 12
        assert client.get(url, headers={"host": "evil.example"}).status_code == 403
        assert client.post(url).status_code == 405
        assert client.get(url.replace("/metrics", "/")).status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_a_ledger_that_fails_is_told_in_a_sentence(done):
    with job_watch(done.folder) as watched:
        watched.ledger.close()

        async def ask():
            transport = httpx.ASGITransport(metrics_app(watched))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.get("/metrics")

        with ThreadPoolExecutor(1) as pool:  # a browser's driver may have a loop in this thread
            answer = pool.submit(asyncio.run, ask()).result()
    assert (answer.status_code, answer.text) == (503, f"the ledger {done.ledger} is closed; open it again.\n")
