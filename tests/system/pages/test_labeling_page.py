"""The page in a real browser: by keyboard, by touch, killed in the middle; nothing lost, nothing doubled."""

import json
import re
import signal
import sqlite3
from contextlib import ExitStack, closing

from helpers.browsers import (
    DESKTOP,
    DIGITS,
    DONE,
    PHONE,
    at,
    axe,
    axe_by_day_and_night,
    browser,  # noqa: F401
    command,
    count,
    decisions,
    looking,
    press,
    showing,
)
from helpers.participants import Ada, an_offer, draw_pictures
from truthfl.cli.participant.participation import _open_page
from truthfl.federation.participant.node_settings import ASK, Settings
from truthfl.home import participant_folder
from truthfl.ledger.documents import answer_fault
from truthfl.ledger.signing import new_key, write_key
from truthfl.page.serving import open_page
from truthfl.samples.handmade_labels import labels_of
from truthfl.samples.label_store import Decision, LabelStore
from truthfl.samples.sources import open_samples


def digit(position):
    return str(position * 7 % 10)


def test_a_hundred_by_keyboard_through_reloads_and_a_killed_server(browser, tmp_path):
    """Undo, skip, flag, a reload and two kills in the middle: every picture has the label of its key, once."""
    data, home = draw_pictures(tmp_path / "data", 100), tmp_path / "home"
    ids = open_samples(data).ids
    given = {}

    def label(page, key=None, until=None):
        here = at(page)
        given[here] = key or digit(here)
        press(page, given[here], until)

    with command(data, home) as (process, url), looking(browser, url) as page:
        page.wait_for_selector(showing(0))
        for _ in range(20):
            label(page)
        assert count(page) == "20 of 100 labeled"
        wrong = at(page)
        label(page, "9")
        press(page, "Backspace")  # undo goes back to it
        assert at(page) == wrong
        label(page)
        press(page, " ")  # 21 is skipped
        assert count(page) == "21 of 100 labeled · 1 skipped"
        page.keyboard.press("f")
        page.wait_for_selector("#flag[aria-pressed=true]")
        label(page)  # 22, flagged
        for _ in range(2):
            press(page, "ArrowLeft")
        assert at(page) == 21
        press(page, "ArrowRight")
        assert page.get_attribute("#classes button:nth-child(5)", "aria-pressed") == "true"  # 22 · 7 = 154
        label(page, "8")  # another label for 22, and on to the next open one
        assert at(page) == 23
        page.reload()
        page.wait_for_selector(showing(23))
        assert count(page) == "22 of 100 labeled · 1 skipped"
        for _ in range(17):
            label(page)
        page.watch.expected = "net::ERR_"
        process.send_signal(signal.SIGKILL)
        process.wait()
        page.keyboard.press("1")  # into the void
        page.wait_for_selector("#alarm:not([hidden])")
        assert "does not answer" in page.inner_text("#alarm")
        assert at(page) == 40

    with command(data, home) as (process, url), looking(browser, url) as page:
        page.wait_for_selector(showing(40))
        assert count(page) == "39 of 100 labeled · 1 skipped"
        for _ in range(40):
            label(page)
        before = at(page)
        page.watch.expected = "net::ERR_"
        page.keyboard.press(digit(before))
        process.send_signal(signal.SIGKILL)  # with a decision on its way
        process.wait()
        given[before] = digit(before)

    with command(data, home) as (_, url), looking(browser, url) as page:
        page.wait_for_selector("body[data-at]")
        assert at(page) in (80, 81)  # it was written down, or it was not
        while at(page) < 99:
            label(page)
        label(page, until=showing(21))
        assert page.inner_text("#marks") == "skipped before"
        label(page, until=DONE)
        assert count(page) == "100 of 100 labeled"
        assert "100 pictures have a label, 1 of them with a flag" in page.inner_text("#done-words")

    given[22] = "8"
    assert labels_of(home / "labels.db", ids, DIGITS).tolist() == [int(given[position]) for position in range(100)]
    made = decisions(home)
    labeled = [ids.index(sample) for sample, action, *_ in made if action == "label"]
    assert sorted(labeled) == sorted([*range(100), 20, 22])  # one undone, one given anew
    assert [action for _, action, *_ in made if action != "label"] == ["undo", "skip", "flag"]
    with closing(LabelStore(home / "labels.db")) as store:
        assert [ids.index(sample) for sample, one in store.states().items() if one.flagged] == [22]


def test_a_held_key_labels_one_picture(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 10)
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        for _ in range(6):
            page.keyboard.down("3")  # the browser marks all but the first as repeated
        page.keyboard.up("3")
        page.wait_for_selector(showing(1))
        page.wait_for_timeout(200)
        assert count(page) == "1 of 10 labeled"


def test_no_key_counts_before_the_next_picture_shows(browser, tmp_path):
    """What is pressed while a decision is on its way was not meant for the next picture."""
    data = draw_pictures(tmp_path / "data", 10)
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        held = []
        # before it loads: in a loaded page, what is sent next may get by
        page.route("**/api/decisions", lambda route: held.append(route))
        page.goto(opened.url)
        page.wait_for_selector(showing(0))
        page.keyboard.press("3")
        while not held:
            page.wait_for_timeout(10)
        for key in ("4", "5", "Space", "Backspace", "f", "6"):
            page.keyboard.press(key)
        assert at(page) == 0
        for route in held:
            route.continue_()
        page.wait_for_selector(showing(1))
        page.wait_for_timeout(100)
        assert count(page) == "1 of 10 labeled"
        assert len(held) == 1
    assert len(decisions(tmp_path / "home")) == 1


def test_an_answer_that_is_lost_is_asked_for_again_and_written_once(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 5)
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        lost = []

        def lose(route):
            if len(lost) < 2:
                route.fetch()  # the server hears it; the page does not hear the server
                lost.append(route.abort())
            else:
                route.continue_()

        page.watch.expected = "net::ERR_"
        page.route("**/api/decisions", lose)
        page.goto(opened.url)
        page.wait_for_selector(showing(0))
        page.keyboard.press("3")
        page.wait_for_selector(showing(1))
        assert len(lost) == 2
        assert page.is_hidden("#alarm")
    assert [row[1:3] for row in decisions(tmp_path / "home")] == [("label", "3")]


def test_bad_pictures_are_passed_over_and_told(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 4)
    whole = (data / "00001.png").read_bytes()
    (data / "00001.png").write_bytes(whole[:60])
    (data / "00000.png").write_bytes(whole[:61])
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, "about:blank") as page:
        page.watch.expected = "422"
        page.goto(opened.url)
        page.wait_for_selector(showing(2))
        assert page.inner_text("#unreadable summary") == "2 cannot be read and are passed over"
        press(page, "1")
        press(page, "2", DONE)
        assert count(page) == "2 of 2 labeled"


def test_only_as_many_as_the_offer_asks_for_with_its_classes(browser, tmp_path):
    ada = Ada(tmp_path)
    data = draw_pictures(tmp_path / "data", 6)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        page.watch.expected = "409"
        offer = ada.gets_offer(samples=2, classes=("cat", "dog"))
        page.wait_for_selector("#classes button:nth-child(2):last-child")  # it noticed by itself
        ada.accepts(offer)
        press(page, "d")
        press(page, "c", DONE)
        assert count(page) == "2 of 2 labeled"
        assert labels_of(ada.home / "labels.db", open_samples(data).ids[:2], offer.job.classes).tolist() == [1, 0]
        ada.gets_receipt(offer)
        page.wait_for_selector("#banner a[href='receipt']")


def test_labels_that_came_with_the_pictures_are_shown_and_not_asked_for(browser, tmp_path):
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with (
        open_page(tmp_path / "home", source, ("cat", "dog"), existing_labels=[1, 0, 1]) as opened,
        looking(browser, opened.url) as page,
    ):
        page.wait_for_selector(DONE)
        assert count(page) == "3 of 3 labeled"
        page.click("text=Look them over")
        page.click("#groups >> text=dog")
        page.focus("#grid button")
        page.watch.expected = "422"
        page.keyboard.press("c")
        page.wait_for_selector("#alarm >> text=they are changed there")
    assert decisions(tmp_path / "home") == []


def test_the_pace_and_the_time_left_follow_from_the_last_labels(browser, tmp_path):
    """One label in three seconds; a break does not count."""
    source = open_samples(draw_pictures(tmp_path / "data", 105))
    LabelStore(tmp_path / "home" / "labels.db").close()
    with closing(sqlite3.connect(tmp_path / "home" / "labels.db")) as database, database:
        times = ("10:00:00", "10:00:03", "10:30:00", "10:30:03", "10:30:06")
        for sample, at in zip(source.samples, times, strict=False):
            row = (sample.id, f"2026-11-16T{at}.000000+00:00", "page", sample.id, "label", "1")
            database.execute("INSERT INTO decisions (nonce, at, how, sample, action, label) VALUES (?,?,?,?,?,?)", row)
    with open_page(tmp_path / "home", source, DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(5))
        assert page.inner_text("#pace") == "20/min · 5 min left"


def test_texts(browser, tmp_path):
    lines = [{"text": "Very good."}, {"text": "<b>Very bad.</b>"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = open_samples(tmp_path / "t.jsonl")
    with open_page(tmp_path / "home", source, ("praise", "blame")) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("text=Very good.")
        press(page, "p")
        assert page.inner_text("#stage") == "<b>Very bad.</b>"
        assert axe(page) == []
        press(page, "b", DONE)
        page.click("text=Look them over")
        page.wait_for_selector("#grid >> text=Very good.")
    assert labels_of(tmp_path / "home" / "labels.db", source.ids, ("praise", "blame")).tolist() == [0, 1]


def test_rows_of_a_table(browser, tmp_path):
    (tmp_path / "rows.csv").write_text("age,city,label\n31,Paris,no\n45,<b>Bergen</b>,no\n")
    source = open_samples(tmp_path / "rows.csv")
    with open_page(tmp_path / "home", source, ("no", "yes")) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("text=age: 31")
        press(page, "y")
        assert page.inner_text("#stage") == "age: 45\ncity: <b>Bergen</b>"
        assert page.inner_text("#announcement").endswith("Row 2 of 2.")
        press(page, "n", DONE)
        assert "2 rows have a label" in page.inner_text("#done-words")
        page.click("text=Look them over")
        page.click("#grid >> text=age: 45")
        assert page.inner_text("#large-title") == "Row 2"
        assert "icture" not in page.inner_text("body")
        task = {"name": "tables", "document": {}, "digest": "", "revision": 1}
        offer = an_offer(new_key(), new_key(), samples=2, classes=("no", "yes"), image_shape=(3,), task=task)
        participant_folder.put_offer(tmp_path / "home", offer)
        page.goto(opened.url.split("/?")[0] + "/offer")
        page.wait_for_selector("text=Label 2 rows, once, in 2 classes.")
        page.click("text=The small print")
        assert "icture" not in page.inner_text("body")
    assert labels_of(tmp_path / "home" / "labels.db", source.ids, ("no", "yes")).tolist() == [1, 0]


def test_slips_are_mended_in_the_review_by_keyboard_alone(browser, tmp_path):
    data, home = draw_pictures(tmp_path / "data", 6), tmp_path / "home"
    with open_page(home, open_samples(data), DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        for key in "33333":
            press(page, key)
        page.goto(opened.url.split("/?")[0] + "/review")
        page.wait_for_selector("#grid button")
        assert page.inner_text("#groups [aria-pressed=true]").split() == ["3", "5"]
        page.focus("#grid button")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("8")
        page.wait_for_selector("#grid .note >> text=now 8")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector("#large[open] img")
        assert axe(page) == []
        page.keyboard.press("f")
        page.wait_for_selector("#large-flag[aria-pressed=true]")
        page.keyboard.press("7")
        page.wait_for_selector("#large:not([open])", state="attached")
        assert page.evaluate("document.activeElement.dataset.at") == "2"
    labels = [row[2] for row in decisions(home) if row[1] == "label"]
    assert labels == ["3", "3", "3", "3", "3", "8", "7"]


def test_the_buttons_work_by_tab_and_single_keys_can_be_switched_off(browser, tmp_path):
    data = draw_pictures(tmp_path / "data", 5)
    with open_page(tmp_path / "home", open_samples(data), DIGITS) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector(showing(0))
        page.focus("#classes button:nth-child(3)")
        page.keyboard.press("Tab")
        press(page, " ")  # the button under the focus, not a skip
        assert count(page) == "1 of 5 labeled"
        assert "Picture 2 of 5" in page.inner_text("#announcement")
        page.click("#classes button:nth-child(5)")  # with the mouse
        page.wait_for_selector(showing(2))
        press(page, " ")  # skips; the button that was clicked is not pressed again
        page.keyboard.press("?")
        page.wait_for_selector("#help[open]")
        assert axe(page) == []
        page.focus("#single-keys")
        page.keyboard.press(" ")
        page.keyboard.press("Escape")
        page.wait_for_selector("#help:not([open])", state="attached")
        page.focus("#stage")
        for key in ("5", " ", "f", "Backspace"):
            page.keyboard.press(key)
        press(page, "ArrowRight")
        page.focus("#classes button:nth-child(8)")
        press(page, "Enter")
    made = [("label", "3"), ("label", "4"), ("skip", None), ("label", "7")]
    assert [row[1:3] for row in decisions(tmp_path / "home")] == made


def test_offer_accepted_receipt_verified_and_a_tampered_one_refused(browser, tmp_path):
    ada = Ada(tmp_path)
    data = draw_pictures(tmp_path / "data", 4)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.goto(opened.url.split("/?")[0] + "/offer")
        page.wait_for_selector("text=No offer yet")
        assert axe(page) == []
        offer = ada.gets_offer(samples=4)
        page.wait_for_selector("text=An offer to Ada")  # it noticed by itself
        page.wait_for_selector("#bounds >> text=nothing is sure: it can even be negative")
        page.click("text=The small print")
        words = page.inner_text("main")
        for told in ("Label 4 pictures", "310 cent", "104 cent", "about 1 in 720", "−4,360 cent", "38 cent"):
            assert told in words, told
        ways = page.locator("#behaviours li").all_inner_texts()
        assert [re.findall(r"−?\d+ cent", way)[0] for way in ways] == [
            "170 cent", "275 cent", "176 cent", "158 cent", "0 cent",
        ]  # fmt: skip
        assert "What if I cut corners?" in words
        assert "the server tried 32 lies" in words
        known = "1 is known to leave you more than honest work: this contract does not make honesty your best choice."
        assert known in words
        assert "Let a machine label" in ways[1]
        assert "Best found: nothing labeled by hand, the rest by the common model." in ways[1]
        assert "+105 cent ± 8" in ways[1]
        assert "−12 cent ± 8" in ways[3]
        page.fill("#cost-labeling", "1000")
        page.wait_for_selector("text=Honest work costs you 1,020 cent")
        label = page.locator("#plot svg[role=img]").get_attribute("aria-label")
        assert label.startswith("The line is your pay by test loss")
        line = page.locator("#plot polyline.pay").evaluate(
            "one => [one.points[0], one.points[one.points.length - 1]].flatMap(p => [p.x, p.y])"
        )
        assert line[0] < line[2]  # to the right, more loss
        assert line[1] < line[3]  # and down, less pay: heights are counted from the top
        assert offer.job.commitment in page.inner_text("#print")
        assert axe(page) == []
        page.keyboard.press("Tab")
        page.focus("#answer button >> nth=0")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sign[open]")
        assert axe(page) == []
        assert participant_folder.read_answer(ada.home, offer) is None
        page.keyboard.press("Escape")
        page.click("#answer >> text=Accept")
        page.click("#sign-yes")
        page.wait_for_selector("text=You accepted this offer.")
        assert answer_fault(participant_folder.read_answer(ada.home, offer), offer) is None

        page.click("#answer >> text=Start labeling")
        page.wait_for_selector(showing(0))
        page.click("nav >> text=Receipt")
        page.wait_for_selector("text=No receipt yet")
        paper = ada.gets_receipt(offer)
        page.wait_for_selector("text=Receipt for Ada")
        assert "4,319.6556 − 3,821.8232 × 1.1000000 + 120.0000 = 235.65" in page.inner_text("#sum")
        page.click("#check")
        page.wait_for_selector("#verdict.good >> text=Everything holds.")
        assert axe(page) == []

        paper["document"]["settlement"]["pay"] += 1
        participant_folder.put_receipt(ada.home, paper, offer.job.name)
        page.wait_for_selector("text=237 cent")
        page.click("#check")
        page.wait_for_selector("#verdict.bad")
        assert "its signature is not of the operator’s key, or something in it was changed" in page.inner_text(
            "#verdict"
        )
        assert axe(page) == []


def test_declining_is_signed_too(browser, tmp_path):
    ada = Ada(tmp_path)
    offer = ada.gets_offer()
    data = draw_pictures(tmp_path / "data", 2)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.click("#answer >> text=Decline")
        page.click("#sign-yes")
        page.wait_for_selector("text=You declined this offer.")
    paper = participant_folder.read_answer(ada.home, offer)
    assert paper["document"]["kind"] == "refusal"
    assert answer_fault(paper, offer) is None


def test_the_whole_flow_on_a_phone_by_touch(browser, tmp_path):
    ada = Ada(tmp_path)
    write_key(ada.key, ada.home / "key")
    offer = ada.gets_offer(samples=6)
    data = draw_pictures(tmp_path / "data", 6)

    def fits(page):
        assert page.evaluate("document.documentElement.scrollWidth <= 390")
        small = "[...document.querySelectorAll('button, summary, nav a, .main')].filter((one) => one.checkVisibility())"
        assert page.evaluate(f"{small}.every((one) => one.getBoundingClientRect().height >= 24)")
        assert axe(page) == []

    with command(data, ada.home) as (_, url), looking(browser, url, **PHONE) as page:
        page.wait_for_selector("text=An offer to Ada")
        fits(page)
        page.tap("#answer >> text=Accept")
        page.tap("#sign-yes")
        page.tap("#answer >> text=Start labeling")
        page.wait_for_selector(showing(0))
        fits(page)
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")  # all on one screen

        def tap(what, until):
            page.tap(what)
            page.wait_for_selector(showing(until))

        tap("#classes button:nth-child(4)", 1)
        tap("#classes button:nth-child(5)", 2)
        tap("#undo", 1)
        tap("#classes button:nth-child(6)", 2)
        page.tap("#flag")
        page.wait_for_selector("#flag[aria-pressed=true]")
        tap("#skip", 3)
        tap("#back", 2)
        tap("#forward", 3)
        tap("#classes button:nth-child(1)", 4)
        tap("#classes button:nth-child(2)", 5)
        tap("#classes button:nth-child(3)", 2)
        page.tap("#classes button:nth-child(10)")
        page.wait_for_selector(DONE)
        fits(page)
        page.tap("text=Look them over")
        page.wait_for_selector("#grid button")
        fits(page)
        page.tap("#groups >> text=Flagged")
        page.tap("#grid button >> nth=0")
        page.wait_for_selector("#large[open] img")
        page.tap("#large-classes button:nth-child(8)")
        page.wait_for_selector("#large:not([open])", state="attached")
        ada.gets_receipt(offer)
        page.tap("#banner a")
        page.wait_for_selector("text=Receipt for Ada")
        page.tap("#check")
        page.wait_for_selector("#verdict.good")
        fits(page)
    assert labels_of(ada.home / "labels.db", open_samples(data).ids, DIGITS).tolist() == [3, 5, 7, 0, 1, 2]


def test_contrast_and_labels_on_a_wide_screen(browser, tmp_path):
    ada = Ada(tmp_path)
    offer = ada.gets_offer(samples=3)
    data = draw_pictures(tmp_path / "data", 3)
    (data / "broken.png").write_bytes(b"no")
    with (
        open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened,
        looking(browser, opened.url, **DESKTOP) as page,
    ):
        base = opened.url.split("/?")[0]
        for name, ready in (("offer", "#behaviours li"), ("label", "#stage img"), ("review", "#groups button")):
            page.goto(f"{base}/{name}")
            page.wait_for_selector(ready)
            assert axe_by_day_and_night(page) == [], name
        ada.accepts(offer)
        ada.gets_receipt(offer, loss=1.5)
        page.goto(f"{base}/receipt")
        page.wait_for_selector("text=Why the amount is below zero")
        assert axe_by_day_and_night(page) == []


def test_a_receipt_without_accuracy_is_shown(browser, tmp_path):
    """A paid Flower app tests a loss alone."""
    ada = Ada(tmp_path)
    offer = ada.gets_offer(samples=3)
    ada.accepts(offer)
    ada.gets_receipt(offer, accuracy=None)
    data = draw_pictures(tmp_path / "data", 3)
    with (
        open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened,
        looking(browser, opened.url) as page,
    ):
        page.goto(f"{opened.url.split('/?')[0]}/receipt")
        page.wait_for_selector("text=rounds delivered")
        facts = page.inner_text("#facts")
        assert "loss" not in facts + page.inner_text("#lead")
        assert "right in" not in facts + page.inner_text("#lead")
        assert "NaN" not in facts


def test_before_an_offer_no_classes_are_asked_for_that_are_not_the_jobs(browser, tmp_path):
    """As `truthfl join` opens the page: nothing can be labeled until the offer comes, and then with its classes."""
    ada = Ada(tmp_path)
    data = draw_pictures(tmp_path / "data", 3)
    write_key(ada.key, tmp_path / "own-key")
    settings = Settings("Ada", str(data), str(ada.home), str(tmp_path / "own-key"), ASK, 1.0, 0.01)
    with ExitStack() as stack, looking(browser, "about:blank") as page:
        opened = _open_page(stack, settings, False, None)
        page.goto(opened.url)
        page.wait_for_selector("#no-classes:not([hidden])")
        assert "come with the job’s offer" in page.inner_text("#no-classes")
        assert page.is_hidden("#controls")
        assert axe(page) == []
        for key in ("1", "ArrowRight", "ArrowLeft", " ", "Enter", "?"):
            page.keyboard.press(key)
        page.watch.expected = "409"
        page.goto(opened.url.rpartition("/")[0] + "/review")
        page.wait_for_selector("#groups button")
        page.goto(opened.url.rpartition("/")[0] + "/label")
        page.wait_for_selector("#no-classes:not([hidden])")
        ada.accepts(ada.gets_offer(samples=2, classes=("cat", "dog")))
        page.wait_for_selector(showing(0))
        assert page.is_hidden("#no-classes")
        press(page, "d")
    assert [row[1:3] for row in decisions(ada.home)] == [("label", "dog")]


def test_warnings_go_with_their_cause(browser, tmp_path):
    """Labels of other classes that were replaced, a file that is there again."""
    data, home = draw_pictures(tmp_path / "data", 4), tmp_path / "home"
    ids = open_samples(data).ids
    with closing(LabelStore(home / "labels.db")) as store:
        for number, (sample, name) in enumerate(((ids[0], "fox"), (ids[1], "elk"))):
            store.decide(Decision(f"nonce-{number}", sample, "label", name))
    gone = (data / "00003.png").read_bytes()
    with open_page(home, open_samples(data), ("cat", "dog")) as opened, looking(browser, "about:blank") as page:
        page.goto(opened.url)
        page.wait_for_selector(showing(0))
        assert "fox, elk" in page.inner_text("#other-classes")
        press(page, "c")
        assert "elk" in page.inner_text("#other-classes")
        assert "fox" not in page.inner_text("#other-classes")
        press(page, " ", showing(2))
        assert page.is_hidden("#other-classes")
        press(page, "Backspace", showing(1))  # the skip is taken back, and the label is there again
        assert "elk" in page.inner_text("#other-classes")
        press(page, "d")
        assert page.is_hidden("#other-classes")
        (data / "00003.png").unlink()
        page.watch.expected = "422"
        page.reload()
        page.wait_for_selector(showing(2))
        press(page, "c", DONE)
        assert page.inner_text("#unreadable summary") == "1 cannot be read and is passed over"
        (data / "00003.png").write_bytes(gone)
        page.reload()
        page.wait_for_selector(showing(3))
        assert page.is_hidden("#unreadable")
