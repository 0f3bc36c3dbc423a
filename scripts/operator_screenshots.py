"""The pictures in docs/console.md: a running job of six participants, one of whom labels at random.

`screenshots.py` calls this module. The job is held when its plan waits for approval, and in the middle of its rounds.
In another job, two participants are still missing and are invited.
"""

import threading
import time
from contextlib import contextmanager

from truthfl.console.application import open_operator_page
from truthfl.federation.operator.approval import ask_by_file
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.operator.live_status import ServingInfo, write_serving
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import grid_of, simulated_participants
from truthfl.job import read_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.signing import public_line

SEED, HELD_AT, PATIENCE = 2, 38, 120
WIDE = {"viewport": {"width": 1280, "height": 900}}
DARK = WIDE | {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}
BEHAVIOURS = '\nbehaviour = ["truthful", "truthful", "truthful", "lazy labeler", "truthful", "truthful"]\n'


def operator_pictures(browser, folder, job_text, shot):
    """The pictures, by name; `shot` takes one of a page."""
    pictures = {"operator-invite": invite_picture(browser, folder / "inviting", job_text, shot)}
    (folder / "job.toml").write_text(job_text + BEHAVIOURS)
    with running(folder) as held, open_operator_page(folder, None, None, kept_key(folder / "operator")) as opened:
        with looking(browser, opened.url, WIDE) as page:
            page.wait_for_selector("#waiting:not([hidden])", timeout=PATIENCE * 1000)
            page.wait_for_timeout(500)
            pictures["operator-plan"] = shot(page, False)
            page.click("#approve")
            page.fill("#act-why", "within the budget of May")
            page.click("#act-go")
            page.wait_for_timeout(200)
            pictures["operator-sign"] = shot(page, False)
            page.click("#act-go")
            assert held.wait(PATIENCE)
            page.wait_for_selector(f"#curve-now >> text=round {HELD_AT} of")
            page.click("#check")
            page.wait_for_selector("#verdict.good")
            pictures["operator"] = shot(page, True)
        with looking(browser, opened.url, NARROW) as page:
            pictures["operator-phone"] = shot(page, False)
        with looking(browser, opened.url, DARK) as page:
            pictures["operator-dark"] = shot(page, False)
    return pictures


def invite_picture(browser, folder, job_text, shot):
    """Emil is invited; then the job is ended."""
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(job_text + BEHAVIOURS)
    with (
        running(folder, absent=("Emil", "Fay")),
        open_operator_page(folder, None, None, kept_key(folder / "operator")) as opened,
        looking(browser, opened.url, WIDE) as page,
    ):
        page.wait_for_selector("#people-count >> text=4 of 6 enrolled, 4 connected")
        sign(page, "invite", "they have pictures of winter", "Emil")
        page.wait_for_selector("#people >> text=invitation good until")
        page.wait_for_timeout(500)
        picture = shot(page, False)
        page.click("#invited-close")
        sign(page, "end", "this was for a picture")
    return picture


def sign(page, name, why, client=None):
    page.click(f"#do-{name}")
    if client is not None:
        page.select_option("#act-client", client)
    page.fill("#act-why", why)
    page.click("#act-go")
    page.click("#act-go")


@contextmanager
def looking(browser, url, how):
    context = browser.new_context(**how)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#people tr")
    page.wait_for_timeout(500)
    yield page
    context.close()


@contextmanager
def running(folder, absent=()):
    """The job in a thread, without absent participants; yields an event, set when the job is held amid its rounds."""
    held, free = threading.Event(), threading.Event()
    job = read_job(folder / "job.toml")
    with open_ledger(folder / "ledger.db") as ledger:
        name = job_name(ledger, job, SEED)
        key, secret = kept_key(folder / "operator"), secret_from_seed(SEED)
        where = (name, ledger.name, str(folder / "operator"), "fl.example.org", 8443)
        write_serving(folder, ServingInfo(*where, operator=public_line(key)))
        approve = lambda plan: ask_by_file(folder, plan)  # noqa: E731
        operator = Operator(ledger, folder, key, secret, SEED, approve=approve)
        people = simulated_participants(job, job.simulated_federation(), folder)
        grid = grid_of({node: one for node, one in people.items() if one.name not in absent})

        def progress(activity, done, _):
            if (activity, done) == ("training", HELD_AT):
                held.set()
                free.wait(PATIENCE)

        def conduct():
            conduct_job(grid, job, name, operator, lambda job, side: job.plan(side, None), progress)

        thread = threading.Thread(target=conduct)
        thread.start()
        while not ledger.entries(name):
            time.sleep(0.1)
        try:
            yield held
        finally:
            free.set()
            thread.join()
