"""The operator's page in a real browser, of jobs that run meanwhile: live, steered, dead, small, without a mouse."""

import getpass
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from helpers.auditions import NarrowGate, from_elsewhere, good_model  # noqa: F401
from helpers.browsers import DESKTOP, PHONE, axe, axe_by_day_and_night, launched, looking
from helpers.commanded_jobs import PATIENCE, ConsoleJob, give, wait_for
from helpers.commands import within
from helpers.databases import KEY, opening, raw
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.amounts import amount_text
from truthfl.console.application import open_operator_page
from truthfl.federation.operator.approval import ask_by_file
from truthfl.federation.operator.job_watch import job_watch
from truthfl.federation.operator.live_status import FILE_NAME, LiveClient, LiveStatus, RoundWaits, now
from truthfl.files import write_file
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.commands import read_time

NOTICED = 3.0  # seconds in which a dead server must be noticed
OVER = "#stages li.now >> text=over"


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return ConsoleJob.finished(tmp_path_factory)


def page_of(console_job):
    return open_operator_page(console_job.folder, None, None, console_job.key)


def command_rows(console_job):
    with open_for_reading(console_job.ledger) as book:
        return [entry.document["document"] for entry in book.entries(console_job.name, "command")]


def wait_for_row(console_job, kind):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with open_for_reading(console_job.ledger) as book:
            if book.entries(console_job.name, kind):
                return
        time.sleep(0.1)
    raise TimeoutError


def test_a_finished_job_with_all_its_parts(browser, done):
    with page_of(done) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(OVER)
        rows = page.locator("#people tr").all_inner_texts()
        assert [row.split()[0] for row in rows] == ["Ada", "Ben", "Cleo", "Dora"]
        assert "stopped" in rows[1]
        assert "far worse than honest ones" in rows[1]
        assert page.inner_text("#curve-now").startswith("round 12 of 12: loss ")
        assert page.locator("#loss-plot polyline").get_attribute("points").count(",") == 13  # round zero, too
        assert page.locator("#accuracy-plot polyline").get_attribute("points").count(",") == 13
        assert page.locator("#solo-plot circle.good").count() == 3
        assert page.locator("#solo-plot circle.bad").count() == 1
        assert page.locator("#worth-plot rect.bar").count() == 4
        axes = page.locator("#main svg .title").all_text_contents()
        assert axes == ["test loss", "round", "accuracy, %", "round", "loss of a model trained alone", "labels"]
        assert page.locator("#buttons button").count() == 0
        with open_for_reading(done.ledger) as book:
            assert page.inner_text("#rows tr td").strip() == str(len(book.entries()))


def test_the_ledger_is_checked_on_demand(browser, done, tmp_path):
    with page_of(done) as opened, looking(browser, opened.url) as page:
        page.click("#check")
        page.wait_for_selector("#verdict.good >> text=the chain, signatures and pay hold")
    (tmp_path / "ledger.db").write_bytes(done.ledger.read_bytes())
    with raw(tmp_path / "ledger.db").begin() as database:
        for trigger in database.exec_driver_sql("select name from sqlite_master where type = 'trigger'").fetchall():
            database.exec_driver_sql(f"drop trigger {trigger[0]}")
        database.exec_driver_sql("update entries set at = '2020' where sequence = 7")
    with open_operator_page(tmp_path, None, None, None) as opened, looking(browser, opened.url) as page:
        page.click("#check")
        page.wait_for_selector("#verdict.bad >> text=entry 7")


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_nobody_is_shut_out(browser, done, size):
    how = DESKTOP if size == "desktop" else PHONE
    with page_of(done) as opened, looking(browser, opened.url, **how) as page:
        page.wait_for_selector(OVER)
        page.wait_for_selector("#worth-plot svg")
        assert axe_by_day_and_night(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= how["viewport"]["width"]


def test_a_job_is_followed_and_steered_without_a_reload(browser, tmp_path):
    """Pause by keyboard alone; the server pauses, resumes and goes on to the end, and the page follows."""
    console_job = ConsoleJob(tmp_path, hold=("training", 4))
    with console_job.running():
        assert console_job.held.wait(60)
        with page_of(console_job) as opened, looking(browser, opened.url) as page:
            page.wait_for_selector("#stages li.now >> text=training")
            page.wait_for_selector("#server >> text=server runs at fl.example.org:8443")
            page.wait_for_selector("#curve-now >> text=round 4 of 12")
            assert page.inner_text("#people-count") == "4 of 4 enrolled, 4 connected"
            assert axe(page) == []
            page.evaluate("window.sameDocument = true")
            page.focus("#do-pause")
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "act-why"
            page.keyboard.press("Enter")
            page.wait_for_selector("#act-wrong >> text=Say why")
            page.keyboard.type("lunch")
            page.keyboard.press("Enter")
            page.wait_for_selector("#act-confirm >> text=Pause the job. Why: lunch.")
            assert axe(page) == []
            page.keyboard.press("Enter")
            page.wait_for_selector("#notice >> text=Signed: pause the job.")
            console_job.go_on()
            page.wait_for_selector("#banner >> text=The job is paused")
            page.wait_for_selector("#rows >> text=pause: lunch")
            give(page, "resume", "after lunch")
            page.wait_for_selector(OVER, timeout=30_000)
            page.wait_for_selector("#curve-now >> text=round 12 of 12")
            assert page.evaluate("window.sameDocument") is True
    commands = command_rows(console_job)
    assert [(one["kind"], one["by"], one["why"]) for one in commands] == [
        ("pause", getpass.getuser(), "lunch"),
        ("resume", getpass.getuser(), "after lunch"),
    ]
    with open_for_reading(console_job.ledger) as book:
        assert check(book.entries()) is None


def test_a_deadline_is_extended(browser, tmp_path):
    console_job = ConsoleJob(tmp_path, ["truthful"] * 4, hold=("labeling", 4))
    with console_job.running(), job_watch(tmp_path, str(console_job.ledger), console_job.name) as watched:
        assert console_job.held.wait(60)
        before = wait_for(watched, lambda found: found.stage == "labeling" and found.deadline).deadline
        with page_of(console_job) as opened, looking(browser, opened.url) as page:
            give(page, "extend", "a slow week", stage="label", minutes="90")
    (command,) = command_rows(console_job)
    assert (command["stage"], command["why"]) == ("labeling", "a slow week")
    assert read_time(command["until"]) - read_time(before) == timedelta(minutes=90)


def test_remove_and_end(browser, tmp_path):
    console_job = ConsoleJob(tmp_path, ["truthful"] * 4, hold=("training", 3))
    with console_job.running():
        assert console_job.held.wait(60)
        with page_of(console_job) as opened, looking(browser, opened.url) as page:
            page.wait_for_selector("#do-remove")
            assert page.locator("#do-extend").count() == 0  # rounds have no deadline
            give(page, "remove", "sold the data", client="Dora")
            page.wait_for_selector("#people tr:last-child >> text=removed by the operator: sold the data")
            page.click("#do-remove")
            assert page.locator("#act-client option").all_inner_texts() == ["Ada", "Ben", "Cleo"]
            page.keyboard.press("Escape")
            give(page, "end", "good enough")
            console_job.go_on()
            page.wait_for_selector(OVER, timeout=30_000)
            page.wait_for_selector("#banner >> text=You ended the job: good enough.")
    assert [one["kind"] for one in command_rows(console_job)] == ["remove", "end"]
    with open_for_reading(console_job.ledger) as book:
        assert len(book.entries(console_job.name, "round")) < 12
        assert check(book.entries()) is None


@pytest.mark.parametrize("answer", ["approve", "disapprove"])
def test_a_plan_that_waits_is_shown_and_answered(browser, tmp_path, answer):
    console_job = ConsoleJob(tmp_path, ["truthful"] * 4, approve=lambda plan: ask_by_file(tmp_path, plan))
    if answer == "disapprove":
        console_job.run = swallow(console_job.run)
    with console_job.running(), job_watch(tmp_path, str(console_job.ledger), console_job.name) as watched:
        wait_for(watched, lambda _: watched.waiting_plan() is not None)
        with page_of(console_job) as opened, looking(browser, opened.url) as page:
            page.wait_for_selector("#waiting:not([hidden])")
            plan = watched.waiting_plan()
            words = page.inner_text("#waiting-words")  # money in whole cents, as the ledger has it
            assert f"expected pay {amount_text(plan.total_expected, 1)} {plan.currency} in all" in words
            assert amount_text(plan.offers[0].cost, 1) in page.inner_text("#waiting-offers").split()
            assert page.locator("#waiting-offers tr").count() == 4
            assert axe(page) == []
            give(page, answer, "as we said")
            page.wait_for_selector("#waiting", state="hidden")
            if answer == "approve":
                page.wait_for_selector(OVER, timeout=30_000)
    assert [one["kind"] for one in command_rows(console_job)] == [answer]
    with open_for_reading(console_job.ledger) as book:
        assert bool(book.entries(console_job.name, "offer")) is (answer == "approve")


@pytest.mark.parametrize(("word", "scheme"), [("accept", "light"), ("refuse", "dark")])
def test_a_model_that_is_too_good_is_decided_on(browser, tmp_path, from_elsewhere, word, scheme):
    console_job = ConsoleJob(tmp_path, ["truthful"] * 4, plan=NarrowGate(), audition_seconds=60.0)
    from_elsewhere(good_model(console_job.job.simulated_federation()))
    with console_job.running():
        wait_for_row(console_job, "hold")
        with (
            page_of(console_job) as opened,
            looking(browser, opened.url, **DESKTOP | {"color_scheme": scheme}) as page,
        ):
            page.wait_for_selector("#stages li.now >> text=deciding", timeout=30_000)
            page.wait_for_selector("#people tr:nth-child(3) >> text=is too good; accept or refuse it")
            page.wait_for_selector("#do-accept")
            page.wait_for_selector("#do-refuse")
            assert axe(page) == []
            page.click(f"#do-{word}")
            assert page.locator("#act-client option").all_inner_texts() == ["Cleo"]
            assert axe(page) == []
            page.keyboard.press("Escape")
            give(page, word, "we know Cleo", client="Cleo")
            page.wait_for_selector("#do-accept", state="detached")
            page.wait_for_selector(f"#rows >> text={word} Cleo: we know Cleo")
            page.wait_for_selector(OVER, timeout=30_000)
            row = page.inner_text("#people tr:nth-child(3)")
            assert ("stopped" in row) == ("The operator refused it: we know Cleo." in row) == (word == "refuse")
    (command,) = command_rows(console_job)
    assert (command["kind"], command["client"], command["why"]) == (word, "Cleo", "we know Cleo")
    with open_for_reading(console_job.ledger) as book:
        assert check(book.entries()) is None


def swallow(run):
    """The same without the error of a plan that was declined."""
    from truthfl.errors import InputError

    def quiet():
        with pytest.raises(InputError, match="did not approve"):
            run()

    return quiet


def test_a_dead_page_is_noticed(browser, done):
    with looking(browser, "about:blank") as page:
        page.watch.expected = "net::ERR_"
        with page_of(done) as opened:
            page.goto(opened.url)
            page.wait_for_selector(OVER)
        with within(NOTICED):
            page.wait_for_selector("#alarm >> text=does not answer")
        assert "What you see is of" in page.inner_text("#alarm")


def test_a_waiting_round_and_a_dead_server_are_noticed(browser, done, tmp_path):
    """A process that has written that it runs and for whom its round waits, and is killed."""
    with open_ledger(tmp_path / "ledger.db", done.key) as book, open_for_reading(done.ledger) as whole:
        for entry in whole.entries()[:-25]:
            book.append(entry.job, entry.kind, entry.key, entry.document)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        clients = {"Ada": LiveClient(connected=True, last_seen=now())}
        live = LiveStatus(done.name, process.pid, now(), stage="training", stage_since=now(), clients=clients)
        live.waits = RoundWaits(("Ben", "Dora"), 4, now(), now())
        write_file(tmp_path / FILE_NAME, json.dumps(asdict(live)))
        with open_operator_page(tmp_path, None, None, None) as opened, looking(browser, opened.url) as page:
            page.wait_for_selector("#server >> text=server runs")
            page.wait_for_selector("#buttons >> text=There is no key here")
            page.wait_for_selector("#banner >> text=Round 4 waits for Ben, Dora, since")
            process.kill()
            process.wait()
            with within(NOTICED):
                page.wait_for_selector("#banner.down >> text=No server runs this job")
            page.wait_for_selector("#server >> text=server is down")
            assert axe(page) == []


def test_a_countdown_to_the_deadline(browser, done, tmp_path):
    (tmp_path / "ledger.db").write_bytes(done.ledger.read_bytes())
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append("next", "job", "job", opening(job={"clients": {"name": ["Ada"]}}))
    deadline = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 3700))
    live = LiveStatus("next", at=now(), stage="enrolling", stage_since=now(), deadline=deadline)
    write_file(tmp_path / FILE_NAME, json.dumps(asdict(live)))
    with open_operator_page(tmp_path, None, None, None) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#clock .left >> text=/1:01:\\d\\d h left, until/")
        first = page.inner_text("#clock .left")
        page.wait_for_selector(f"#clock .left:not(:text-is('{first}'))")
        write_file(
            tmp_path / FILE_NAME, json.dumps(asdict(replace(live, at=now(), deadline="2026-01-01T00:00:00+00:00")))
        )
        page.wait_for_selector("#clock .left >> text=time was up")


def test_what_strangers_write_stays_text(browser, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append("job", "job", "job", opening(job={"clients": {"name": [evil]}}))
        refusal = {"stage": "enrolment", "round": None, "client": None, "node": "1", "reason": evil}
        book.append("job", "rejection", "1", refusal)
    with open_operator_page(tmp_path, None, None, None) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#people th >> text=onerror")
        assert evil in page.inner_text("#refused")
        assert page.locator("main img").count() == 0


def test_a_thousand_participants(browser, tmp_path):
    names = [f"clinic {number:04}" for number in range(1000)]
    with open_ledger(tmp_path / "ledger.db", KEY) as book:
        book.append("job", "job", "job", opening(job={"clients": {"name": names}}))
    with open_operator_page(tmp_path, None, None, None) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#people tr")
        assert page.locator("#people tr").count() == 50
        page.click("#people-more >> text=Show all 1,000")
        assert page.locator("#people tr").count() == 1000
