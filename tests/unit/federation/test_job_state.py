"""What a participant's page knows of the job that runs: the server's stage and its end, and whether it is reached."""

import json
import math
import time

import numpy as np
import pytest

from helpers.auditions import AuditionedAda
from helpers.participants import Ada, an_offer
from truthfl.errors import InputError
from truthfl.federation.participant.signatory import Signatory
from truthfl.home import node_state, participant_folder
from truthfl.home.node_state import (
    FILE_NAME,
    FOLDER,
    ConnectionFile,
    NodeState,
    ServerStage,
    note_stage,
    read_connection,
    read_stage,
)
from truthfl.home.record import RoundRecord, last_round, open_rounds, rounds_of
from truthfl.job.sections import ServerSettings
from truthfl.ledger.terms import job_terms_from, offer_from
from truthfl.page.catalogue import Message, in_english
from truthfl.page.documents import documents_summary, offer_view, receipt_view, worth_view
from truthfl.page.job_state import is_soon
from truthfl.page.offer import pay_summary, spread

HASH = "ab" * 32


@pytest.fixture
def ada(tmp_path):
    return Ada(tmp_path)


def test_the_end_of_a_stage_is_kept_by_the_participants_own_clock(ada):
    assert read_stage(ada.home, HASH) is None
    note_stage(ada.home, HASH, "labeling", 100.0)
    stage = read_stage(ada.home, HASH)
    assert stage.seconds_left(time.time()) == pytest.approx(100, abs=1)
    assert stage.seconds_left(stage.until + 5) == 0.0
    file = ada.home / "stages" / f"{HASH}.json"
    before = file.stat().st_mtime_ns
    note_stage(ada.home, HASH, "labeling", 100.0)
    assert file.stat().st_mtime_ns == before  # the same end is not written again
    note_stage(ada.home, HASH, "labeling", 400)  # the operator's extension
    assert read_stage(ada.home, HASH).seconds_left(time.time()) == pytest.approx(400, abs=1)


@pytest.mark.parametrize("seconds", [None, "5", -1, math.nan, math.inf, 1e12, True, [], {}])
def test_a_time_that_is_none_is_not_kept(ada, seconds):
    note_stage(ada.home, HASH, "labeling", seconds)
    assert read_stage(ada.home, HASH) == ServerStage("labeling")


def test_no_time_passes_while_the_job_is_paused(ada):
    offer = ada.gets_offer()
    ada.accepts(offer)
    signatory = Signatory(name="Ada", samples=120, key=ada.key, folder=ada.home, decide=lambda _: True)
    note_stage(ada.home, offer.hash, "labeling", 100.0)
    signatory.keep_news({"sentence": "The operator paused the job.", "over": False, "about": "paused"})
    paused = read_stage(ada.home, offer.hash)
    assert paused.seconds_left(time.time() + 50) == pytest.approx(100, abs=1)
    later = ServerStage("labeling", paused.until, paused.paused_at - 30)
    node_state._write(ada.home, offer.hash, later)
    signatory.keep_news({"sentence": "The operator resumed the job.", "over": False, "about": "resumed"})
    resumed = read_stage(ada.home, offer.hash)
    assert (resumed.paused_at, resumed.until) == (None, pytest.approx(paused.until + 30, abs=1))
    signatory.keep_news({"sentence": "You did not pass.", "over": False, "about": "stopped"})
    assert read_stage(ada.home, offer.hash).stage == "stopped"
    note_stage(ada.home, offer.hash, "labeling", 100.0)
    signatory.note_job("another-1")
    signatory.keep_news({"sentence": "You were removed.", "over": True, "about": "stopped"})
    assert read_stage(ada.home, offer.hash).stage == "labeling"  # the news are of another job


def test_a_stage_that_cannot_be_read_is_none(ada):
    (ada.home / "stages").mkdir()
    for content in (b"", b"[]", b'{"stage": "labeling", "more": 1}', b"\xff"):
        (ada.home / "stages" / f"{HASH}.json").write_bytes(content)
        assert read_stage(ada.home, HASH) is None


def test_the_last_round_is_read_from_the_end(ada):
    assert last_round(ada.home, HASH) is None
    with open_rounds(ada.home, HASH) as rounds:
        for number in range(700):
            rounds.append(RoundRecord(number, 1, "0" * 64, "1" * 64))
    assert last_round(ada.home, HASH) == rounds_of(ada.home, HASH)[-1]
    assert last_round(ada.home, HASH).round == 699


def test_the_file_of_the_connection(ada):
    assert read_connection(ada.home) is None
    with ConnectionFile(ada.home) as file:
        waiting = read_connection(ada.home)
        assert not waiting.connected
        file.note(True)
        state = read_connection(ada.home)
        assert (state.connected, state.in_words(state.at)) == (True, "connected")
        file.note(False)
        lost = read_connection(ada.home)
        assert [lost.in_words(lost.since + s) for s in (0.1, 1.0, 7.0)] == ["connected", "lost", "ended"]
    assert read_connection(ada.home) is None
    (ada.home / FOLDER / FILE_NAME).write_text(json.dumps({"connected": True}))
    assert read_connection(ada.home) is None
    assert NodeState(True, 0.0, 0.0).in_words(100.0) == "ended"


def test_news_of_the_first_version_are_read(ada):
    (ada.home / "news.json").write_text('{"over":false,"sentence":"Hello."}')
    assert participant_folder.news(ada.home) == ("Hello.", False)
    assert participant_folder.last_news(ada.home).about == ""


def job_of(home):
    return documents_summary(home)["job"]


def test_the_stages_of_a_job_as_the_pages_show_them(tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer()
    assert job_of(ada.home) is None
    ada.accepts(offer)
    found = job_of(ada.home)
    assert (found["stage"], found["left"], found["total"], found["rounds"]) == ("accepted", None, 604800.0, 5)
    for told, stage, total in (
        ("labeling", "labeling", 604800.0),
        ("labeled", "labeled", 604800.0),
        ("auditioning", "alone", 3600.0),
    ):
        note_stage(ada.home, offer.hash, told, 50.0)
        found = job_of(ada.home)
        assert (found["stage"], found["total"], found["soon"]) == (stage, total, True)
        assert found["left"] == pytest.approx(50, abs=2)
    (ada.home / "auditions").mkdir()
    (ada.home / "auditions" / f"{offer.hash}.npz").touch()
    assert (job_of(ada.home)["stage"], job_of(ada.home)["left"]) == ("tested_alone", None)
    with open_rounds(ada.home, offer.hash) as rounds:
        rounds.append(RoundRecord(3, 1, "0" * 64, "1" * 64))
    assert (job_of(ada.home)["stage"], job_of(ada.home)["round"]) == ("rounds", 4)
    participant_folder.put_final(ada.home, offer, {"document": {}})
    assert job_of(ada.home)["stage"] == "final"
    note_stage(ada.home, offer.hash, "stopped")
    assert job_of(ada.home)["stage"] == "stopped"
    participant_folder.put_news(ada.home, "The operator's server ended the job.", over=True)
    assert job_of(ada.home)["stage"] == "over"
    ada.gets_receipt(offer, solo_loss=1.0)
    assert job_of(ada.home)["stage"] == "paid"


@pytest.mark.parametrize(
    ("left", "total", "soon"),
    [
        (100, 1000, True),
        (101, 1000, False),
        (3600, 86400, True),
        (3601, 36000.0, False),
        (3600, 36000, True),
        (3000, 3600, False),
        (0, 10, True),
    ],
)
def test_a_warning_comes_at_a_tenth_and_in_the_last_hour(left, total, soon):
    assert is_soon(left, total) == soon


def test_news_go_when_what_they_are_about_is_over(tmp_path, monkeypatch):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    news = lambda: documents_summary(ada.home)["news"]  # noqa: E731
    say = lambda about, over=False: participant_folder.put_news(ada.home, f"about {about}", over=over, about=about)  # noqa: E731
    later = lambda seconds: monkeypatch.setattr("truthfl.page.job_state.time.time", lambda: now + seconds)  # noqa: E731
    now = time.time()
    note_stage(ada.home, offer.hash, "labeling", 5000.0)
    for about, lasts in (("resumed", 600), ("extended", 3600)):
        say(about)
        assert news() == f"about {about}"
        later(lasts + 5)
        assert news() is None
        later(0)
    say("", over=True)
    later(86390)
    assert news() == "about "
    later(86410)
    assert news() is None
    later(0)
    node_state.note_pause(ada.home, offer.hash, paused=True)
    say("paused")
    assert (news(), job_of(ada.home)["paused"]) == ("about paused", True)
    note_stage(ada.home, offer.hash, "labeling", 5000.0)  # the server asks again
    assert (news(), job_of(ada.home)["paused"]) == (None, False)
    node_state.note_pause(ada.home, offer.hash, paused=True)
    with open_rounds(ada.home, offer.hash) as rounds:
        rounds.append(RoundRecord(0, 1, "0" * 64, "1" * 64))
    assert job_of(ada.home)["paused"] is False  # Ada missed that it goes on
    (ada.home / "rounds" / f"{offer.hash}.jsonl").unlink()
    note_stage(ada.home, offer.hash, "labeling", 5000.0)
    say("late labels")
    assert news() == "about late labels"
    with open_rounds(ada.home, offer.hash) as rounds:
        rounds.append(RoundRecord(0, 1, "0" * 64, "1" * 64))
    assert news() is None
    say("stopped")
    assert news() == "about stopped"
    ada.gets_receipt(offer, solo_loss=1.0)
    assert news() is None


def test_pay_in_plain_amounts(tmp_path):
    """Of both contracts, from their definitions; and from draws of what honest work is paid."""
    audition = AuditionedAda(tmp_path / "a").gets_offer()
    found = pay_summary(audition, spread(audition), None)
    assert (found.least, found.sure, found.most) == (0.0, True, pytest.approx(151.8 + 40.0))
    assert (found.per_sample, found.pace_known, found.label_seconds) == (pytest.approx(130 / 50), False, 150.0)
    assert found.per_hour == pytest.approx(130 * 3600 / 150)
    lceme = Ada(tmp_path / "b").gets_offer()
    found = pay_summary(lceme, spread(lceme), 2.0)
    assert (found.sure, found.least < -4000, found.pace, found.pace_known) == (False, True, 2.0, True)
    losses = np.random.default_rng(1).normal(lceme.job.expected_loss, lceme.job.loss_error, 200_000)
    pays = lceme.contract.reward(losses)
    assert ((pays > found.likely_least) & (pays < found.likely_most)).mean() == pytest.approx(0.95, abs=0.005)
    assert found.most == pytest.approx(lceme.amount(0.0))


def test_the_pace_and_what_a_label_is_worth(ada):
    assert worth_view(ada.home) == {"worth": None}
    offer = ada.gets_offer()
    assert worth_view(ada.home) == {"worth": None}  # before Ada accepts
    assert offer_view(ada.home, ada.key, None, None, 1.5)["summary"]["label_seconds"] == 180.0
    ada.accepts(offer)
    worth = worth_view(ada.home)["worth"]
    assert (worth["per_label"], worth["audition"]) == (pytest.approx(offer.expected_pay / 120), False)


def test_how_money_comes_is_in_the_signed_terms_if_the_operator_says_it(ada):
    plain, noted = (an_offer(ada.key, ada.operator, payment_note=note) for note in ("", "By bank transfer."))
    assert plain.document()["job"]["payment_note"] == ""
    assert offer_from(noted.envelope()).job.payment_note == "By bank transfer."
    assert ServerSettings(payment_note="x" * 300).document()["payment_note"] == "x" * 300
    for note in ("x" * 301, "two\nlines", 7, None):
        with pytest.raises(InputError, match="it must be a text of at most 300 letters in one line"):
            ServerSettings(payment_note=note)
        with pytest.raises(InputError, match="its payment_note is no text of at most 300 letters"):
            job_terms_from(plain.document()["job"] | {"payment_note": note})


def reasons(home):
    return [in_english(Message(one["key"], one["values"])) for one in receipt_view(home)["why_nothing"]]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"solo_loss": 1.9}, "a number for that, was 1.90; with honest labels it is almost always below 1.45"),
        ({"solo_loss": None, "reason": "No model was taken: labels were not there in time."}, "Not all of your labels"),
        ({"solo_loss": None, "reason": "No model was taken: no commitment in time."}, "did not reach the server"),
        ({"solo_loss": None, "reason": "No model was taken: it was not opened in time."}, "did not reach the server"),
        ({"solo_loss": None, "reason": "No model was taken: it is <b>."}, "Its reason: No model was taken: it is <b>."),
    ],
)  # fmt: skip
def test_a_receipt_of_nothing_says_why(tmp_path, facts, sentence):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer, loss=2.3, **facts)
    assert receipt_view(ada.home)["paid"] == 0
    (found,) = reasons(ada.home)
    assert sentence in found


def test_a_receipt_that_pays_has_no_such_reason_and_a_negative_one_has(ada):
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer)
    assert reasons(ada.home) == []
    other = Ada(ada.folder / "other")
    offer = other.gets_offer()
    other.accepts(offer)
    other.gets_receipt(offer, loss=1.3)
    (found,) = reasons(other.home)
    assert found.endswith("worse than the offer allows for: a loss of 1.30, where 1.08 was expected.")


def test_the_operators_commands_are_among_the_reasons(tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    paper = ada.gets_receipt(offer, solo_loss=1.4, loss=2.3, taken=0)
    paper["document"]["settlement"]["pay"] = 0
    paper["document"]["commands"] = {
        "1": {"document": {"kind": "end", "why": "the money is spent."}},
        "2": {"document": {"kind": "remove", "why": ""}},
    }
    (ada.home / "receipts" / f"{offer.job.name}.json").write_text(json.dumps(paper))
    assert reasons(ada.home) == [
        "The operator ended the job early: the money is spent.",
        "The operator removed you from the job.",
        "What your computer learned from your labels alone did worse than expected: a loss of 1.40, where 1.05 was "
        "expected.",
        "Nothing from your computer arrived in any round of the common training.",
    ]
