"""Make the pictures in docs/labeling.md and docs/console.md: python scripts/screenshots.py [labeling] [console]

Runs a small honest job in one process, copies one participant's offer to a new home, and goes through that page in
Chromium: offer, labeling and receipt, on a desktop and on a phone. `operator_screenshots.py` does the operator's page.
"""

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.browser import chromium  # noqa: E402

from truthfl.federation.simulated.in_process import run_job  # noqa: E402
from truthfl.job import read_job  # noqa: E402
from truthfl.learning.data.datasets import bundled_mnist  # noqa: E402
from truthfl.ledger.signing import read_key  # noqa: E402
from truthfl.page.serving import open_page  # noqa: E402
from truthfl.samples.sources import open_samples  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SHOWN_LABELED = 61
DESKTOP = {"viewport": {"width": 1000, "height": 720}}
PHONE = {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}
JOB = """
[data]
source = "mnist"
split = "paper"
degree = 0.4
pilot_samples = 2000
test_samples = 1000

[model]
kind = "softmax"

[training]
rounds = 60

[server]
loss_value = 15000.0
test_samples = 2000

[contract]
kind = "audition"

[clients]
name = ["Ada", "Ben", "Cleo", "Dora", "Emil", "Fay"]
dataset_size = 200
label_cost = 1.0
sample_cost = 0.0006
"""


def main():
    from operator_screenshots import operator_pictures
    from playwright.sync_api import sync_playwright

    wanted = sys.argv[1:] or ["labeling", "console"]
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        if "labeling" in wanted:
            labeling_pictures(browser, Path(name))
        if "console" in wanted:
            for picture, image in operator_pictures(browser, Path(name, "console"), JOB, shot).items():
                keep(image, picture)
        browser.close()


def labeling_pictures(browser, folder):
    (folder / "job.toml").write_text(JOB)
    run_job(read_job(folder / "job.toml"), folder / "job", seed=2)
    truth = draw_digits(folder / "digits", 200)
    wide = go_through(browser, folder, "wide", truth, DESKTOP)
    narrow = go_through(browser, folder, "narrow", truth, PHONE)
    for page in ("offer", "label", "receipt"):
        keep(wide[page], f"labeling-{page}")
    keep(side_by_side([narrow[page] for page in ("offer", "label", "receipt")]), "labeling-phone")


def draw_digits(folder, count):
    """Write real digits as files; return their labels."""
    digits = bundled_mnist()
    folder.mkdir()
    for number in range(count):
        Image.fromarray(digits.images[number, ..., 0]).save(folder / f"{number:05d}.png")
    return digits.labels[:count]


def go_through(browser, folder, name, truth, how):
    """The participant's three pages, in their order."""
    ada, home = folder / "job" / "participants" / "Ada", folder / name
    shutil.copytree(ada / "offers", home / "offers")
    shots = {}
    with open_page(home, open_samples(folder / "digits"), (), read_key(ada / "key")) as opened:
        context = browser.new_context(**how)
        page = context.new_page()
        page.goto(opened.url)
        page.wait_for_selector("#behaviours li")
        whole = how is DESKTOP
        shots["offer"] = shot(page, whole)
        page.click("#answer >> text=Accept")
        page.click("#sign-yes")
        page.click("#answer >> text=Start labeling")
        for number in range(SHOWN_LABELED):
            page.wait_for_selector(f"body[data-at='{number}']")
            page.wait_for_timeout(150 if number < SHOWN_LABELED - 21 else 900)  # a person's pace
            page.keyboard.press(str(truth[number]))
        page.wait_for_selector(f"body[data-at='{SHOWN_LABELED}']")
        page.wait_for_timeout(300)
        shots["label"] = shot(page, False)
        shutil.copytree(ada / "receipts", home / "receipts")
        page.click("nav >> text=Receipt")
        page.click("#check")
        page.wait_for_selector("#verdict.good")
        page.evaluate("document.getElementById('verdict').scrollIntoView({ block: 'end' })")
        shots["receipt"] = shot(page, whole)
        context.close()
    return shots


def shot(page, whole):
    page.evaluate("document.activeElement.blur()")
    return Image.open(BytesIO(page.screenshot(full_page=whole)))


def side_by_side(images, gap=24):
    width = sum(image.width for image in images) + gap * (len(images) - 1)
    made = Image.new("RGB", (width, images[0].height), "#8b949e")
    for number, image in enumerate(images):
        made.paste(image, (number * (images[0].width + gap), 0))
    return made


def keep(image, name):
    """Save a picture with few colours, so that it is small."""
    path = PICTURES / f"{name}.png"
    image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {image.width}×{image.height}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
