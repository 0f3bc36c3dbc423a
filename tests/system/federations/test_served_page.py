"""A real federation steered on the operator's page alone: invited, approved, paused, resumed, reduced and ended there.

The server is a process without a terminal that logs for programs; participants are processes that join by the
invitations of the page.
"""

import json
import re
import signal
from contextlib import contextmanager

import httpx
import pytest

from helpers.browsers import DESKTOP, axe, launched, looking
from helpers.commanded_jobs import give
from helpers.commands import begun, free_port, truthfl
from helpers.served_federations import SECONDS, ended_whatever_happens, entries_of, finish, guide, wait_until
from truthfl.federation.deployed.invitations import read_invitation
from truthfl.federation.operator.live_status import read_live_status
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view

NAMES = ("Ada", "Ben", "Cleo", "Dora")
FIRST_STAGES = ["enrolling", "planning", "approving", "offering", "labeling", "auditioning"]
LAST_STAGES = ["testing", "over"]
SEED = "7203984115"  # so long that nothing else in a log is the same
MANY_ROUNDS = 300  # more than there are until the job is ended


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    """The guide's keys, job and shares; the job is longer, and Ben labels, so that three are left without Cleo."""
    job = guide()[0].replace("rounds = 5", f"rounds = {MANY_ROUNDS}").replace("lazy labeler", "truthful")
    (tmp_path / "digits.toml").write_text(job, encoding="utf-8")
    for words in ("keys server --host 127.0.0.1 --out keys", "share digits.toml --out shares --seed 3"):
        done = truthfl(*words.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    return tmp_path


def joined(folder, name):
    """A process that takes part, by the file NAME.invitation."""
    words = ["join", f"{name}.invitation", "--data", f"shares/{name}.npz", "--home", name.lower(), "--accept"]
    return begun(*words, log=folder / f"{name}.log", cwd=folder)


def told(folder, words, started, log):
    """What this expression finds in a file of what the server says, as soon as it is there."""
    found = lambda: re.search(words, (folder / log).read_text(encoding="utf-8"))  # noqa: E731
    wait_until(found, started, folder)
    return found().group()


def rounds(folder):
    return sum(row.kind == "round" for row in entries_of(folder))


@contextmanager
def stopped(process):
    """A participant's process stands still, so that no round ends."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def has_round_without(folder, name):
    """Whether this client's report was not taken in some round."""
    rows = entries_of(folder)
    view = job_view(rows[0].job, rows)
    return view.delivered[name] < len(view.rounds)


def invited_by_line(page, folder, name):
    """Invite on the page, and copy the line."""
    give(page, "invite", "they have good pictures", client=name)
    page.click("#invited-copy")
    page.wait_for_selector("#invited-done >> text=Copied.")
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == page.input_value("#invited-line")
    assert axe(page) == []
    (folder / f"{name}.invitation").write_text(line, encoding="utf-8")


def invited_by_file(page, folder, name):
    """Invite on the page, and save the file."""
    give(page, "invite", "they have good pictures", client=name)
    with page.expect_download() as download:
        page.click("#invited-save")
    assert download.value.suggested_filename == f"{name}.invitation"
    download.value.save_as(folder / f"{name}.invitation")


def test_a_federation_steered_on_the_page_alone(browser, folder):
    words = ["serve", "digits.toml", "--keys", "keys", "--port", str(free_port()), "--seed", SEED, "--out", "served"]
    words += ["--page", "--no-browser", "--metrics", "0", "--log", "json"]
    server = begun(*words, log=folder / "serve.log", errors=folder / "people.log", cwd=folder)
    with ended_whatever_happens({"serve": server}) as started:
        url = told(folder, r"http://\S+\?token=\S+", started, "people.log")
        with looking(browser, url, **DESKTOP, permissions=["clipboard-read", "clipboard-write"]) as page:
            page.set_default_timeout(SECONDS * 1000)
            page.wait_for_selector("#people tr:nth-child(4) >> text=awaited")
            for name in NAMES:
                (invited_by_file if name == "Ben" else invited_by_line)(page, folder, name)
                page.wait_for_selector("#invited-words >> text=good once, until")
                page.click("#invited-close")
                page.wait_for_selector("#invited-save:not([href])", state="attached")  # it is forgotten
                assert page.input_value("#invited-line") == ""
            page.wait_for_selector("#people tr:nth-child(4) >> text=invitation good until")
            assert page.locator("#people .state >> text=invited").count() == 4
            codes = [read_invitation(str(folder / f"{name}.invitation")).code for name in NAMES]
            page.reload()
            page.wait_for_selector("#people tr")
            seen = page.content() + page.request.get(url.split("?")[0] + "api/status").text()
            seen += "".join(row.payload for row in entries_of(folder))
            assert not any(code in seen for code in codes)
            started |= {name: joined(folder, name) for name in NAMES}
            page.wait_for_selector("#waiting:not([hidden])")
            assert page.locator("#do-invite").count() == 0
            assert not any(row.kind == "offer" for row in entries_of(folder))
            give(page, "approve", "as we said")
            page.click("#do-pause")  # rounds are quick, so all is prepared before they begin
            page.fill("#act-why", "lunch")
            page.click("#act-go")
            wait_until(lambda: rounds(folder) > 0, started, folder)
            page.click("#act-go")
            page.wait_for_selector("#banner >> text=The job is paused")
            before = read_live_status(folder / "served").rounds_timed
            wait_until(lambda: rounds(folder) == before, started, folder)  # the last row is written a moment later
            require_live(page, told(folder, r"http://\S+/metrics", started, "serve.log"))
            assert axe(page) == []
            assert rounds(folder) == before
            with stopped(started["Ada"]):
                give(page, "resume", "after lunch")
                give(page, "remove", "they asked to leave", client="Cleo")
            wait_until(lambda: has_round_without(folder, "Cleo"), started, folder)
            page.watch.expected = "net::ERR_"  # the page goes with its server
            with stopped(started["Ada"]):
                give(page, "end", "good enough")
            log = finish(server, folder, "serve")
            said = (folder / "people.log").read_text(encoding="utf-8")
            assert server.returncode == 0, log + said
            page.wait_for_selector("#alarm >> text=does not answer")
        for name in NAMES:
            heard = finish(started[name], folder, name)
            assert (started[name].returncode, "It holds." in heard) == (0, True), heard
    assert "was not let in" not in said
    rows = entries_of(folder)
    require_commands(rows)
    require_log(log, rows)
    assert not [secret for secret in [*codes, *secrets_of(folder, url)] if secret in log]
    assert check(rows) is None


def require_live(page, metrics):
    """On the page, without a reload: who labeled, passed and trains; and as metrics the same without names."""
    page.wait_for_selector("#people tr:nth-child(1) >> text=training")
    page.wait_for_selector(r"#tiles >> text=/([\d,]{3,}) \/ \1/")
    page.wait_for_selector(r"#curve-now >> text=/of \d/")
    assert page.locator("#solo-plot circle.good").count() == 4
    text = httpx.get(metrics, trust_env=False).text
    assert {"truthfl_up 1.0", "truthfl_job_paused 1.0", "truthfl_clients_enrolled 4.0"} <= set(text.splitlines())
    assert not any(name in text for name in NAMES)


def require_commands(rows):
    """In the ledger: what was done on the page, in its order, and what follows from it."""
    view = job_view(rows[0].job, rows)
    kinds = [*["invite"] * len(NAMES), "approve", "pause", "resume", "remove", "end"]
    assert [command.kind for _, command in view.valid_commands] == kinds
    assert [command.fields["name"] for _, command in view.valid_commands[: len(NAMES)]] == list(NAMES)
    assert set(view.receipts) == set(NAMES)
    assert view.delivered["Cleo"] < view.delivered["Ada"] == len(view.rounds) < view.agreement.terms.rounds
    with_cleo, without = view.rounds[0].document, view.rounds[view.delivered["Cleo"]].document
    assert (with_cleo["missing"], without["missing"]) == ([], ["Cleo"])
    assert without["model"] != without["previous"]


def require_log(text, rows):
    """Every line of standard output is JSON about this job; all rows and stages are there."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert {line["job"] for line in lines} == {rows[0].job}
    assert [line["sequence"] for line in lines if "sequence" in line] == [row.sequence for row in rows]
    stages = [(line["stage"], line["paused"]) for line in lines if line["event"] == "stage"]
    training = [("training", False), ("training", True), ("training", False)]
    one_after_the_other = [(stage, False) for stage in (*FIRST_STAGES, *LAST_STAGES)]
    assert stages == [*one_after_the_other[: len(FIRST_STAGES)], *training, *one_after_the_other[len(FIRST_STAGES) :]]


def secrets_of(folder, url):
    """The operator's keys, seed and secret of draws, and the page's address with its token."""
    (kept,) = (folder / "served").rglob("secrets.json")
    found = [*re.fullmatch(r"http://\S+/([^/]+)/\?token=(\S+)", url).groups()]
    found += map(str, json.loads(kept.read_text()).values())
    for path in [folder / "keys" / "operator", *(folder / "served" / "agreement-keys").iterdir()]:
        found += [line for line in path.read_text(encoding="latin-1").splitlines() if len(line) > 20 and line[0] != "-"]
    assert len(found) > 6
    return found
