"""A job's log: a line for each entry and stage, as text and JSON, without secrets and control characters."""

import json
import re
import time
from dataclasses import replace

import pytest

from helpers.commanded_jobs import SEED, ConsoleJob
from helpers.databases import KEY
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.cli.serve import JSON, TEXT, Narrator, event_line, log_line, require_format, stage_line
from truthfl.errors import InputError
from truthfl.federation.operator.live_status import LiveWriter, RoundWaits, StageChange, now
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.job_view import job_view


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    with open_for_reading(ConsoleJob.finished(tmp_path_factory).ledger) as book:
        return book.entries()


@pytest.fixture(scope="module")
def terms(entries):
    return job_view(entries[0].job, entries).agreement.terms


def test_text_has_the_time_and_what_the_terminal_says(entries, terms):
    lines = [line for entry in entries if (line := log_line(entry, terms)) is not None]
    assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in lines)
    assert [line[9:] for line in lines if "accept" in line] == [
        f"{name} accepts" for name in ("Ada", "Ben", "Cleo", "Dora")
    ]
    assert sum("round " in line for line in lines) >= 12
    assert len(lines) < len(entries)  # receipts and the like are left out


def test_json_has_every_entry_with_the_same_fields(entries, terms):
    lines = [json.loads(log_line(entry, terms, JSON)) for entry in entries]
    assert len(lines) == len(entries)
    for line, entry in zip(lines, entries, strict=True):
        assert list(line)[:6] == ["time", "level", "event", "job", "client", "message"]
        assert (line["time"], line["event"], line["sequence"]) == (entry.at, entry.kind, entry.sequence)
        assert line["message"]
    by_kind = {line["event"]: line for line in lines}
    assert by_kind["answer"]["client"] == by_kind["offer"]["client"] == by_kind["enrolment"]["client"] == "Dora"
    assert by_kind["round"] | {"round": 12} == by_kind["round"]
    assert 0 < by_kind["round"]["accuracy"] < 1
    assert by_kind["settlement"]["pay"] >= 0
    assert by_kind["job"]["client"] is None


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_no_secret_is_in_any_line(entries, terms, log_format):
    """Nothing that looks like a key, a signature, a hash, a salt or the test's secret."""
    text = "\n".join(filter(None, (log_line(entry, terms, log_format) for entry in entries)))
    assert secret_from_seed(SEED) not in text
    hidden = {
        value
        for entry in entries
        for value in re.findall(r'"([^" ]{24,}|ecdsa[^"]*)"', entry.payload)
        if not value.startswith(entry.job)
    }
    assert len(hidden) > 50  # keys, signatures, digests, salts
    assert [value for value in hidden if value in text] == []


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_what_strangers_wrote_is_made_plain(tmp_path, log_format):
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        bad = {"stage": "round", "round": 1, "client": "A\x1b[2J", "node": None, "reason": "a\nb\u202e"}
        lines = [log_line(book.append("j\x1b", "rejection", "1", bad), None, log_format)]
        lines.append(log_line(book.append("job", "round", "1", {"round": 1}), None, log_format))
    for line in lines:
        assert line.isprintable()
        assert "\n" not in line
    assert "not written by truthfl" in lines[1]
    if log_format == JSON:
        told = json.loads(lines[0])
        assert (told["level"], told["client"], told["reason"]) == ("warning", "A\\x1b[2J", "a\\nb\\u202e")


def test_stages():
    until = "2026-11-17T21:00:00+00:00"
    change = StageChange("2026-11-17T20:00:00.000+00:00", "labeling", False, until)
    assert re.fullmatch(r"\d\d:00:00 stage: labeling, until \d\d:00:00", stage_line("job-1", change))
    told = json.loads(stage_line("job-1", change, JSON))
    assert (told["event"], told["job"], told["time"]) == ("stage", "job-1", change.at)
    assert (told["stage"], told["deadline"], told["paused"]) == ("labeling", until, False)


def test_a_round_that_waits_is_a_warning():
    waits = RoundWaits(("Ben", "Cleo"), 74, "2026-11-17T20:00:00.000+00:00", "2026-11-17T20:01:00.000+00:00")
    words = "round 74 waits for Ben, Cleo, until"
    assert re.fullmatch(rf"\d\d:00:00 {words} \d\d:01:00 at most", stage_line("job-1", waits))
    told = json.loads(stage_line("job-1", waits, JSON))
    assert (told["event"], told["level"], told["round"], told["deadline"]) == ("waits", "warning", 74, waits.until)
    many = replace(waits, names=tuple("ABCDEFG"))
    assert "waits for A, B, C, D, E and 2 more, until" in stage_line("job-1", many)


def test_stages_and_pauses_are_printed_among_the_entries(tmp_path, capsys):
    """Each once, however often its deadline is told; by time, between the rows."""
    live = LiveWriter(None, "job")
    with open_ledger(tmp_path / "ledger.db", KEY) as book, Narrator(book, "job", JSON, live):
        live.begin("enrolling", now())
        live.begin("enrolling", now())
        time.sleep(0.01)
        book.append("job", "job", "job", {"job": {"clients": {"name": ["Ada"]}}, "operator_key": ""})
        time.sleep(0.01)
        live.begin("planning")
        live.set_paused(True)
        live.set_paused(False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["message"].split(",")[0] for line in lines] == [
        "stage: enrolling",
        "the job begins",
        *["stage: planning"] * 3,
    ]
    assert [line["paused"] for line in lines if line["event"] == "stage"] == [False, False, True, False]


def test_somebody_who_was_not_let_in_is_a_warning():
    assert json.loads(event_line("refused", "job-1", "a key that is not registered"))["level"] == "warning"
    assert json.loads(event_line("waiting", "job-1", "waiting for 3 clients"))["level"] == "info"


def test_a_format_that_is_none():
    assert require_format("json") == JSON
    with pytest.raises(InputError, match="log is 'xml'; it must be text or json"):
        require_format("xml")
