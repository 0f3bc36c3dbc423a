"""Invitations on the operator's page: who can be invited when, the same as by command; the address; what is shown."""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from helpers.browsers import axe, launched, looking
from helpers.commanded_jobs import client_of, give
from helpers.databases import opening
from truthfl.cli.app import main
from truthfl.console.application import open_operator_page
from truthfl.federation.deployed.invitations import read_invitation
from truthfl.federation.operator.job_status import StatusReader
from truthfl.federation.operator.live_status import FILE_NAME, LiveStatus, ServingInfo, now, write_serving
from truthfl.files import write_file
from truthfl.ledger.book import open_ledger
from truthfl.ledger.command_rows import admit, give_command
from truthfl.ledger.commands import new_command, read_time
from truthfl.ledger.signing import new_key, public_line, write_key

JOB = "job-1"


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


class Desk:
    """An operator's folder with a job that was begun and waits for Ada and Ben."""

    def __init__(self, folder):
        self.folder, self.key = folder / "served", new_key()
        write_key(self.key, self.folder / "operator")
        self.append("job", "job", opening(self.key, job={"clients": {"name": ["Ada", "Ben"]}}))
        self.serve("127.0.0.1")

    def serve(self, host, job=JOB):
        key = str(self.folder / "operator")
        ledger, operator = str(self.folder / "ledger.db"), public_line(self.key)
        write_serving(self.folder, ServingInfo(job, ledger, key, host, 8443, operator=operator))

    def append(self, kind, key, document):
        with open_ledger(self.folder / "ledger.db", self.key) as book:
            book.append(JOB, kind, key, document)

    def command(self, kind, **fields):
        with open_ledger(self.folder / "ledger.db", self.key) as book:
            give_command(book, JOB, self.key, lambda: new_command(kind, JOB, "me", **fields))

    def commands(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return [row.document["document"] for row in book.entries(JOB, "command")]

    def page(self):
        return open_operator_page(self.folder, None, JOB, self.key)

    def states(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return [(one.state, one.invited_until) for one in StatusReader(book, JOB).read().participants]

    def asks(self, **changes):
        """The page's answer to an invitation of Ada."""
        body = {"kind": "invite", "why": "good", "client": "Ada", "days": 7, "address": ""} | changes
        with self.page() as page, client_of(page) as client:
            answer = client.post("/api/command", json=body)
            assert answer.headers["cache-control"] == "no-store"
            return answer


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def enrolled(desk):
    desk.append("enrolment", "Ada", {"name": "Ada", "samples": 20, "public_key": public_line(new_key())})


def nothing(_):
    pass


def live(desk, stage):
    write_file(desk.folder / FILE_NAME, json.dumps(asdict(LiveStatus(JOB, at=now(), stage=stage, stage_since=now()))))


REFUSED = {  # what makes it impossible, and what is said
    "unknown": (nothing, {"client": "Zoe"}, "Zoe is not among the job's clients, which are Ada, Ben."),
    "enrolled": (enrolled, {}, "Ada takes part already."),
    "removed": (lambda desk: desk.command("remove", client="Ada"), {}, "Ada was removed from the job"),
    "planned": (lambda desk: desk.append("plan", "1", {}), {}, "the job has begun without Ada"),
    "planning": (lambda desk: live(desk, "planning"), {}, "the job has begun without Ada"),
    "ended": (lambda desk: desk.command("end"), {}, "was told to end"),
    "all addresses": (lambda desk: desk.serve("0.0.0.0"), {}, "listens at all addresses (0.0.0.0); say at which"),
    "no address": (nothing, {"address": "fl.example.org"}, "it must be HOST:PORT"),
    "other job": (lambda desk: desk.serve("127.0.0.1", "job-2"), {}, "is not the one that is served here"),
    "too short": (nothing, {"days": 0}, "days is 0; it must be more than 0"),
    "too long": (nothing, {"days": 366}, "days is 366; it must be more than 0 and at most 365"),
    "not served": (lambda desk: (desk.folder / "serving.json").unlink(), {}, "no job was served in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_who_cannot_be_invited_on_the_page_or_by_command(desk, case, monkeypatch, capsys, tmp_path):
    happens, changes, told = REFUSED[case]
    happens(desk)
    before = len(desk.commands())
    answer = desk.asks(**changes)
    assert answer.status_code == 422
    assert told in answer.json()["error"]
    wanted = {"client": "Ada", "days": 7, "address": ""} | changes
    words = ["invite", wanted["client"], "--days", str(wanted["days"]), "--out", str(desk.folder), "--job", JOB]
    words += ["--file", str(tmp_path / "file"), *(["--address", wanted["address"]] if wanted["address"] else [])]
    monkeypatch.setattr(sys, "argv", ["truthfl", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert len(desk.commands()) == before
    assert not (tmp_path / "file").exists()


def test_the_code_is_told_once(desk):
    told = desk.asks().json()
    invitation = read_invitation(told["invitation"]["line"])
    assert json.loads(told["invitation"]["text"])["code"] == invitation.code
    assert (invitation.server, invitation.name, invitation.root) == ("127.0.0.1:8443", "Ada", "")
    assert abs((read_time(invitation.expires) - datetime.now(UTC)).total_seconds() - 7 * 86_400) < 60
    (command,) = desk.commands()
    assert (command["kind"], command["name"], command["why"]) == ("invite", "Ada", "good")
    with desk.page() as page, client_of(page) as client:
        status = client.get("/api/status").text
    assert json.loads(status)["status"]["invitable"] == ["Ada", "Ben"]  # again, if it was lost
    files = b"".join(path.read_bytes() for path in desk.folder.rglob("*") if path.is_file())
    assert invitation.code not in status
    assert invitation.code.encode() not in files


def test_the_state_of_who_has_not_enrolled(desk):
    assert desk.states() == [("awaited", None), ("awaited", None)]
    invitation = read_invitation(desk.asks().json()["invitation"]["line"])
    assert desk.states() == [("invited", invitation.expires), ("awaited", None)]
    with open_ledger(desk.folder / "ledger.db", desk.key) as book:
        admit(book, JOB, {"name": "Ada", "code": invitation.code, "public_key": public_line(new_key())})
    assert desk.states() == [("admitted", None), ("awaited", None)]
    enrolled(desk)
    assert desk.states() == [("enrolled", None), ("awaited", None)]


def test_a_server_at_all_addresses_asks_for_its_own(browser, desk):
    desk.serve("0.0.0.0")
    with desk.page() as opened, looking(browser, opened.url) as page:
        page.click("#do-invite")
        page.fill("#act-why", "good pictures")
        page.click("#act-go")
        page.wait_for_selector("#act-wrong >> text=Say where the participant reaches the server")
        assert axe(page) == []
        page.fill("#act-address", "nowhere")
        page.click("#act-go")
        page.watch.expected = "422"
        page.click("#act-go")
        page.wait_for_selector("#act-wrong >> text=it must be HOST:PORT")
        page.click("#act-back")
        page.fill("#act-address", "fl.example.org:8443")
        page.fill("#act-days", "30")
        page.click("#act-go")
        page.wait_for_selector("#act-confirm >> text=Invite Ada, for 30 days.")
        page.click("#act-go")
        page.wait_for_selector("#invited[open]")
        assert read_invitation(page.input_value("#invited-line")).server == "fl.example.org:8443"


def test_the_line_is_copied_where_the_browser_has_no_clipboard_for_pages(browser, desk):
    with desk.page() as opened, looking(browser, opened.url) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        give(page, "invite", "good pictures", client="Ben")
        page.click("#invited-copy")
        page.wait_for_selector("#invited-done >> text=Copied.")
        line = page.input_value("#invited-line")
        page.click("#invited-close")
        page.click("#do-pause")
        page.focus("#act-why")
        page.keyboard.press("Control+V")
        assert line.startswith(page.input_value("#act-why"))
        assert page.input_value("#act-why").startswith("truthfl-invitation:")
