"""Sentences of ledger, federation and samples that the page writes in another language."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import truthfl.page
from helpers.participants import Ada
from helpers.texts import coded_texts, sentences
from truthfl.adversary.strategy import TRUTH, LieSpace
from truthfl.coded_text import CodedText, coded, quoted, sentence_of, untranslated
from truthfl.contracts.audition.joint import JointAudition
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.lceme.contract import LCEME
from truthfl.errors import InputError
from truthfl.federation.participant.signatory import Signatory
from truthfl.home import participant_folder
from truthfl.ledger.settlement import early_end_in_words
from truthfl.page import documents as document_views
from truthfl.page.catalogue import PLACEHOLDER, Message, in_english, shown, strings
from truthfl.page.signed_words import dropping_out_messages, formula_messages, lie_form

PAGE = Path(truthfl.page.__file__).parent
ELSEWHERE = {  # files of the page whose sentences are not shown on it
    "files.py": "for those who write the scripts: faults that a test would see",
    "phone.py": "the terminal",
    "serving.py": "the terminal",
    "signed_words.py": "the words of a signed offer, which are read here",
}
ENGLISH = {  # how texts end that stay in English, and why
    "the offer's pay for ": "an absurd offer, which the page refuses to show",
    " is no finite amount.": "the same",
    "; it must be a number from 0 on.": "the same",
    "This machine is not known here by that name.": "status 403: the page says in its own words that it was closed",
    "Another page sent this.": "the same",
    "The page is closed; open the link that truthfl printed.": "the same",
    "This did not come from the page; load it again.": "the same",
    "trusted-types 'none'": "a header for the browser",
}


def test_the_catalogue_has_every_coded_text_in_the_same_words():
    texts = coded_texts()
    assert len(texts) > 100
    for key, template, names, file in texts:
        bare = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", template).replace("'", "’")
        told = [strings("en").get(one, "").replace("'", "’") for one in (key, f"{key}.one", f"{key}.other")]
        assert bare[:1].lower() + bare[1:] in [one[:1].lower() + one[1:] for one in told], (file, key)
        assert names == set(PLACEHOLDER.findall(bare)) or None in names, (file, key)


@pytest.mark.parametrize("path", sorted(PAGE.glob("*.py")), ids=lambda path: path.name)
def test_python_of_the_page_has_no_sentence_of_its_own(path):
    found = [] if path.name in ELSEWHERE else sentences(path)
    assert [text for text in found if not text.endswith(tuple(ENGLISH))] == []


def test_a_stranger_s_form_is_shown_only_if_the_catalogues_have_it():
    paused = coded("news.paused_reason", "paused: {reason}", reason=quoted("lunch"))
    assert shown(paused) == {"key": "news.paused_reason", "values": {"reason": {"quoted": "lunch"}}}
    deep = quoted("lunch").form
    for _ in range(20):
        deep = {"key": "news.paused_reason", "values": {"reason": deep}}
    for form in (
        deep,
        {},
        {"key": "news.paused_reason"},
        {"key": "news.of_tomorrow", "values": {}},
        {"key": ["news.paused_reason"], "values": {"reason": "lunch"}},
        *(
            {"key": "news.paused_reason", "values": values}
            for values in ({}, {"reason": "x" * 2000}, {"reason": ["a"]}, {"reason": {"html": "<b>"}}, {"reason": None})
        ),
    ):
        assert shown(CodedText("paused: lunch", form)) == {"english": "paused: lunch"}, form
    assert shown("paused: lunch") == {"english": "paused: lunch"}


def test_a_coded_text_stays_one_in_news_and_in_errors(tmp_path):
    sentence = coded("news.left_out", "You are not asked this time: {reason}.", reason=untranslated("too dear"))
    participant_folder.put_news(tmp_path, sentence, over=True)
    kept = participant_folder.last_news(tmp_path).sentence
    assert kept == sentence == "You are not asked this time: too dear."
    assert shown(kept) == shown(sentence_of(InputError(sentence))) == sentence.form
    assert in_english(Message(**sentence.form)) == sentence
    participant_folder.put_news(tmp_path, "A sentence of an earlier server.", over=True)
    assert shown(participant_folder.last_news(tmp_path).sentence) == {"english": "A sentence of an earlier server."}


def test_news_of_earlier_and_of_later_servers_are_understood(tmp_path):
    ada = Ada(tmp_path)
    node = Signatory(name="Ada", samples=3, key=ada.key, folder=ada.home, decide=lambda _: None)
    paused = {"key": "news.paused_reason", "values": {"reason": {"quoted": "lunch"}}}
    for message, told in (
        (paused, paused),
        (None, {"english": "It is paused."}),
        ("paused", {"english": "It is paused."}),
        ({"key": "news.of_tomorrow", "values": {}}, {"english": "It is paused."}),
        ({"key": "news.paused_reason", "values": {"reason": "x" * 10_000}}, {"english": "It is paused."}),
    ):
        node.keep_news({"sentence": "It is paused.", "over": False, **({"message": message} if message else {})})
        news = participant_folder.last_news(ada.home)
        assert (str(news.sentence), shown(news.sentence)) == ("It is paused.", told)


def test_the_words_of_every_lie_are_known():
    lies = LieSpace((0.05, 8.0), 4.0, solo=True).draw(np.random.default_rng(0), 500)
    for lie in (TRUTH, *lies):
        form = lie_form(lie.words)
        assert all("key" in part for part in form["list"]), lie.words
        json.dumps(form, allow_nan=False)
    assert lie_form("labels × 2, the moon")["list"][1] == {"english": "the moon"}


def test_signed_terms_have_a_translation_only_in_the_words_of_this_version(tmp_path):
    ada = Ada(tmp_path)
    for contract, losses in ((LCEME, ()), (LCEME, (1.0, 0.0)), (Audition, ()), (JointAudition, (1.0, 0.0))):
        dropping_out = f"{contract.dropping_out} {early_end_in_words(contract, losses)}"
        offer = ada.gets_offer(contract=contract.kind, formula=contract.formula, dropping_out=dropping_out)
        assert len(formula_messages(offer)) == (1 if contract is LCEME else 3)
        assert len(dropping_out_messages(offer)) == 2
    offer = ada.gets_offer(formula="pay = 0", dropping_out=f"{LCEME.dropping_out} Then you owe a cow.")
    assert formula_messages(offer) == dropping_out_messages(offer) == []


def test_the_fault_of_a_receipt_has_a_form(tmp_path):
    ada = Ada(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    receipt = ada.gets_receipt(offer)
    receipt["document"]["settlement"]["pay"] += 1
    participant_folder.put_receipt(ada.home, receipt, offer.job.name)
    for path in (ada.home / "receipts").glob("*.json"):
        path.write_text(json.dumps(receipt))
    checked = document_views.receipt_check(ada.home, ada.key)
    assert checked["fault_message"]["key"] == "fault.signature"
    assert in_english(Message(**checked["fault_message"])).replace("’", "'") == checked["fault"]
