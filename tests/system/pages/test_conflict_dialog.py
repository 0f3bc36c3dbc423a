"""The page asks which label counts when another window changed it; by keyboard, on both pages that decide."""

from contextlib import closing

import pytest

from helpers.browsers import axe, launched, looking, showing
from helpers.participants import draw_pictures
from truthfl.page.serving import open_page
from truthfl.samples.label_store import Decision, LabelStore
from truthfl.samples.sources import open_samples

CLASSES = ("cat", "dog", "elk")


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


def test_the_participant_chooses_which_label_counts(browser, tmp_path):
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    home = tmp_path / "home"

    def label(store, position):
        return store.states()[source.ids[position]].label

    with closing(LabelStore(home / "labels.db")) as elsewhere, open_page(home, source, CLASSES) as opened:
        elsewhere.decide(Decision("nonce-fox", source.ids[2], "label", "fox"))
        with looking(browser, opened.url) as page:
            page.watch.expected = "409"
            page.wait_for_selector(showing(0))
            assert "fox" in page.inner_text("#other-classes")
            elsewhere.decide(Decision("nonce-1", source.ids[0], "label", "cat"))
            page.keyboard.press("d")
            page.wait_for_selector("#conflict")
            assert "“cat”. You chose “dog”" in page.inner_text("#conflict-words")
            assert axe(page) == []
            page.screenshot(path=tmp_path / "conflict.png")
            page.keyboard.press("Escape")
            page.wait_for_selector("#conflict", state="detached")
            assert label(elsewhere, 0) == "cat"
            assert page.get_attribute("#classes button >> nth=0", "aria-pressed") == "true"
            page.keyboard.press("d")  # now it was seen
            page.wait_for_selector(showing(1))
            assert label(elsewhere, 0) == "dog"
            elsewhere.decide(Decision("nonce-2", source.ids[1], "label", "cat"))
            page.keyboard.press("e")
            page.wait_for_selector("#conflict")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            page.wait_for_selector(showing(2))
            assert label(elsewhere, 1) == "elk"
            page.goto(opened.url.split("?")[0] + "review")
            page.wait_for_selector("[data-at='0']")
            elsewhere.decide(Decision("nonce-3", source.ids[0], "label", "cat"))
            page.focus("[data-at='0']")
            page.keyboard.press("e")
            page.click("#conflict-take")
            page.wait_for_selector(".note")
            assert label(elsewhere, 0) == "elk"
