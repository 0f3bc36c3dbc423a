"""The pictures in docs/console.md: a job of six, one of whom labels at random, watched while it runs.

`screenshots.py` calls it. The job is held when its plan waits for approval, and in the middle of its rounds.
"""

import threading
import time
from contextlib import contextmanager

from truthfl.console.open_operator_page import open_operator_page
from truthfl.federation.protocol.operator_folder import kept_key
from truthfl.federation.protocol.plan_files import ask_by_file
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.protocol.serving_file import ServingInfo, write_serving
from truthfl.federation.simulated.embedded import grid_of, simulated_participants
from truthfl.job import read_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.commitment import secret_from_seed

SEED, HELD_AT, PATIENCE = 2, 38, 120
WIDE = {"viewport": {"width": 1280, "height": 900}}
DARK = WIDE | {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}
BEHAVIOURS = '\nbehaviour = ["truthful", "truthful", "truthful", "lazy labeler", "truthful", "truthful"]\n'


def operator_pictures(browser, folder, job_text, shot):
    """By name: the pictures; `shot` takes one of a page."""
    folder.mkdir()
    (folder / "job.toml").write_text(job_text + BEHAVIOURS)
    pictures = {}
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
def running(folder):
    """The job in a thread; gives an event that is set when it is held in the middle of its rounds."""
    held, free = threading.Event(), threading.Event()
    job = read_job(folder / "job.toml")
    with open_ledger(folder / "ledger.db") as ledger:
        name = job_name(ledger, job, SEED)
        write_serving(folder, ServingInfo(name, ledger.name, str(folder / "operator"), "fl.example.org", 8443))
        key, secret = kept_key(folder / "operator"), secret_from_seed(SEED)
        approve = lambda plan: ask_by_file(folder, plan, wait=True)  # noqa: E731
        operator = Operator(ledger, folder, key, secret, SEED, approve=approve)
        grid = grid_of(simulated_participants(job, job.simulated_federation(), folder))

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
