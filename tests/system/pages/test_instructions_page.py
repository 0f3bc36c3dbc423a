"""What the classes mean, in a real browser: one key away while labeling, on the offer before it is answered."""

import re

import pytest

from helpers.browsers import DESKTOP, DIGITS, PHONE, axe, browser, command, looking, showing  # noqa: F401
from helpers.participants import draw_pictures
from helpers.task_jobs import CLASSES, example_folder, instructed_ada
from truthfl.instructions import ClassInstructions, Instructions
from truthfl.page.serving import open_page
from truthfl.page.work import keys_of
from truthfl.samples.example_files import FOLDER
from truthfl.samples.sources import open_samples

OPEN, CLOSED = "#instructions[open]", "#instructions:not([open])"


@pytest.fixture
def told(tmp_path):
    return instructed_ada(tmp_path, 120)


def at_page(opened, name):
    return re.sub(r"/\?.*", f"/{name}", opened.url)


def widths(page):
    """The real widths of the pictures; decoding fails for one that is none."""
    return [
        image.evaluate("image => (image.loading = 'eager', image.decode().then(() => image.naturalWidth))")
        for image in page.locator("#instructions img").all()
    ]


@pytest.mark.parametrize(("how", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_offer_and_the_labeling_page_show_them(browser, told, how, scheme):
    with (
        open_page(told.home, told.samples, DIGITS, told.key) as opened,
        looking(browser, opened.url, **how, color_scheme=scheme) as page,
    ):
        page.goto(at_page(opened, "offer"))
        page.wait_for_selector("#instructions:not([hidden])")
        assert "If there are two, the larger one." in page.inner_text("#instructions")
        assert page.locator("#instructions h3").all_inner_texts() == ["1", "7"]  # those of which something is said
        assert widths(page) == [480, 20, 24]
        assert axe(page) == []
        told.accepts(told.offer)
        page.goto(at_page(opened, "label"))
        page.wait_for_selector(showing(0))
        assert axe(page) == []
        page.keyboard.press("i")
        page.wait_for_selector(OPEN)
        assert axe(page) == []
        assert page.locator("#instructions h3").all_inner_texts()[:2] == ["0\n0", "1\n1"]
        assert page.locator("#instructions img").nth(1).get_attribute("alt") == "Example 1 of 7"
        assert "<b>Not</b> a one." in page.inner_text("#instructions")  # as text
        assert "Or <i>two</i>." in page.inner_text("#instructions")
        assert page.locator("#instructions b, #instructions i").count() == 0
        assert widths(page) == [480, 20, 24]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dialog = page.locator("#instructions")
        assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
        page.keyboard.press("7")  # no label is given behind it
        page.keyboard.press("Escape")
        page.wait_for_selector(CLOSED, state="attached")
        assert page.inner_text("#count").startswith("0 of")
        page.click("#instructions-open")
        page.wait_for_selector(OPEN)
        page.keyboard.press("i")
        page.wait_for_selector(CLOSED, state="attached")
        page.keyboard.press("7")
        page.wait_for_selector(showing(1))


def test_without_instructions_the_key_does_nothing(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 3)
    with (
        open_page(tmp_path / "home", open_samples(data), ("ink", "paper")) as opened,
        looking(browser, opened.url) as page,
    ):
        page.wait_for_selector(showing(0))
        page.keyboard.press("i")
        assert not page.is_visible("#instructions-open")
        assert not page.is_visible("#instructions")
    assert keys_of(("ink", "idea")) == ("n", "d")  # the key is never a class's


def test_label_shows_instructions_of_a_file(browser, tmp_path):
    data, folder = draw_pictures(tmp_path / "data", 3), example_folder(tmp_path)
    (tmp_path / "classes.toml").write_text(CLASSES)
    with command(data, tmp_path / "home", "--instructions", tmp_path / "classes.toml") as (_, url):
        for lost in (folder / "1").iterdir():
            lost.unlink()  # copies are in Ada's folder
        with looking(browser, url, **DESKTOP, locale="de-DE") as page:
            page.wait_for_selector(showing(0))
            assert page.locator("#classes button").all_inner_texts() == ["7", "1"]
            page.keyboard.press("i")
            page.wait_for_selector(OPEN)
            assert page.inner_text("#instructions h2") == "Anleitung"
            assert widths(page) == [20, 24, 480]
            page.keyboard.press("Escape")
            for copy in (tmp_path / "home" / FOLDER).iterdir():
                copy.write_bytes(b"<script>")  # what is not the file that was named is not served
            page.reload()  # what is shown already may be in the browser's memory
            page.wait_for_selector(showing(0))
            page.keyboard.press("i")
            page.wait_for_selector("#instructions .lost")
            assert page.locator("#instructions img").count() == 0


def test_other_files_of_the_folder_are_not_served(browser, told):
    (told.home / FOLDER / ("ab" * 32)).write_bytes(b"another job's")
    with open_page(told.home, told.samples, DIGITS, told.key) as opened, looking(browser, opened.url) as page:
        page.watch.expected = "404"
        named = next(told.offer.job.instructions.examples)
        for name, status in ((named.sha256, 200), ("ab" * 32, 404), ("..%2fkey", 404), ("key", 404)):
            answer = page.request.get(at_page(opened, f"examples/{name}"))
            assert answer.status == status
        answer = page.request.get(at_page(opened, f"examples/{named.sha256}"))
        assert answer.headers["content-type"] == named.media_type
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_many_classes_fit_the_dialog(browser, tmp_path):
    names = tuple(f"a class with a rather long name, number {k}" for k in range(60))
    given = Instructions("Long. " * 300, tuple(ClassInstructions(name, "w" * 300) for name in names))
    data = open_samples(draw_pictures(tmp_path / "data", 3))
    with (
        open_page(tmp_path / "home", data, names, instructions=given) as opened,
        looking(browser, opened.url, **PHONE) as page,
    ):
        page.wait_for_selector(showing(0))
        page.click("#instructions-open")
        page.wait_for_selector(OPEN)
        dialog = page.locator("#instructions")
        assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
        assert dialog.evaluate("dialog => dialog.scrollTop") == 0
        page.keyboard.press("End")  # scrolls by keyboard
        while dialog.evaluate("dialog => dialog.scrollTop") == 0:  # the test's own time limit ends this
            page.wait_for_timeout(20)
        assert page.is_visible("#instructions-close")
        page.tap("#instructions-close")
        page.wait_for_selector(CLOSED, state="attached")
