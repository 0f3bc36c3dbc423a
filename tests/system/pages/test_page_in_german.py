"""A whole job in German: nothing is in English on any page, but for what is marked as English."""

import json
import re
import shutil

import pytest

from helpers.auditions import AuditionedAda
from helpers.browsers import DESKTOP, launched, looking
from helpers.participants import Ada, draw_pictures
from truthfl.coded_text import coded, quoted
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.lceme.contract import LCEME
from truthfl.home import participant_folder
from truthfl.ledger.evidence import NO_LABELS
from truthfl.ledger.settlement import early_end_in_words
from truthfl.ledger.terms import TriedLie
from truthfl.page.catalogue import PLACEHOLDER, languages, strings
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

LIES = (
    TriedLie("fewer labels", "50% labeled, rest left out, solo model trained longer", 0.5, 4, 1.0, 0.0, 0.1, 0.2, 0.03),
    TriedLie("fabricated report", "all labeled, echo × 1.4 with noise × 0.2", 1.0, 0, 0.8, 0.05, 0.01),
)
# The texts that can be seen, and those that are read aloud, outside of elements in English.
SEEN = """() => {
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (element.closest("[lang='en'], [lang=''], script, [hidden]") || !element.checkVisibility()) continue;
    if (node.nodeType === Node.TEXT_NODE) texts.push(node.data);
    else texts.push(...["aria-label", "title", "alt", "placeholder"].map((name) => node.getAttribute(name) ?? ""));
  }
  return texts.map((text) => text.trim()).filter((text) => text !== "");
}"""


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


def english_pieces():
    """What stands in English sentences between their values, at least three words or a whole short text of two."""
    german = " ".join(strings("de").values())
    pieces = {piece.strip(" .,;:()“”") for text in strings("en").values() for piece in PLACEHOLDER.split(text)}
    return {piece for piece in pieces if len(re.findall(r"\w{2,}", piece)) >= 3 and piece not in german}


PIECES = english_pieces()


def is_german(page):
    """No English sentence is seen, and the page is not empty."""
    texts = page.evaluate(SEEN)
    assert len(texts) > 10
    shown = "\n".join(texts)
    assert [piece for piece in PIECES if piece in shown] == []
    common = re.findall(r"\b(?:the|your|you|with|from|which|are|not|of)\b", shown)
    assert common == [], shown


@pytest.mark.parametrize("with_audition", [False, True])
def test_a_job_in_german(browser, tmp_path, with_audition):
    ada = (AuditionedAda if with_audition else Ada)(tmp_path)
    contract, losses = (Audition, (0.1,) * 5) if with_audition else (LCEME, (0.1, 0.0))
    dropping_out = f"{contract.dropping_out} {early_end_in_words(contract, losses)}"
    lies = LIES if with_audition else (LIES[1],)
    offer = ada.gets_offer(dropping_out=dropping_out, lies=lies, **({} if with_audition else {"samples": 3}))
    data = draw_pictures(tmp_path / "data", 55)
    (data / "notes.png").write_text("no picture")
    with (
        open_page(ada.home, open_samples(data), tuple("0123456789"), ada.key) as opened,
        looking(browser, opened.url, locale="de-DE", **DESKTOP) as page,
    ):
        base = opened.url.split("/?")[0]
        page.wait_for_selector("#behaviours li")
        page.click("summary")
        is_german(page)
        signed = page.locator("#print .signed[lang='en']").all_inner_texts()
        assert [f"{contract.formula}.", dropping_out] == signed[:2]
        assert "echo × 1.4" in signed[-1]
        assert "mal 1,4, mit Rauschen mal 0,2" in page.inner_text("#behaviours")
        ada.accepts(offer)
        page.goto(f"{base}/label")
        page.wait_for_selector("#stage img")
        page.click("#unreadable summary")
        assert "notes.png ist kein Bild der Art PNG" in page.inner_text("#unreadable")
        paused = coded("news.paused_reason", "paused: {reason}.", reason=quoted("déjeuner"))
        participant_folder.put_news(ada.home, paused, over=False, about="paused")
        page.wait_for_selector("#banner:not([hidden]) q[lang='']")
        assert "Der Betreiber hat den Auftrag angehalten" in page.inner_text("#banner")
        page.keyboard.press("1")
        page.wait_for_selector("body[data-at='1']")
        page.keyboard.press("?")
        is_german(page)
        page.goto(f"{base}/review")
        page.wait_for_selector("#grid button")
        is_german(page)
        participant_folder.clear_news(ada.home)
        ada.gets_receipt(offer, **({"solo_loss": 1.02} if with_audition else {}))
        page.goto(f"{base}/receipt")
        page.wait_for_selector("#facts dd")
        page.click("#check")
        page.wait_for_selector("#verdict.good" if not with_audition else "#verdict.bad, #verdict.good")
        page.click("summary")
        is_german(page)
        _another_receipt(ada, offer, with_audition)
        page.reload()
        page.wait_for_selector("#facts dd")
        page.click("#check")
        page.wait_for_selector("#verdict.bad")
        is_german(page)


def _another_receipt(ada, offer, with_audition):
    """A receipt that does not hold; with an audition, one without a model."""
    (file,) = (ada.home / "receipts").glob("*.json")
    paper = json.loads(file.read_text())
    if with_audition:
        shutil.rmtree(ada.home / "receipts")
        (ada.folder / "ledger.db").unlink()
        paper = ada.gets_receipt(offer, solo_loss=None, reason=f"No model was taken: {NO_LABELS}.")
        (file,) = (ada.home / "receipts").glob("*.json")
    paper["document"]["settlement"]["pay"] -= 1
    file.write_text(json.dumps(paper))


def test_small_counts_are_written_alike_in_all_languages(browser):
    """What format.js writes without a number format of the language, since the first one takes 17 ms to make."""
    page = browser.new_page()
    alike = """(languages) => languages.every((language) => {
      const format = new Intl.NumberFormat(language);
      return Array.from({ length: 1000 }, (_, count) => format.format(count) === String(count)).every((same) => same);
    })"""
    assert page.evaluate(alike, list(languages()))
    assert not page.evaluate(alike, ["ar-EG"])
    page.close()


# The buttons beside a sample whose words are wider or higher than they are.
TOO_SMALL = """() => [...document.querySelectorAll(".controls button")].filter((button) => {
  if (!button.checkVisibility()) return false;
  const words = document.createRange();
  words.selectNodeContents(button);
  const [inner, outer] = [words.getBoundingClientRect(), button.getBoundingClientRect()];
  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
}).map((button) => button.innerText)"""


@pytest.mark.parametrize("locale", ["de-DE", "fr-FR", "es-ES"])
def test_words_fit_into_their_buttons(browser, tmp_path, locale):
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with (
        open_page(tmp_path / "home", source, tuple("0123456789")) as opened,
        looking(browser, opened.url, locale=locale, **DESKTOP) as page,
    ):
        page.wait_for_selector("#stage img")
        page.keyboard.press("3")
        page.wait_for_selector("#last canvas")
        assert page.inner_text("#last .words").startswith("3"), "the class comes first: it is not cut off"
        for width, height in ((1600, 900), (1100, 720), (1000, 700), (844, 390), (700, 1000), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(TOO_SMALL) == [], (width, height)
