"""The participant's page in a real Firefox: by keyboard alone, by touch, on a low screen, enlarged, in German."""

import pytest

from helpers.browsers import DIGITS, DONE, decisions, showing
from helpers.firefox import launched
from helpers.task_jobs import instructed_ada
from truthfl.home import participant_folder
from truthfl.ledger.documents import answer_fault
from truthfl.page.catalogue import strings
from truthfl.page.serving import open_page
from truthfl.samples.handmade_labels import labels_of

READY = {"offer": "#behaviours li", "label": "#stage img", "review": "#grid button", "receipt": "#facts dd"}
PHONE = {"width": 390, "height": 844}
ON_ITS_SIDE = {"width": 844, "height": 390}
ACCEPT, SIGN, START = "#answer button.main", "#sign-yes", "#answer a.main"


@pytest.fixture(scope="module")
def firefox():
    with launched() as opened:
        yield opened


@pytest.fixture
def ada(tmp_path):
    return instructed_ada(tmp_path, 3)


@pytest.fixture
def opened(ada):
    with open_page(ada.home, ada.samples, DIGITS, ada.key) as page:
        yield page


def is_sound(page):
    """Nothing is to be scrolled sideways, and axe finds nothing."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.axe() == []


def zoomed(page, how):
    """The picture is shown with a transformation that has this in it, or with none."""
    expected = f"includes({how!r})" if how else "length === 0"
    page.wait_for(f"document.querySelector('#stage img').style.transform.{expected}")


def labels(ada):
    return labels_of(ada.home / "labels.db", ada.samples.ids, DIGITS).tolist()


def test_from_the_offer_to_the_receipt_by_keyboard_alone(firefox, ada, opened):
    with firefox.looking(opened.url) as page:
        page.wait_for_selector(READY["offer"])
        is_sound(page)
        page.tab_to(ACCEPT)
        page.press("Enter")
        page.wait_for_selector("#sign[open]")
        is_sound(page)
        page.press("Escape")
        page.wait_for("!document.querySelector('#sign').open")
        assert participant_folder.read_answer(ada.home, ada.offer) is None
        page.press("Enter")  # the button has the focus again
        page.wait_for_selector("#sign[open]")
        page.tab_to(SIGN)
        page.press(" ")
        page.tab_to(START)
        assert answer_fault(participant_folder.read_answer(ada.home, ada.offer), ada.offer) is None
        page.press("Enter")

        page.wait_for_selector(showing(0))
        is_sound(page)
        page.press("i")
        page.wait_for_selector("#instructions[open] img")
        assert "If there are two, the larger one." in page.words("#instructions")
        is_sound(page)
        page.press("End")
        page.wait_for("document.querySelector('#instructions').scrollTop > 0")
        page.press("7", "i")  # no label is given behind the dialog, and its key closes it
        page.wait_for("!document.querySelector('#instructions').open")
        page.press("?")
        page.wait_for_selector("#help[open]")
        assert page.evaluate("document.querySelector('#help').scrollTop") == 0  # from its beginning
        is_sound(page)
        page.press("Enter")  # on the button that closes it
        page.wait_for("!document.querySelector('#help').open")
        for key, then in (("+", "scale(1.5)"), ("ArrowRight", "translate(-"), ("Escape", "")):
            page.press(key)
            zoomed(page, then)
        for key, then in (("3", 1), ("8", 2), ("Backspace", 1), ("5", 2), ("ArrowLeft", 1), ("ArrowRight", 2)):
            page.press(key)
            page.wait_for_selector(showing(then))
        page.press("f")
        page.wait_for_selector("#flag[aria-pressed=true]")
        page.press(" ")  # skipped; it is the last one, so it stays
        page.wait_for("document.querySelector('#marks').innerText.includes('skipped')")
        page.tab_to("#classes button:nth-child(2)")
        page.press("Enter")
        page.wait_for_selector(DONE)
        is_sound(page)
        assert labels(ada) == [3, 5, 1]

        page.tab_to("#done a.main")
        page.press("Enter")
        page.wait_for_selector(READY["review"])
        is_sound(page)
        page.tab_to("#grid button")
        page.press("9")
        page.wait_for("document.querySelector('#grid').innerText.includes('now 9')")
        ada.gets_receipt(ada.offer)
        page.wait_for_selector("#banner a")
        page.tab_to("#banner a[href=receipt]", "Shift+Tab")
        page.press("Enter")
        page.wait_for_selector(READY["receipt"])
        page.tab_to("#check")
        page.press("Enter")
        page.wait_for_selector("#verdict.good")
        is_sound(page)
    assert labels(ada) == [3, 5, 9]


def test_by_touch_on_a_phone_upright_and_on_its_side(firefox, ada, opened):
    with firefox.looking(opened.url, **PHONE, scheme="dark", touch=True) as page:
        page.wait_for_selector(READY["offer"])
        is_sound(page)
        page.evaluate("void addEventListener('pointerdown', (event) => (document.body.dataset.by = event.pointerType))")
        page.tap(ACCEPT)
        assert page.evaluate("document.body.dataset.by") == "touch"
        page.tap(SIGN)
        page.tap(START)
        page.wait_for_selector(showing(0))
        is_sound(page)
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")  # all on one screen
        page.tap("#stage", times=2)
        zoomed(page, "scale(3)")
        page.pinch("#stage", 240, 60)
        zoomed(page, "")
        page.pinch("#stage", 60, 120)
        zoomed(page, "scale(2)")
        for what, then in (("#classes button:nth-child(5)", 1), ("#undo", 0), ("#classes button:nth-child(3)", 1)):
            page.tap(what)
            page.wait_for_selector(showing(then))
        page.tap("#instructions-open")
        page.wait_for_selector("#instructions[open] img")
        is_sound(page)
        page.tap("#instructions-close")

        page.size(**ON_ITS_SIDE)
        page.wait_for(f"innerWidth === {ON_ITS_SIDE['width']}")
        is_sound(page)
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        assert page.evaluate("document.querySelector('#stage img').getBoundingClientRect().height > 0.9 * innerHeight")
        page.tap("#flag")
        page.wait_for_selector("#flag[aria-pressed=true]")
        page.tap("#classes button:nth-child(9)")
        page.wait_for_selector(showing(2))
        page.tap("#classes button:nth-child(1)")
        page.tap("#done a.main")
        page.wait_for_selector(READY["review"])
        is_sound(page)
        page.size(**PHONE)
        page.tap("#grid button")
        page.wait_for_selector("#large[open] img")
        is_sound(page)
        page.tap("#large-flag")
        page.wait_for_selector("#large-flag[aria-pressed=true]")
        page.tap("#large-close")
        ada.gets_receipt(ada.offer)
        page.tap("#banner a[href=receipt]")
        page.tap("#check")
        page.wait_for_selector("#verdict.good")
        is_sound(page)
    assert labels(ada) == [2, 8, 0]
    assert sum(action == "flag" for _, action, *_ in decisions(ada.home)) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_enlarged_to_twice_the_size(firefox, ada, opened, scheme):
    """Everything can be read and reached in a window of 1280 × 800 at 200%."""
    base = opened.url.split("/?")[0]
    ada.accepts(ada.offer)
    with firefox.looking(opened.url, scheme=scheme, zoom=2) as page:
        page.wait_for_selector(showing(0))
        assert page.evaluate("[innerWidth, devicePixelRatio]") == [640, 2]
        assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        is_sound(page)
        page.wheel("#stage", -300)
        zoomed(page, "scale(1.8")
        page.click("#classes button:nth-child(10)")
        page.wait_for_selector(showing(1))
        ada.gets_receipt(ada.offer)
        for name in ("offer", "review", "receipt"):
            page.goto(f"{base}/{name}")
            page.wait_for_selector(READY[name])
            is_sound(page)


def test_a_german_firefox_sees_german(firefox, ada, opened):
    words = strings("de")
    with firefox.looking(opened.url, languages="de-DE, de, en") as page:
        page.wait_for_selector(READY["offer"])
        assert page.evaluate("[document.documentElement.lang, document.title]") == ["de", words["offer.page_title"]]
        assert words["offer.if_title"] in page.words("main")
        assert "−4.360 cent" in page.words("main")
        ada.accepts(ada.offer)
        page.goto(opened.url.split("/?")[0] + "/label")
        page.wait_for_selector(showing(0))
        assert words["label.skip"] in page.words("#skip")
        page.press("?")
        page.wait_for_selector("#help[open] dd")
        assert words["label.help_undo"] in page.words("#help")
