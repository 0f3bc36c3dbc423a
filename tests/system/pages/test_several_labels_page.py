"""Several classes of one sample on the page: chosen and confirmed, undone, reviewed, and decided in two tabs."""

from contextlib import closing

import pytest

from helpers.browsers import PHONE, SELECTED, axe, browser, counts, looking, review, showing  # noqa: F401
from helpers.commands import told
from helpers.participants import draw_pictures
from truthfl.page.catalogue import MessageError
from truthfl.page.http import BulkRequest, ConflictError, DecisionRequest, parse_bulk, parse_decision
from truthfl.page.serving import open_page
from truthfl.page.work import Work
from truthfl.samples.label_store import LabelStore
from truthfl.samples.sources import open_samples

CLASSES = ("cat", "dog", "night")


def stored(home, source):
    """What is stored of each sample."""
    with closing(LabelStore(home / "labels.db")) as store:
        states = store.states()
    return [states[sample].label if sample in states else None for sample in source.ids]


@pytest.fixture
def work(tmp_path):
    source = open_samples(draw_pictures(tmp_path / "data", 4))
    with closing(LabelStore(tmp_path / "labels.db")) as store:
        yield Work(tmp_path, source, CLASSES, store, several=True)


def request(work, position, label, number=0, **more):
    return DecisionRequest(work.assignment().edition, f"nonce-{number:04d}", position, "label", label, **more)


def test_the_server_takes_sets_and_tells_them_as_lists(work):
    assert work.decide(request(work, 1, [2, 0]))["label"] == [0, 2]
    assert work.state()["labels"] == [[], [0, 2], [], []]
    assert work.store.states()[work.source.ids[1]].label == "cat|night"
    with pytest.raises(ConflictError) as conflict:
        work.decide(request(work, 1, [1], 1, seen=[0]))
    assert conflict.value.current == [{"position": 1, "label": [0, 2], "skipped": False, "flagged": False}]
    edition = work.assignment().edition
    many = BulkRequest(edition, "nonce-many", [0, 1], [[1], [0, 1, 2]], [[], [0, 2]])
    result = work.decide_together(many)
    assert (result["label"], result["also"][0]["label"]) == ([1], [0, 1, 2])
    undone = work.undo(edition, "nonce-undo")
    assert (undone["label"], undone["also"][0]["label"]) == ([], [0, 2])


@pytest.mark.parametrize("label", [[], [3], [-1], 1, None], ids=str)
def test_no_class_one_that_is_none_and_a_number_alone_are_refused(work, label):
    assert "class" in told(work.decide, request(work, 0, label), kind=MessageError)


def test_requests_have_numbers_and_lists_of_them_and_nothing_else():
    start = b'{"edition": "e", "nonce": "12345678", "position": 0, "action": "label", "label": '
    assert parse_decision(start + b"[1, 2]}").label == [1, 2]
    for wrong in (b'["a"]}', b"[[1]]}", b"[true]}", b'"1"}'):
        with pytest.raises(MessageError):
            parse_decision(start + wrong)
    bulk = b'{"edition": "e", "nonce": "12345678", "positions": [0, 1], "seen": [[], [1]], "label": '
    assert parse_bulk(bulk + b"[[1], [0, 1]]}").label == [[1], [0, 1]]
    for wrong in (b"[[1]]}", b"[[1], 'a']}", b"[[1], [[2]]]}"):
        with pytest.raises(MessageError):
            parse_bulk(bulk + wrong)


def test_an_own_edition_so_that_a_page_with_one_class_each_is_told(work):
    plain = Work(work.home, work.source, CLASSES, work.store)
    assert plain.assignment().edition != work.assignment().edition


def pressed(page, container="#classes"):
    return page.locator(f"{container} [aria-pressed=true]").all_inner_texts()


def test_chosen_by_keys_confirmed_undone_and_reviewed(browser, tmp_path):
    home, source = tmp_path / "home", open_samples(draw_pictures(tmp_path / "data", 3))
    with open_page(home, source, CLASSES, several=True) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        page.keyboard.press("Enter")  # nothing is chosen
        assert page.inner_text("#announcement") == "Choose at least one class first."
        assert page.is_disabled("#confirm")
        for key in "cdn":
            page.keyboard.press(key)
        page.keyboard.press("d")  # taken off again
        assert page.inner_text("#announcement").startswith("dog: taken off.")
        assert pressed(page) == ["c\ncat", "n\nnight"]
        assert stored(home, source) == [None] * 3
        assert axe(page) == []
        page.keyboard.press("ArrowRight")  # what is chosen stays chosen
        page.wait_for_selector(showing(1))
        assert pressed(page) == []
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector(showing(0))
        page.keyboard.press("Enter")
        page.wait_for_selector(showing(1))
        assert stored(home, source) == ["cat|night", None, None]
        page.wait_for_selector("#last:has-text('cat, night')")
        page.keyboard.press("d")
        page.click("#confirm")
        page.wait_for_selector(showing(2))
        page.keyboard.press("Backspace")
        page.wait_for_selector(showing(1))
        assert stored(home, source) == ["cat|night", None, None]
        assert pressed(page) == []
        for key in ("c", "d", "Enter"):
            page.keyboard.press(key)
        page.wait_for_selector(showing(2))

        page.goto(review(opened))
        page.wait_for_selector("#grid button")
        found = {name: int(count) for name, count in counts(page).items()}
        assert found == {"cat": 2, "dog": 1, "night": 1, "Flagged": 0, "Skipped": 0, "Not labeled yet": 1}
        assert page.locator("#grid .note").all_inner_texts() == ["cat, night", "cat, dog"]
        page.focus("#grid button")
        for key in (" ", "Shift+ArrowRight", "n"):  # the second gets "night", too
            page.keyboard.press(key)
        page.wait_for_selector("#announcement:has-text('night: chosen. Picture 2')")
        assert page.locator(SELECTED).count() == 2
        assert stored(home, source) == ["cat|night", "cat|dog|night", None]
        page.keyboard.press("n")  # both have it: it is taken off
        page.wait_for_selector("#announcement:has-text('night: taken off. 2 pictures')")
        assert stored(home, source) == ["cat", "cat|dog", None]
        page.keyboard.press("c")
        page.wait_for_selector("#announcement:has-text('One class must remain')")
        page.keyboard.press("Backspace")
        page.wait_for_selector("#announcement:has-text('Undone: label. 2 pictures')")
        assert stored(home, source) == ["cat|night", "cat|dog|night", None]
        assert axe(page) == []


def test_two_tabs_and_a_telephone_in_german(browser, tmp_path):
    home, source = tmp_path / "home", open_samples(draw_pictures(tmp_path / "data", 3))
    with (
        open_page(home, source, CLASSES, several=True) as opened,
        looking(browser, opened.url, locale="de-DE", color_scheme="dark", **PHONE) as page,
    ):
        page.wait_for_selector(showing(0))
        with closing(LabelStore(home / "labels.db")) as store:
            work = Work(home, source, CLASSES, store, several=True)
            work.decide(request(work, 0, [0, 1]))  # elsewhere
        page.tap("#classes button >> nth=1")
        page.tap("#classes button >> nth=2")
        assert axe(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.watch.expected = "409"
        page.tap("#confirm")
        page.wait_for_selector("#conflict")
        assert "„cat, dog“" in page.inner_text("#conflict-words")
        assert "„dog, night“" in page.inner_text("#conflict-words")
        page.tap("#conflict-take")
        page.wait_for_selector(showing(1))
        assert stored(home, source) == ["dog|night", None, None]
        assert page.inner_text("#several-hint") == "Wählen Sie alles Zutreffende und bestätigen Sie."
