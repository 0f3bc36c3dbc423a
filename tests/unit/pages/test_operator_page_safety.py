"""Who may look at the operator's page and act by it: token, cookie, host, origin, CSRF; which commands are refused."""

import httpx
import pytest

from helpers.commanded_jobs import ConsoleJob, client_of, wait_for
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.console.application import open_operator_page
from truthfl.federation.operator.job_watch import job_watch
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.signing import new_key
from truthfl.page.access import CSRF_HEADER

PAUSE = {"kind": "pause", "why": "lunch"}


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A job that runs and is held in the middle."""
    console_job = ConsoleJob(tmp_path_factory.mktemp("held"), hold=("training", 2))
    with console_job.running():
        assert console_job.held.wait(60)
        with job_watch(console_job.folder) as watched:
            wait_for(watched, lambda found: found.stage == "training")
        yield console_job


@pytest.fixture(scope="module")
def opened(held):
    with open_operator_page(held.folder, None, None, held.key) as page:
        yield page


@pytest.fixture
def address(opened):
    return opened.url.split("/?")[0]


@pytest.fixture
def inside(opened):
    with client_of(opened) as client:
        yield client


def commands(held):
    with open_for_reading(held.ledger) as book:
        return book.entries(held.name, "command")


@pytest.mark.parametrize("path", ["/", "/api/status", "/static/console.js"])
def test_nobody_without_the_cookie(address, path):
    with httpx.Client(base_url=address, trust_env=False) as stranger:
        answer = stranger.get(path)
    assert answer.status_code == 403
    assert "Ada" not in answer.text


def test_a_wrong_token_and_a_wrong_path(opened, address):
    with httpx.Client(trust_env=False) as stranger:
        assert stranger.get(f"{address}/?token=wrong").status_code == 403
        root = address[: address.index("/", 8)]
        assert stranger.get(f"{root}/another/?token={opened.url.split('=')[1]}").status_code == 403
        assert not stranger.cookies


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1", ""])
def test_another_host_is_refused(inside, host):
    assert inside.get("/api/status", headers={"host": host}).status_code in (400, 403)


def test_headers_of_every_answer(inside):
    for path in ("/", "/api/status", "/static/console.js", "/nothing"):
        headers = inside.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "require-trusted-types-for 'script'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
    assert inside.get("/api/status").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/api/command", "/api/check"])
@pytest.mark.parametrize(
    "headers",
    [
        {CSRF_HEADER: ""},
        {CSRF_HEADER: "wrong"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_nothing_is_done_for_another_page(inside, held, path, headers):
    before = len(commands(held))
    assert inside.post(path, json=PAUSE if path == "/api/command" else {}, headers=headers).status_code == 403
    assert len(commands(held)) == before


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"kind": "pause"}, "not what the page sends"),
        ({"kind": "burn", "why": "x"}, "not what the page sends"),
        (PAUSE | {"client": "Ada"}, "not what the page sends"),
        ({"kind": "remove", "why": "x"}, "not what the page sends"),
        ({"kind": "extend", "why": "x", "stage": "labeling", "minutes": "9"}, "not what the page sends"),
        ({"kind": "extend", "why": "x", "stage": "labeling", "minutes": True}, "not what the page sends"),
        ({"kind": "extend", "why": "x", "stage": "label", "minutes": 0}, "is over in job"),
        (
            {"kind": "extend", "why": "x", "stage": "training", "minutes": 5},
            "the stage is 'training'; it must be enrol",
        ),
        ({"kind": "pause", "why": " "}, "say why"),
        ({"kind": "pause", "why": "a\nb"}, "say why"),
        ({"kind": "pause", "why": "x" * 301}, "say why"),
        ({"kind": "remove", "why": "x", "client": "Zoe"}, "'Zoe' is not in job"),
        ({"kind": "resume", "why": "x"}, "is not paused"),
        ({"kind": "approve", "why": "x", "plan": "ab" * 32}, "another plan waits now, or none"),
        ({"kind": "invite", "why": "x"}, "not what the page sends"),
    ],
)
def test_commands_that_make_no_sense_are_refused_in_a_sentence(inside, held, body, told):
    before = len(commands(held))
    answer = inside.post("/api/command", json=body)
    assert answer.status_code in (409, 422)
    assert told in answer.json()["error"]
    assert len(commands(held)) == before


def test_junk_is_refused(inside):
    for content in (b"", b"[]", b"nonsense", b"[" * 10_000, b"\xff"):
        assert inside.post("/api/command", content=content).status_code == 422
    assert inside.post("/api/command", content=b"x" * 70_000).status_code == 413
    assert inside.get("/api/command").status_code == 405
    assert inside.get("/static/../application.py").status_code in (403, 404)


@pytest.mark.parametrize("key", [None, "another"])
def test_without_the_operators_key_nothing_can_be_done(held, key):
    with (
        open_operator_page(held.folder, None, None, new_key() if key else None) as page,
        client_of(page) as client,
    ):
        answer = client.post("/api/command", json=PAUSE)
        assert answer.status_code == 422
        assert ("not the one that the job was begun with" if key else "no key here") in answer.json()["error"]
    assert commands(held) == []


def test_a_status_that_is_known_is_not_sent_again(inside):
    first = inside.get("/api/status").json()
    while True:  # the server's own status changes now and then
        again = inside.get(f"/api/status?seen={first['version']}").json()
        if again["version"] == first["version"]:
            break
        first = again
    assert again["status"] is None
    assert again["now"] >= first["now"]


def test_no_secret_is_on_the_page(inside, held):
    text = inside.get("/api/status").text + "".join(inside.get(f"/{path}").text for path in ("", "static/console.js"))
    secrets = [(held.folder / name).read_text() for name in ("operator",)]
    assert not any(line in text for secret in secrets for line in secret.splitlines() if len(line) > 20)
    assert str(held.ledger) not in text


def test_pause_twice(inside, held):
    """The last test here, as it changes the job."""
    assert inside.post("/api/command", json=PAUSE).json() == {"row": commands(held)[0].sequence}
    held.go_on()
    with job_watch(held.folder) as watched:
        wait_for(watched, lambda found: found.paused)
    answer = inside.post("/api/command", json=PAUSE)
    assert answer.status_code == 422
    assert "is paused already" in answer.json()["error"]
    assert inside.post("/api/command", json={"kind": "resume", "why": "enough"}).status_code == 200
    with job_watch(held.folder) as watched:
        wait_for(watched, lambda found: found.is_over)
    answer = inside.post("/api/command", json={"kind": "end", "why": "too late"})
    assert answer.json() == {"error": f"job {held.name} is trained and tested; nothing can be done to it."}
