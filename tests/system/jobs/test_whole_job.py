"""A whole job as new users have it: labels typed in a page, a job that is served, rows in the ledger."""

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from helpers.browsers import launched
from helpers.commands import free_port
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import new_key, write_key

SECONDS = 240
EACH = 30
JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 6
step_size = 2.0

[server]
loss_value = 20000.0
test_samples = 2000
label_seconds = 240
answer_seconds = 240
round_seconds = 120

[contract]
kind = "lceme"

[classes]
examples = "examples"
instructions = "Label the digit."

[clients]
name = ["Ada", "Ben", "Cleo"]
dataset_size = 30
labeling_cost = 10
sample_cost = 0.05
"""


def truthfl(folder, name, *words):
    command = [sys.executable, "-m", "truthfl", *map(str, words)]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def said(folder, name, words):
    """Wait until it has said this; what it said."""
    end = time.monotonic() + SECONDS
    while not (found := re.search(words, (folder / f"{name}.log").read_text(encoding="utf-8"))):
        log = (folder / f"{name}.log").read_text(encoding="utf-8")
        assert time.monotonic() < end, log
        assert "did not end well" not in log, log
        time.sleep(0.1)
    return found.group()


def digits_of(folder, first):
    """Pictures of digits as files; the right label of each, in the order in which the page shows them."""
    bundle = load_digits()
    folder.mkdir()
    for k in range(EACH):
        pixels = np.round(bundle.images[first + k] * (255 / 16)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{k:03}.png")
    return bundle.target[first : first + EACH].tolist()


def example_pictures(folder):
    """Examples of two classes: a noisy photo, which takes some bytes on the way, and a digit."""
    for name in ("3", "7"):
        (folder / name).mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "3" / "photo.jpg")
    Image.fromarray(np.round(load_digits().images[7] * (255 / 16)).astype(np.uint8)).save(folder / "7" / "seven.png")


def answered_and_labeled(browser, url, labels):
    """What a person does: read the offer, accept, press a key for every picture."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(SECONDS * 1000)
    page.goto(url)
    page.goto(re.sub(r"/\?.*", "/offer", url))
    page.get_by_role("button", name=re.compile("^Accept")).first.click()
    page.click("#sign-yes")
    page.locator("#sign[open]").wait_for(
        state="detached"
    )  # a polled expression would need eval, which the page forbids
    page.goto(re.sub(r"/\?.*", "/label", url))
    page.wait_for_selector("body[data-at='0']")
    page.keyboard.press("i")
    page.wait_for_selector("#instructions[open]")
    examples = page.locator("#instructions img").all()
    assert [image.evaluate("image => image.decode().then(() => image.naturalWidth)") for image in examples] == [480, 8]
    page.keyboard.press("Escape")
    for position, label in enumerate(labels):
        page.wait_for_selector(f"body[data-at='{position}']")
        page.keyboard.press(str(label))
    page.wait_for_selector("#done:not([hidden])")
    return page


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


def test_from_labels_typed_in_a_page_to_rows_in_the_ledger(browser, tmp_path):
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    example_pictures(tmp_path / "examples")
    port, started, labels = free_port(), [], {}
    try:
        started.append(truthfl(tmp_path, "serve", "serve", "job.toml", "--port", port, "--out", "served", "--yes"))
        said(tmp_path, "serve", "waiting for 3 clients")
        for number, name in enumerate(("Ada", "Ben", "Cleo")):
            labels[name] = digits_of(tmp_path / f"{name}-digits", 100 * number)
            if name == "Ben":
                cut_off = (tmp_path / "Ben-digits" / "000.png").read_bytes()[:60]
                (tmp_path / "Ben-digits" / "000-cut-off.png").write_bytes(cut_off)
            write_key(new_key(), tmp_path / f"{name}.key")
            words = ["--server", f"127.0.0.1:{port}", "--name", name, "--key", f"{name}.key", "--home", f"{name}-home"]
            started.append(truthfl(tmp_path, name, "join", *words, "--data", f"{name}-digits", "--no-browser"))
        assert "passed over: 000-cut-off.png is broken" in said(tmp_path, "Ben", "passed over.*")
        said(tmp_path, "serve", "offer to Cleo")
        pages = {
            name: answered_and_labeled(browser, said(tmp_path, name, r"http://\S+"), labels[name]) for name in labels
        }
        said(tmp_path, "serve", "Cleo is paid")
        for name, page in pages.items():
            said(tmp_path, name, "It holds.")
            page.click("#banner >> text=Look at it")  # the page is still there, with the receipt
            page.click("#check")
            page.wait_for_selector("#verdict.good")
            page.close()
        assert started[0].wait(SECONDS) == 0
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in started:
            process.wait(60)
    with open_for_reading(tmp_path / "served" / "ledger.db") as book:
        rows = book.entries()
    assert check(rows) is None
    found = job_view(rows[0].job, rows)
    assert found.delivered == {"Ada": 6, "Ben": 6, "Cleo": 6}
    assert [row.document["state"] for row in found.payments] == ["due"] * 3
    assert found.test.document["accuracy"] > 0.3  # chance is 0.1: the labels were the right ones
