"""The review page in a real browser: one label for many, undo, conflicts, what the participant's own model doubts."""

import re
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from helpers.auditions import AuditionedAda
from helpers.browsers import DESKTOP, DIGITS, PHONE, SELECTED, axe, browser, counts, decisions, looking, review, showing  # noqa: F401
from helpers.participants import draw_pictures
from truthfl.federation.participant.node_settings import Settings, participant_of, samples_to_show, solo_opinion
from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.second_opinion import cross_probabilities
from truthfl.learning.solo import recipe_of, train_alone
from truthfl.ledger.signing import write_key
from truthfl.page.serving import open_page
from truthfl.samples.handmade_labels import labels_of, quick_opinion
from truthfl.samples.label_store import Decision, LabelStore
from truthfl.samples.sources import open_samples


def label_all(home, source, labels):
    with closing(LabelStore(home / "labels.db")) as store:
        for number, label in enumerate(labels):
            store.decide(Decision(f"nonce-{number:010d}", source.ids[number], "label", str(label)))


def labels(home, source):
    return labels_of(home / "labels.db", source.ids, DIGITS).tolist()


def positions(page, what="#grid button"):
    return page.eval_on_selector_all(what, "all => all.map((one) => Number(one.dataset.at))")


def test_many_get_one_label_by_keyboard_alone_and_one_undo_takes_it_back(browser, tmp_path):
    home, source = tmp_path / "home", open_samples(draw_pictures(tmp_path / "data", 12))
    label_all(home, source, [3] * 10)
    with open_page(home, source, DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(10))
        page.goto(review(opened))
        page.focus("#grid button")
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        for _ in range(2):
            page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        assert positions(page, SELECTED) == [1, 2, 3, 5]
        assert page.inner_text("#selected-count") == "4 selected"
        assert axe(page) == []
        page.keyboard.press("7")
        page.wait_for_selector("#announcement >> text=4 pictures labeled 7.")
        assert page.locator("#grid .note").all_inner_texts() == ["now 7"] * 4
        assert page.is_hidden("#selection")
        assert labels_of(home / "labels.db", source.ids[:10], DIGITS).tolist() == [3, 7, 7, 7, 3, 7, 3, 3, 3, 3]
        page.keyboard.press("Backspace")  # one step
        page.wait_for_selector("#grid .note", state="detached")
        assert "4 pictures" in page.inner_text("#announcement")
        page.keyboard.press("Control+a")
        assert page.inner_text("#selected-count") == "10 selected"
        page.keyboard.press("Escape")
        page.keyboard.press("8")  # the one with the focus alone
        page.wait_for_selector("#announcement >> text=Labeled 8.")
        page.click("#undo")
        page.wait_for_selector("#announcement >> text=Undone: label. Picture 6")
        page.click("#groups >> text=Not labeled yet")
        assert positions(page) == [10, 11]
        page.focus("#grid button")
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("4")
        page.wait_for_selector("#grid .note >> text=4")
    assert labels(home, source) == [3] * 10 + [4] * 2
    assert [row[1] for row in decisions(home)].count("undo") == 5


@pytest.mark.parametrize(("how", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_a_selection_by_pointer_and_a_flag_that_shows_on_dark_pictures(browser, tmp_path, how, scheme):
    home, source = tmp_path / "home", open_samples(draw_pictures(tmp_path / "data", 9))
    label_all(home, source, [5] * 9)
    with closing(LabelStore(home / "labels.db")) as store:
        store.decide(Decision("nonce-of-the-flag", source.ids[8], "flag"))
    with open_page(home, source, DIGITS) as opened, looking(browser, opened.url, **how, color_scheme=scheme) as page:
        page.wait_for_selector("#done:not([hidden])")
        page.goto(review(opened))
        views = page.locator("#grid button")
        style = "one => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"
        assert page.locator("#grid .flag").evaluate(style) == ["rgb(255, 210, 77)", "rgb(27, 31, 36)"]
        if how is DESKTOP:
            views.nth(1).click(modifiers=["Control"])
            views.nth(4).click(modifiers=["Shift"])
            views.nth(2).click(modifiers=["Control"])
        else:
            page.tap("#select")
            for place in (1, 3, 4, 6, 6):
                views.nth(place).tap()
        assert positions(page, SELECTED) == [1, 3, 4]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert axe(page) == []
        page.click("#selection-classes button >> nth=2")
        page.wait_for_selector("#announcement >> text=3 pictures labeled 2.")
        views.nth(0).click()  # nothing is selected: it is shown large
        page.wait_for_selector("#large[open] img")
        page.keyboard.press("+")
        page.wait_for_selector("#large-stage.zoomed")
        page.keyboard.press("Escape")
        assert page.is_visible("#large")
        assert axe(page) == []
    assert labels(home, source) == [5, 2, 5, 2, 2, 5, 5, 5, 5]


def test_what_another_window_changed_meanwhile_is_not_replaced_by_a_selection(browser, tmp_path):
    home, source = tmp_path / "home", open_samples(draw_pictures(tmp_path / "data", 4))
    label_all(home, source, [1] * 4)
    with open_page(home, source, DIGITS) as opened, looking(browser, opened.url) as page:
        page.watch.expected = "409"
        page.wait_for_selector("#done:not([hidden])")
        page.goto(review(opened))
        page.focus("#grid button")
        with closing(LabelStore(home / "labels.db")) as store:
            store.decide(Decision("nonce-elsewhere", source.ids[2], "label", "9"))
        page.keyboard.press("Control+a")
        page.keyboard.press("6")
        page.wait_for_selector("#alarm >> text=Yours was not saved")
        page.wait_for_selector("#grid [data-at='2'] .note >> text=now 9")
        assert labels(home, source) == [1, 1, 9, 1]
        assert positions(page, SELECTED) == [0, 1, 2, 3]
        page.keyboard.press("6")  # knowing it
        page.wait_for_selector("#announcement >> text=4 pictures labeled 6.")
        assert page.is_hidden("#alarm")
    assert labels(home, source) == [6] * 4


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A folder of 160 real digits, and labels of which one in twenty is wrong."""
    folder, mnist = tmp_path_factory.mktemp("digits"), bundled_mnist()
    for number in range(160):
        Image.fromarray(mnist.images[number, ..., 0]).save(folder / f"{number:04d}.png")
    given = mnist.labels[:160].tolist()
    for position in range(7, 160, 20):
        given[position] = (given[position] + 3) % 10
    return folder, given


def expected_doubts(probabilities, given):
    """(position, label, prediction) of what a model doubts, in order, by plain loops."""
    doubted = []
    for position, (row, label) in enumerate(zip(probabilities.tolist(), given, strict=True)):
        predicted = row.index(max(row))
        if predicted != label:
            doubted.append((row[label], position, label, predicted))
    return [one[1:] for one in sorted(doubted)][: len(given) // 10]


def doubts_shown(page):
    """What the page shows of them: position, label and prediction."""
    return [
        (int(view.get_attribute("data-at")), *map(int, re.findall(r"\d", view.locator(".note").inner_text())))
        for view in page.locator("#grid button").all()
    ]


def test_labels_that_a_quick_model_doubts_are_listed_once_there_are_enough(browser, tmp_path, digits):
    data, given = digits
    home, source = tmp_path / "home", open_samples(data)
    label_all(home, source, given[:40])
    with open_page(home, source, DIGITS, make_opinion=lambda: quick_opinion(source)) as opened:
        with looking(browser, opened.url) as page:
            page.wait_for_selector(showing(40))
            with page.expect_response("**/api/second_look") as response:
                page.goto(review(opened))
            assert response.value.json() == {"doubts": None, "handed_in": False}
        label_all(home, source, given)
        with looking(browser, opened.url) as page:
            page.wait_for_selector("#done:not([hidden])")
            page.goto(review(opened))
            page.click("#groups >> text=Worth a second look")
            small = np.stack([source.pixels(position, (28, 28, 3)) for position in range(160)])
            expected = expected_doubts(cross_probabilities(small, np.array(given), DIGITS), given)
            assert doubts_shown(page) == expected
            assert "on this computer" in page.inner_text("#about")
            assert "handed in" not in page.inner_text("#about")
            page.click("#grid button >> nth=0")
            _, label, predicted = expected[0]
            page.wait_for_selector(f"#large-about >> text=You said {label}; your model would have said {predicted}.")
            page.keyboard.press(str(predicted))
            page.wait_for_selector("#large:not([open])", state="attached")
            assert counts(page)["Worth a second look"] == str(len(expected) - 1)
            assert axe(page) == []


def test_the_solo_model_is_asked_once_there_is_one_and_it_is_said_what_is_handed_in(browser, tmp_path, digits):
    data, given = digits
    ada = AuditionedAda(tmp_path)
    write_key(ada.key, ada.home / "key")
    offer = ada.gets_offer(samples=160)
    ada.accepts(offer)
    settings = Settings("Ada", str(data), str(ada.home), str(ada.home / "key"))
    source = samples_to_show(settings)[0]
    own_labels = [given[int(sample.name.split(".")[0])] for sample in source.samples]
    label_all(ada.home, source, own_labels)
    participant_of(settings).commit_audition(offer.hash)
    images = np.stack([source.pixels(position) for position in range(160)])
    recipe = recipe_of(offer.job.recipe)
    model = SoftmaxRegression(784, 10, recipe.penalty)
    scores = model.scores(train_alone(model, images, np.array(own_labels), recipe, offer.job.seed), images)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    with (
        open_page(ada.home, source, DIGITS, ada.key, make_opinion=lambda: solo_opinion(settings)) as opened,
        looking(browser, opened.url) as page,
    ):
        page.goto(review(opened))
        page.click("#groups >> text=Worth a second look")
        assert doubts_shown(page) == expected_doubts(odds / odds.sum(axis=1, keepdims=True), own_labels)
        assert "is handed in already" in page.inner_text("#about")
        assert axe(page) == []
