"""The page beside other things: a second tab, an offer that comes, a browser that fails, keys that are held."""

import webbrowser

import pytest

from helpers.browsers import DIGITS, DONE, browser, count, decisions, looking, press, showing  # noqa: F401
from helpers.participants import Ada, draw_pictures
from truthfl.cli.participant.pages import open_in_browser
from truthfl.home import participant_folder
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples


@pytest.fixture
def data(tmp_path):
    return draw_pictures(tmp_path / "data", 4)


def test_two_tabs_know_of_each_other(browser, tmp_path, data):
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, opened.url) as one:
        one.wait_for_selector(showing(0))
        other = one.context.new_page()
        other.goto(opened.url.split("/?")[0] + "/label")
        other.wait_for_selector(showing(0))
        press(one, "3")
        other.wait_for_selector("#count >> text=1 of 4 labeled")
        assert other.get_attribute("#classes button:nth-child(4)", "aria-pressed") == "true"
        for key in "45":
            press(one, key)
        press(one, "6", DONE)
        other.wait_for_selector("#count >> text=4 of 4 labeled")
        other.keyboard.press("Backspace")
        one.wait_for_selector(showing(3))  # it is not done any more, and shows what is left
        assert count(one) == count(other) == "3 of 4 labeled"
        other.goto(opened.url.split("/?")[0] + "/review")
        other.wait_for_selector("#grid button")
        press(one, "5", DONE)
        other.wait_for_selector("#groups button:nth-child(6) >> text=5 2")


def test_an_offer_that_comes_during_labeling_stays_announced(browser, tmp_path, data):
    ada = Ada(tmp_path)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        page.watch.expected = "409"
        offer = ada.gets_offer(samples=2, classes=("cat", "dog"))
        page.wait_for_selector("#classes button:nth-child(2):last-child")
        page.wait_for_selector("#banner >> text=There is an offer for you to answer.")
        press(page, "d")
        press(page, "c", DONE)
        assert "still to be answered" in page.inner_text("#done-words")
        ada.accepts(offer)
        page.wait_for_selector("#done-words >> text=Your computer takes it from here")
        assert page.is_hidden("#banner")
        again = ada.gets_offer(samples=2, classes=("cat", "dog"), version=2)
        page.click("#banner a")
        page.wait_for_selector("text=This offer replaces an earlier one")
        page.click("#answer >> text=Accept")
        page.click("#sign-yes")
        page.wait_for_selector("text=You accepted this offer.")
        page.wait_for_function("document.activeElement.className === 'state'")
        assert participant_folder.has_accepted(ada.home, again)


def test_a_cost_that_is_none_is_said(browser, tmp_path, data):
    ada = Ada(tmp_path)
    ada.gets_offer(samples=4)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#behaviours li")
        page.fill("#cost-labeling", "-5")
        page.wait_for_selector("#cost-words >> text=A cost must be a number from 0 on.")
        page.fill("#cost-labeling", "5")
        page.wait_for_selector("#cost-words >> text=Honest work costs you")


def test_keys_in_the_review_are_as_on_the_bench(browser, tmp_path, data):
    """Once for a held key, not with Ctrl, not when they are switched off; a class may be called Flagged."""
    classes = ("Flagged", "b")
    with open_page(tmp_path / "home", open_samples(data), classes) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        for _ in range(3):
            press(page, "b")
        page.goto(opened.url.split("/?")[0] + "/review")
        page.focus("#groups button:nth-child(3)")
        page.keyboard.press("Enter")
        assert page.inner_text("#group-title") == "Flagged: none"
        assert page.evaluate("document.activeElement.innerText").split() == ["Flagged", "0"]
        page.click("#groups >> text=b")
        page.click("#grid button >> nth=0")
        page.wait_for_selector("#large[open] img")
        page.keyboard.press("Control+f")
        for _ in range(6):
            page.keyboard.down("f")
        page.keyboard.up("f")
        page.wait_for_selector("#large-flag[aria-pressed=true]")
        page.evaluate("localStorage.setItem('truthfl single keys', 'off')")
        page.keyboard.press("b")
        page.wait_for_timeout(200)
        assert page.is_visible("#large")
    assert [row[1] for row in decisions(tmp_path / "home")] == ["label"] * 3 + ["flag"]


def test_the_offer_that_was_shown_is_signed(browser, tmp_path, data):
    """An offer that comes while the page asks to sign another is not signed in its place."""
    ada = Ada(tmp_path)
    seen = ada.gets_offer(samples=4)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.click("#answer >> text=Accept")
        page.wait_for_selector("#sign[open]")
        unseen = ada.gets_offer(samples=3, version=2)
        page.wait_for_selector("text=Label 3 pictures")
        assert page.is_hidden("#sign")
        assert participant_folder.read_answer(ada.home, seen) is None
        assert participant_folder.read_answer(ada.home, unseen) is None


def test_news_from_the_server_is_shown(browser, tmp_path, data):
    ada = Ada(tmp_path)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        participant_folder.put_news(ada.home, "The operator's server ended the job: <b>nobody</b> came.", over=True)
        page.wait_for_selector("#banner >> text=ended the job: <b>nobody</b> came.")


def test_a_picture_that_the_browser_cannot_show_is_redrawn(browser, tmp_path, data):
    """What the page passed over, and the node does not, would never be labeled."""
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        page.route("**/samples/*/1", lambda route: route.fulfill(body="no picture", content_type="image/png"))
        page.goto(opened.url)
        page.wait_for_selector(showing(0))
        press(page, "1", showing(1))
        assert page.get_attribute("#stage img", "src").endswith("?reencoded")
        assert page.evaluate("document.querySelector('#stage img').naturalWidth") == 28
        assert page.is_hidden("#unreadable")


def test_the_next_pictures_are_fetched_before_they_are_wanted(browser, tmp_path, data):
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[-1]))
        page.goto(opened.url)
        page.wait_for_selector(showing(0))
        page.wait_for_load_state("networkidle")
        assert {"1", "2", "3"} <= set(asked)
        asked.clear()
        press(page, "1")
        assert "1" not in asked


def test_it_is_not_done_while_one_is_skipped_and_they_come_back_in_order(browser, tmp_path, data):
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        for key, then in ((" ", 1), ("1", 2), (" ", 3), ("1", 0), ("1", 2)):
            press(page, key, showing(then))
        page.keyboard.press(" ")  # the last one left
        page.wait_for_selector("#announcement >> text=This is the last one left.", state="attached")
        assert page.is_hidden(DONE)
        press(page, "1", DONE)


def test_the_page_opens_by_way_of_a_file_that_only_its_user_can_read(browser, tmp_path, data, monkeypatch):
    came = []
    monkeypatch.setattr(webbrowser, "open", came.append)
    (tmp_path / "home").mkdir()
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        open_in_browser(opened.url, tmp_path / "home")
        assert "token" not in came[0]
        assert (tmp_path / "home" / "page.html").stat().st_mode & 0o077 == 0
        page.watch.elsewhere = []
        page.goto(came[0])
        page.wait_for_selector(showing(0))
        page.watch.elsewhere = [url for url in page.watch.elsewhere if url != came[0]]
