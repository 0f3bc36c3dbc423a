"""The labeling page in a real browser: room for the picture, zoom by key, wheel and fingers, the last label, searches
among many classes, long texts."""

import json

import numpy as np
import pytest
from PIL import Image

from helpers.browsers import DESKTOP, DIGITS, PHONE, at, axe, browser, decisions, looking, press, showing  # noqa: F401
from helpers.participants import draw_pictures
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

ANIMALS = (
    "cat",
    "dog",
    "guinea pig",
    "red squirrel",
    "hedgehog",
    "badger",
    "fox",
    "roe deer",
    "wild boar",
    "none here",
)
SCREENS = {
    "wide": (DESKTOP, (920, 610)),
    "portrait": (PHONE, (360, 240)),
    "landscape": (PHONE | {"viewport": {"width": 844, "height": 390}}, (510, 340)),
    "twice as large": ({"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}, (350, 230)),
}
PLACE = """() => { const box = document.querySelector('#stage img').getBoundingClientRect();
    return [box.left, box.top, box.width, box.height] }"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of 1200 × 800, all different."""
    folder = tmp_path_factory.mktemp("photos")
    rows, columns = np.mgrid[:800, :1200]
    for number in range(6):
        colours = [columns * 255 // 1200, rows * 255 // 800, ((columns // 40 + rows // 40 + number) % 2) * 200]
        Image.fromarray(np.stack(colours, -1).astype(np.uint8)).save(folder / f"{number}.jpg")
    return folder


def seen_at(page, x, y):
    """Which part of the picture is at this place of the window, as shares of its width and height."""
    left, top, width, height = page.evaluate(PLACE)
    return (x - left) / width, (y - top) / height


@pytest.mark.parametrize("screen", SCREENS)
def test_the_picture_takes_the_room_there_is_and_nothing_scrolls(browser, tmp_path, photos, screen):
    how, (width, height) = SCREENS[screen]
    scheme = "dark" if screen in ("portrait", "twice as large") else "light"
    with (
        open_page(tmp_path / "home", open_samples(photos), ANIMALS) as opened,
        looking(browser, opened.url, **how, color_scheme=scheme) as page,
    ):
        page.wait_for_selector(showing(0))
        press(page, "d")
        page.wait_for_selector("#last canvas")
        _, _, shown_width, shown_height = page.evaluate(PLACE)
        assert shown_width >= width
        assert shown_height >= height
        assert shown_width / shown_height == pytest.approx(1.5, abs=0.01)
        page_size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        assert page.evaluate(f"() => {page_size}") == list(page.viewport_size.values())
        outside = """() => [...document.querySelectorAll('main button')].filter((one) => {
            if (!one.checkVisibility()) return false;
            const box = one.getBoundingClientRect();
            const inside = document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2).includes(one);
            return !inside || box.height < 24 || box.bottom > innerHeight || box.right > innerWidth
            }).map((one) => one.id)"""
        assert page.evaluate(outside) == []
        assert page.evaluate("document.querySelectorAll('#classes .swatch').length") == len(ANIMALS)
        page.wait_for_selector("#last >> text=Last: dog")
        assert axe(page) == []


def test_zoom_by_key_wheel_and_double_click_begins_anew_with_each_picture(browser, tmp_path, photos):
    with open_page(tmp_path / "home", open_samples(photos), ANIMALS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        whole = page.evaluate(PLACE)
        page.keyboard.press("Shift+ArrowRight")  # moves the picture, never to the next one
        assert (at(page), page.evaluate(PLACE)) == (0, whole)
        page.keyboard.press("+")
        page.keyboard.press("+")
        assert page.evaluate(PLACE)[2] == pytest.approx(whole[2] * 1.5**2)
        before = page.evaluate(PLACE)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        after = page.evaluate(PLACE)
        assert after[0] < before[0]
        assert after[1] < before[1]
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        assert page.evaluate(PLACE)[0] == pytest.approx(
            page.evaluate("document.querySelector('#stage').offsetLeft"), abs=1
        )
        page.keyboard.press("-")
        page.keyboard.press("0")
        assert page.evaluate(PLACE) == whole
        page.mouse.move(300, 250)
        point = seen_at(page, 300, 250)
        page.mouse.wheel(0, -600)
        page.wait_for_selector("#stage.zoomed")
        assert page.evaluate(PLACE)[2] > 2 * whole[2]
        assert seen_at(page, 300, 250) == pytest.approx(point, abs=0.002)
        page.mouse.down()
        page.mouse.move(340, 270)
        page.mouse.up()
        assert seen_at(page, 340, 270) == pytest.approx(point, abs=0.002)  # dragged along
        press(page, "c")
        assert page.evaluate(PLACE) == whole
        page.mouse.dblclick(400, 300)
        assert page.evaluate(PLACE)[2] == pytest.approx(3 * whole[2])
        page.keyboard.press("Escape")
        assert page.evaluate(PLACE) == whole
        press(page, "ArrowLeft")
        assert at(page) == 0
        page.focus("#zoom-in")
        page.keyboard.press("Enter")
        assert page.evaluate(PLACE)[2] > whole[2]
    assert [row[1:3] for row in decisions(tmp_path / "home")] == [("label", "cat")]


def test_small_pictures_are_crisp_and_a_digit_is_a_label_rather_than_zoom(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 4)
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#stage img.crisp")
        assert page.evaluate("getComputedStyle(document.querySelector('#stage img')).imageRendering") == "pixelated"
        page.keyboard.press("+")
        press(page, "0")
        page.wait_for_selector("#last >> text=Last: 0")
        press(page, " ")
        page.wait_for_selector("#last >> text=Last: skipped")
        page.keyboard.press("f")
        page.wait_for_selector("#last >> text=Last: flagged")
        page.click("#undo")
        page.wait_for_selector("#last >> text=Last: skipped")
        page.click("#undo")
        page.wait_for_selector(showing(1))
        page.keyboard.press("Backspace")
        page.wait_for_selector(showing(0))
        page.wait_for_selector("#last:empty", state="attached")
    assert [row[1] for row in decisions(tmp_path / "home")] == ["label", "skip", "flag", "undo", "undo", "undo"]


def test_two_fingers_and_a_double_tap_zoom_on_a_phone(browser, tmp_path, photos):
    with (
        open_page(tmp_path / "home", open_samples(photos), ANIMALS) as opened,
        looking(browser, opened.url, **PHONE) as page,
    ):
        page.wait_for_selector(showing(0))
        whole = page.evaluate(PLACE)
        middle = whole[1] + whole[3] / 2
        fingers = page.context.new_cdp_session(page)

        def touch(kind, *points):
            touched = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

        touch("touchStart", (150, middle))
        touch("touchStart", (150, middle), (230, middle))
        for step in range(1, 9):
            touch("touchMove", (150 - 5 * step, middle), (230 + 5 * step, middle))
        touch("touchEnd")
        assert page.evaluate(PLACE)[2] == pytest.approx(2 * whole[2], rel=0.1)
        held = seen_at(page, 190, middle)
        touch("touchStart", (190, middle))
        touch("touchMove", (150, middle))
        touch("touchEnd")
        assert seen_at(page, 150, middle) == pytest.approx(held, abs=0.01)
        page.tap("#classes button >> nth=1")
        page.wait_for_selector(showing(1))
        assert page.evaluate(PLACE) == whole
        for _ in range(2):
            page.touchscreen.tap(100, middle)
        page.wait_for_selector("#stage.zoomed")
        assert page.evaluate(PLACE)[2] == pytest.approx(3 * whole[2])
        for _ in range(2):
            page.touchscreen.tap(100, middle)
        page.wait_for_selector("#stage:not(.zoomed)")


def test_forty_classes_are_found_by_typing(browser, tmp_path):
    classes = tuple(f"{kind} {number}" for kind in ("pont", "Écluse", "barrage", "Straße") for number in range(10))
    data = draw_pictures(tmp_path / "data", 8)
    field = "#classes input"
    with open_page(tmp_path / "home", open_samples(data), classes) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        assert axe(page) == []

        def enter(*keys, until):
            for key in keys:
                page.keyboard.press(key)
            page.wait_for_selector(showing(until))
            page.wait_for_selector(f"{field}:not(:focus)")

        enter(*"eclu", "Enter", until=1)  # without the accent
        enter(*"strasse", "ArrowDown", "ArrowDown", "ArrowUp", "Enter", until=2)
        page.keyboard.press("/")
        assert page.input_value(field) == ""
        for key in "f9":  # a letter that is a tool elsewhere
            page.keyboard.press(key)
        page.wait_for_selector("text=No class has this in its name.")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        assert (at(page), page.input_value(field)) == (2, "")
        for key in "pont 3":
            page.keyboard.press(key)
        active = page.get_attribute(field, "aria-activedescendant")
        assert page.inner_text(f"#{active}[aria-selected=true]") == "pont 3"
        assert axe(page) == []
        enter("Enter", until=3)
        page.keyboard.press("Backspace")  # the field has no focus: undo
        page.wait_for_selector(showing(2))
        enter(" ", until=3)
        page.click("#classes li >> text=barrage 9")
        page.wait_for_selector(showing(4))
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("#marks >> text=labeled barrage 9")
    made = [row[2] for row in decisions(tmp_path / "home") if row[1] == "label"]
    assert made == ["Écluse 0", "Straße 1", "pont 3", "barrage 9"]
    with (
        open_page(tmp_path / "phone", open_samples(data), classes) as opened,
        looking(browser, opened.url, **PHONE) as page,
    ):
        page.wait_for_selector(showing(0))
        page.tap(field)
        page.keyboard.type("bar")
        page.tap("#classes li >> nth=2")
        page.wait_for_selector(showing(1))
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        assert axe(page) == []


def test_a_long_text_scrolls_by_key_and_keeps_its_shortcuts(browser, tmp_path):
    lines = [{"text": f"Sentence {number}. " * 400} for number in range(3)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with (
        open_page(tmp_path / "home", open_samples(tmp_path / "t.jsonl"), ("praise", "blame")) as opened,
        looking(browser, opened.url) as page,
    ):
        page.wait_for_selector(showing(0))
        top = "document.querySelector('#stage .text').scrollTop"
        tops = []
        for key in ("ArrowDown", "PageDown", "ArrowUp", "End", "PageUp", "Home"):
            page.keyboard.press(key)
            tops.append(page.evaluate(top))
        assert 0 < tops[0] < tops[2] < tops[1] < tops[4] < tops[3]
        assert tops[5] == 0
        page.keyboard.press("End")
        press(page, "b")
        assert page.evaluate(top) == 0
        page.wait_for_selector("#last >> text=Last: blame")
        page.keyboard.press("PageDown")
        press(page, "ArrowLeft")
        assert at(page) == 0
        assert axe(page) == []
