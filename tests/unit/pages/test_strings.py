"""The page's strings: the same keys and placeholders in all languages, all of them used, none beside them, and the
browser's language."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import truthfl.page
from helpers.browsers import DESKTOP, axe, launched, looking
from helpers.participants import Ada, draw_pictures
from helpers.texts import coded_texts
from truthfl.home import participant_folder
from truthfl.page.catalogue import (
    Message,
    MessageError,
    amount_of,
    chosen_language,
    in_english,
    languages,
    rounded,
    strings,
)
from truthfl.page.files import filled_in
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

PAGE = Path(truthfl.page.__file__).parent
CATALOGUES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((PAGE / "strings").glob("*.json"))}
PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")
PARTS = {key.split(".")[0] for key in CATALOGUES["en"]}
FORM = re.compile(r"\.(one|other|dative)$")
VISIBLE_ATTRIBUTES = ("aria-label", "title", "alt", "placeholder")
NO_WORDS = {  # names of keys, classes of elements and the like, which nobody reads
    "Backspace", "Enter", "Escape", "key minus", "swatch colour-", "truthfl decisions",
    "truthfl single keys", "verdict bad",
}  # fmt: skip


def test_there_are_four_languages():
    assert languages() == set(CATALOGUES) == {"en", "de", "fr", "es"}


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_a_catalogue_has_the_keys_and_placeholders_of_english(language):
    own = CATALOGUES[language]
    assert list(own) == list(CATALOGUES["en"])
    for key, words in CATALOGUES["en"].items():
        assert set(PLACEHOLDER.findall(own[key])) == set(PLACEHOLDER.findall(words)), key
        assert own[key].strip(), key
    same = [key for key, words in own.items() if len(words.split()) > 4 and words == CATALOGUES["en"][key]]
    assert same == []


def _keys_in_files():
    """Keys that are named in HTML, scripts, the page's and the contracts' Python, and patterns that scripts compose."""
    named, composed = {key for key, *_ in coded_texts()}, []
    scripts, contracts = PAGE / "static", PAGE.parent / "contracts"
    for path in [*PAGE.glob("*.py"), *contracts.rglob("*.py"), *scripts.glob("*.js"), *scripts.glob("*.html")]:
        source = path.read_text("utf-8")
        if path.suffix == ".html":
            named |= set(re.findall(r"\{\{([a-z_.]+)\}\}", source)) - {"language", "title", "words"}
            continue
        named |= {key for key in re.findall(r'"([a-z_]+(?:\.[a-z_]+)+)"', source) if key.split(".")[0] in PARTS}
        for template in re.findall(r"`((?:[a-z_]+\.)+\$\{[^`]*)`", source):
            parts = [re.escape(part) for part in re.split(r"\$\{[^}]*\}", template)]
            composed.append(re.compile(r"[a-z_]+".join(parts)))
    return named, composed


def test_no_key_is_missing_and_none_unused():
    named, composed = _keys_in_files()
    keys = {FORM.sub("", key) for key in CATALOGUES["en"]} | set(CATALOGUES["en"])
    assert {name for name in named - keys if not name.endswith(".html")} == set()
    unused = [
        key
        for key in CATALOGUES["en"]
        if not {key, FORM.sub("", key)} & named
        and not any(one.fullmatch(key) or one.fullmatch(FORM.sub("", key)) for one in composed)
    ]
    assert unused == []
    assert all(any(one.fullmatch(key) for key in keys) for one in composed)


class _Words(HTMLParser):
    """Collects what a reader sees or hears of a page."""

    def __init__(self):
        super().__init__()
        self.words = []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.words += [value for name, value in attrs if name in VISIBLE_ATTRIBUTES]

    def handle_data(self, data):
        self.words.append(data.strip())


@pytest.mark.parametrize("path", sorted((PAGE / "static").glob("*.html")), ids=lambda path: path.name)
def test_pages_have_no_words_of_their_own(path):
    reader = _Words()
    reader.feed(re.sub(r"\{\{[a-z_.]+\}\}", "", path.read_text("utf-8")))
    assert [words for words in reader.words if re.search(r"\w\w", words) and words != "truthfl"] == []


@pytest.mark.parametrize("path", sorted((PAGE / "static").glob("*.js")), ids=lambda path: path.name)
def test_scripts_have_no_language_and_no_words_of_their_own(path):
    """A text of two words, or one that begins with a capital letter, is one that somebody reads."""
    source = re.sub(r"(^|\s)//.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
    assert 'toLocaleString("en"' not in source
    texts = [re.sub(r"\$\{[^}]*\}", "", one or other) for one, other in re.findall(r'"([^"\n]*)"|`([^`]*)`', source)]
    found = [text for text in texts if re.search(r"\b[A-Za-z]{2,} [a-z]{2,}|^[A-Z][a-z]{2,}", text)]
    assert [text for text in found if text not in NO_WORDS] == []


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_typography_and_form_of_address_are_those_of_the_language(language):
    wrong = {
        "de": r"[“\"'][^„]*[”\"]|\b([Dd]u|[Dd]ir|[Dd]ich|[Dd]eine?[mnrs]?)\b",
        "fr": r"[^\u202f][;!?»]|[^\u202f]:(?!\w)|«[^\u202f]|['\"]|\b([Tt]u|[Tt]on|[Tt]es)\b",
        "es": r"^[^¿]*\?|^[^¡]*!|[“”\"]|\b([Tt]ú|[Tt]us?|[Tt]uy[oa]s?|[Tt]i|[Tt]e)\b",
    }[language]
    allowed = {"unreadable.heic"}  # has a command
    assert {key: words for key, words in CATALOGUES[language].items() if re.search(wrong, words)}.keys() <= allowed


def test_what_is_read_first_has_no_jargon():
    first = (
        "label.",
        "review.",
        "clock.",
        "steps.",
        "behaviour.",
        "offer.fact",
        "offer.bound",
        "offer.time",
        "offer.lead",
    )
    words = [text for key, text in CATALOGUES["en"].items() if key.startswith((*first, "offer.audition_short"))]
    assert [text for text in words if re.search(r"\b(loss|batch|gradient|epoch|federated|deviation)\b", text)] == []


@pytest.mark.parametrize(
    "sentence",
    ["Your computer delivered all {count} rounds.", "Mistakes are easy to spot side by side.",
     "They are saved on this computer.", "Use keyboard shortcuts"],
)  # fmt: skip
def test_sentences_that_were_asked_for_are_there(sentence):
    assert any(text.startswith(sentence) for text in CATALOGUES["en"].values())


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"), ("de", "de"), ("de-DE,de;q=0.9,en;q=0.8", "de"), ("FR-ca", "fr"), ("en;q=0.5, es;q=0.7", "es"),
        ("tlh, ja;q=0.9", "en"), ("tlh, fr;q=0.1", "fr"), ("de;q=0", "en"), ("*", "en"), ("de;q=nan, es;q=0.2", "es"),
        ("../../etc;q=1", "en"), ("en-GB,de", "en"), (",;q=,de;;", "en"),
    ],
)  # fmt: skip
def test_the_browser_chooses_the_language(header, language):
    assert chosen_language(header) == language


def test_messages_are_written_with_numbers_money_and_plurals():
    assert in_english(Message("count.row", {"count": 1})) == "1 row"
    assert in_english(Message("count.row", {"count": 1200})) == "1,200 rows"
    assert in_english(Message("offer.pay_at_most", {"pay": amount_of(12.5, 100, "EUR")})) == "at most 12.50 EUR"
    assert in_english(Message("offer.pay_at_loss", {"loss": rounded(0.5, 4)})) == "at a loss of 0.5000"
    assert str(MessageError("error.no_sample", number=7, total=6)) == "There is no sample 7; there are 6."


def test_texts_are_escaped_in_pages(monkeypatch):
    monkeypatch.setattr("truthfl.page.files.strings", lambda _: {"a.b": '<b>"&'})
    assert filled_in('<p lang="{{language}}">{{a.b}}</p>', "de") == '<p lang="de">&lt;b&gt;&quot;&amp;</p>'


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.mark.parametrize(("locale", "language"), [("de-DE", "de"), ("ja-JP", "en")])
def test_the_pages_are_in_the_browsers_language(browser, tmp_path, locale, language):
    """Offer, labeling, review and receipt, in the language of its catalogue, and nothing without a translation."""
    ada = Ada(tmp_path)
    offer = ada.gets_offer(samples=3)
    data = draw_pictures(tmp_path / "data", 3)
    words = strings(language)
    figure = {"de": "−4.360 cent", "en": "−4,360 cent"}[language]
    with (
        open_page(ada.home, open_samples(data), tuple("0123456789"), ada.key) as opened,
        looking(browser, opened.url, locale=locale, **DESKTOP) as page,
    ):
        base = opened.url.split("/?")[0]
        page.wait_for_selector("#behaviours li")
        assert page.title() == words["offer.page_title"]
        page.click("summary")
        shown = page.inner_text("main")
        assert figure in shown
        for key in ("offer.pay_title", "offer.plot_range", "behaviour.honest.title", "privacy.answers"):
            assert words[key] in shown, key
        _is_sound(page, language)
        ada.accepts(offer)
        page.goto(f"{base}/label")
        page.wait_for_selector("#stage img")
        assert words["label.skip"] in page.inner_text("#skip")
        assert page.inner_text("#count") == words["label.count"].format(labeled=0, total=3)
        page.keyboard.press("1")
        page.wait_for_selector("body[data-at='1']")
        assert words["common.labeled_as"].format(name="1") in page.inner_text("#announcement")
        page.keyboard.press("?")
        assert words["label.shortcuts"] in page.inner_text("#help")
        _is_sound(page, language)
        page.goto(f"{base}/review")
        page.wait_for_selector("#grid button")
        assert words["review.lead"] in page.inner_text("main")
        _is_sound(page, language)
        participant_folder.put_news(ada.home, "It is paused: lunch.", over=False, about="paused")
        page.wait_for_selector("#banner:not([hidden])")
        assert page.inner_text("#banner").strip() == "It is paused: lunch."
        assert page.locator("#banner span").get_attribute("lang") == "en"  # words of a server alone
        participant_folder.clear_news(ada.home)
        ada.gets_receipt(offer)
        page.goto(f"{base}/receipt")
        page.wait_for_selector("#facts dd")
        assert words["receipt.rounds_all.other"].format(count=3) in page.inner_text("#lead")
        assert words["calculation.lceme.reward"] in page.inner_text("#sum")
        page.click("#check")
        page.wait_for_selector("#verdict.good")
        assert words["receipt.holds"] in page.inner_text("#verdict")
        _is_sound(page, language)


def _is_sound(page, language):
    """Every text is filled in, it fits a telephone's width, and axe finds nothing."""
    assert page.locator("html").get_attribute("lang") == language
    shown = page.inner_text("body")
    assert not re.search(r"undefined|NaN|\[object|\{\w|(^|\s)(offer|label|receipt|common)\.[a-z]", shown), shown
    assert axe(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size(DESKTOP["viewport"])
