"""`truthfl join --phone` from the first to the last: pictures of mixed sizes, offer, labels and receipt on a phone."""

import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from helpers.browsers import HERE, launched
from helpers.browsers import TOUCH_PHONE as PHONE
from helpers.commands import free_port
from helpers.served_federations import ended_whatever_happens, finish, start, truthfl, wait_until

JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 3

[server]
loss_value = 4000.0
most_expected_pay = 100.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben"]
dataset_size = [12, 120]
labeling_cost = 12
sample_cost = 0.05
"""
SAMPLES = 12


@pytest.fixture
def digits_of_mixed_sizes(tmp_path):
    """Digits as files of several sizes and formats; their labels in the order of the files."""
    images, labels = load_digits(return_X_y=True)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k in range(SAMPLES):
        picture = Image.fromarray((images[k].reshape(8, 8) * 15).astype(np.uint8))
        size = (8, 8 + 4 * (k % 3)) if k % 2 else (30 + k, 30)
        picture.resize(size).save(folder / f"{k:02}.{('png', 'bmp', 'webp')[k % 3]}", lossless=True)
    return labels[:SAMPLES].tolist()


def test_a_job_from_the_offer_to_the_receipt_on_a_phone(tmp_path, digits_of_mixed_sizes):
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    for words in (
        "share job.toml --out shares --seed 3",
        *(f"keys participant {n} --out keys" for n in ("Ada", "Ben")),
    ):
        done = truthfl(tmp_path, *words.split())
        assert done.returncode == 0, done.stderr
    port = str(free_port())
    serve = ["serve", "job.toml", "--port", port, "--participants", "keys", "--yes", "--no-page", "--seed", "3"]
    ada = f"--server {HERE}:{port} --name Ada --key keys/Ada --data pictures --home ada --no-browser --phone"
    ben = f"--server {HERE}:{port} --name Ben --key keys/Ben --data shares/Ben.npz --home ben --accept --no-page"
    processes = {
        "serve": start(tmp_path, serve, "serve"),
        "Ada": start(tmp_path, ["join", *ada.split(), "--phone-address", HERE, "--phone-port", "0"], "Ada"),
        "Ben": start(tmp_path, ["join", *ben.split()], "Ben"),
    }
    with ended_whatever_happens(processes) as started, launched() as browser:
        found = lambda: re.search(r"open this address there: (https://\S+)", (tmp_path / "Ada.log").read_text())  # noqa: E731
        wait_until(found, started, tmp_path)
        phone = browser.new_context(ignore_https_errors=True, **PHONE).new_page()
        phone.set_default_timeout(60_000)
        phone.goto(found()[1])
        phone.tap("a >> text=Offer")
        phone.tap("#answer >> text=Accept")
        phone.tap("#sign-yes")
        phone.goto(phone.url.rsplit("/", 1)[0] + "/label")
        for position, label in enumerate(digits_of_mixed_sizes):
            phone.wait_for_selector(f"body[data-at='{position}']")
            phone.tap(f"#classes button:nth-child({label + 1})")
        phone.wait_for_selector("#banner >> text=Your receipt has come.")
        phone.goto(phone.url.rsplit("/", 1)[0] + "/receipt")
        phone.tap("#check")
        phone.wait_for_selector("#verdict.good")
        for name in ("serve", "Ben"):
            said = finish(started[name], tmp_path, name)
            assert started[name].returncode == 0, said
    told = (tmp_path / "Ada.log").read_text()
    assert "pictures of other sizes are scaled to fit into 8×8 pixels" in told
    assert f"{HERE} opened the page" in told
    assert "It holds." in told
