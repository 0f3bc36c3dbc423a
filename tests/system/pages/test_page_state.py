"""The page while a job runs, in a real browser: the time left, what is not reached, what goes on, what is not paid."""

import os
import signal

from helpers.auditions import AuditionedAda
from helpers.browsers import (
    DIGITS,
    PHONE,
    address_in,
    axe,
    axe_by_day_and_night,
    browser,  # noqa: F401
    command,
    looking,
    showing,
)
from helpers.commands import begun, free_port, within
from helpers.participants import Ada, draw_pictures
from helpers.served_federations import ended_whatever_happens
from helpers.small_jobs import small_job_file
from truthfl.home import participant_folder
from truthfl.home.node_state import ConnectionFile, note_stage
from truthfl.home.record import RoundRecord, open_rounds
from truthfl.ledger.signing import new_key, write_key
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

SEEN_WITHIN = 3.0  # seconds
BY_ITSELF = "text=appears here by itself"


def clock(*words):
    """The clock when it says all of this."""
    return "#clock" + "".join(f":has-text('{one}')" for one in words)


def test_a_page_whose_server_is_gone_says_so_in_three_seconds_also_while_idle(browser, tmp_path):
    """Stopped and killed, on the offer, the receipt, the review and while labeling."""
    ada = Ada(tmp_path)
    data = draw_pictures(tmp_path / "data", 3)
    with ConnectionFile(ada.home) as node, command(data, ada.home, "--classes", "0,1") as (process, url):
        node.note(True)
        with looking(browser, url) as page:
            page.watch.expected = "net::ERR_"
            pages = [page, *(page.context.new_page() for _ in range(3))]
            for one, name in zip(pages, ("offer", "receipt", "review", "label"), strict=True):
                one.goto(f"{url.split('/?')[0]}/{name}")
            page.bring_to_front()
            for one in pages[:2]:
                one.wait_for_selector(BY_ITSELF)
            os.kill(process.pid, signal.SIGSTOP)
            with within(SEEN_WITHIN):
                page.wait_for_selector("#lost >> text=truthfl has not answered since")
            assert not page.locator(BY_ITSELF).is_visible()
            os.kill(process.pid, signal.SIGCONT)
            page.wait_for_selector("#lost", state="hidden")
            page.wait_for_selector(BY_ITSELF)
            process.kill()
            with within(SEEN_WITHIN):
                for one in pages:
                    one.wait_for_selector("#lost >> text=If it was stopped, start it again")
            assert not pages[1].locator(BY_ITSELF).is_visible()
            assert axe(page) == []


def test_a_node_without_its_operators_server_says_so(browser, tmp_path):
    """A real node that waits for a server that is not there; a page alone does not promise that something comes."""
    draw_pictures(tmp_path / "data", 3)
    write_key(new_key(), tmp_path / "ada.key", "Ada")
    words = f"join --server 127.0.0.1:{free_port()} --name Ada --key ada.key --data data --home home --no-browser"
    with ended_whatever_happens({"Ada": begun(*words.split(), log=tmp_path / "Ada.log", cwd=tmp_path)}):
        url = address_in(tmp_path / "Ada.log")
        with looking(browser, url) as page:
            page.goto(f"{url.split('/?')[0]}/offer")
            page.wait_for_selector("#lost >> text=The operator’s server cannot be reached since")
            assert not page.locator(BY_ITSELF).is_visible()
            assert axe(page) == []
    with (
        open_page(tmp_path / "other", open_samples(tmp_path / "data"), DIGITS) as opened,
        looking(browser, f"{opened.url}", **PHONE) as page,
    ):
        page.goto(f"{opened.url.split('/?')[0]}/receipt")
        page.wait_for_selector("text=Receipts come to truthfl join.")
        assert not page.locator(BY_ITSELF).is_visible()


def test_an_operators_server_that_hangs_is_seen_in_three_seconds(browser, tmp_path):
    """Stopped without an end: its connections stay open, and nothing but its silence tells."""
    draw_pictures(tmp_path / "data", 12)  # at least as many as the job asks for
    write_key(new_key(), tmp_path / "ada.key", "Ada")
    port = free_port()
    server = f"serve {small_job_file(tmp_path)} --port {port} --yes --no-page"
    words = f"join --server 127.0.0.1:{port} --name Ada --key ada.key --data data --home home --no-browser"
    started = {
        "server": begun(*server.split(), log=tmp_path / "server.log", cwd=tmp_path),
        "Ada": begun(*words.split(), log=tmp_path / "Ada.log", cwd=tmp_path),
    }
    with ended_whatever_happens(started), looking(browser, address_in(tmp_path / "Ada.log")) as page:
        page.wait_for_selector("#no-classes:not([hidden])")
        while "connected" not in (tmp_path / "Ada.log").read_text():
            page.wait_for_timeout(20)
        page.wait_for_selector("body:not(.lost):not(.alone)")
        try:
            for _ in range(2):
                os.kill(started["server"].pid, signal.SIGSTOP)
                with within(SEEN_WITHIN):
                    page.wait_for_selector("#lost >> text=The operator’s server cannot be reached since")
                os.kill(started["server"].pid, signal.SIGCONT)
                page.wait_for_selector("#lost", state="hidden")
        finally:
            os.kill(started["server"].pid, signal.SIGCONT)


def test_the_time_left_is_on_every_page_from_acceptance_to_the_receipt(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer(samples=3, label_seconds=36000.0, terms={"labels": 3.0})
    data = draw_pictures(tmp_path / "data", 3)
    with (
        ConnectionFile(ada.home) as node,
        open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened,
        looking(browser, opened.url, **PHONE) as page,
    ):
        node.note(True)
        base = opened.url.split("/?")[0]
        page.wait_for_selector("#behaviours li")
        assert page.locator("#clock:visible").count() == 0
        ada.accepts(offer)
        page.wait_for_selector(clock("10 hours for the labels, once everybody has answered.", "no pay"))
        note_stage(ada.home, offer.hash, "labeling", 3700.0)
        page.wait_for_selector(clock("1 hour 1 minute left to label.", "no pay") + ":not(.soon)")
        note_stage(ada.home, offer.hash, "labeling", 3601.0)
        page.wait_for_selector("#clock.soon")  # the last hour, and a tenth of ten hours
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert axe_by_day_and_night(page) == []
        for name in ("receipt", "review", "label"):
            page.goto(f"{base}/{name}")
            page.wait_for_selector("#clock.soon >> text=minutes")
        for key in "012":
            page.wait_for_selector(showing(int(key)))
            page.keyboard.press(key)
        page.wait_for_selector("#done li[aria-current=step] >> text=You label")
        assert "Worth about 130 cent so far" in page.inner_text("#worth")
        participant_folder.put_news(ada.home, "The operator resumed the job.", over=False, about="resumed")
        page.wait_for_selector("#banner >> text=resumed")
        note_stage(ada.home, offer.hash, "labeled", 100.0)
        page.wait_for_selector("#done li[aria-current=step] >> text=The others label")
        note_stage(ada.home, offer.hash, "auditioning", 100.0)
        page.wait_for_selector(clock("trains alone", "At most 1 minute"))
        with open_rounds(ada.home, offer.hash) as rounds:
            rounds.append(RoundRecord(1, 1, "0" * 64, "1" * 64))
        page.wait_for_selector("#done li[aria-current=step] >> text=round 2 of 5")
        assert axe_by_day_and_night(page) == []
        (ada.home / "rounds" / f"{offer.hash}.jsonl").unlink()
        ada.gets_receipt(offer, solo_loss=None, reason="No model was taken: labels were not there in time.", loss=2.3)
        page.wait_for_selector("#banner >> text=Your receipt has come.")  # in the place of older news
        assert page.locator("#clock:visible").count() == 0
        page.goto(f"{base}/receipt")
        page.wait_for_selector("#why >> text=Not all of your labels were there when the time to label was over")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.click("#print-box summary")
        assert "Entries of the ledger that it proves" in page.inner_text("#print")
        assert axe_by_day_and_night(page) == []


def test_what_is_said_of_pay_follows_the_pace_and_the_operators_note(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    data = draw_pictures(tmp_path / "data", 60)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("#stage img")
        for key in "01234":
            page.wait_for_selector(showing(int(key)))
            page.wait_for_timeout(300)  # a pace to be told
            page.keyboard.press(key)
        page.wait_for_selector(showing(5))
        ada.gets_offer(payment_note="By bank transfer, on Fridays <b>.")
        page.goto(f"{opened.url.split('/?')[0]}/offer")
        page.wait_for_selector("#payment-words >> text=By bank transfer, on Fridays <b>.")
        assert "at your pace of" in page.inner_text("#facts")
        page.click("#answer >> text=Accept")
        assert "If they are not all there by then, you take no part" in page.inner_text("#sign")
