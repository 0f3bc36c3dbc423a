"""Offers and receipts as JSON values for the page, and the summary that it asks for every second.

Documents come from the server and are untrusted. An unreadable document results in an error message.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from truthfl.coded_text import CodedText, coded, sentence_of, untranslated
from truthfl.errors import TruthflError
from truthfl.home import participant_folder
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import offer_fault
from truthfl.ledger.evidence import SoloEvidence, observation_of
from truthfl.ledger.settlement import loss_in_receipt
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.terms import Offer, offer_from
from truthfl.page.catalogue import Message, MessageError, overflow_allowed, rounded, shown
from truthfl.page.job_state import connection_view, job_view, news_in_force
from truthfl.page.offer import (
    Costs,
    audition_view,
    explanation,
    labels_worth,
    offer_plot,
    outlooks,
    own_costs,
    pay_summary,
    privacy_view,
    receipt_plot,
    require_sound_audition,
    sample_noun,
    spread,
)
from truthfl.page.receipt import evidence_in, result_view, why_nothing
from truthfl.page.receipt_check import contradiction, own_receipt_fault
from truthfl.page.signed_words import lie_form, signed_terms_view
from truthfl.page.work import NO_DOCUMENTS

LONGEST_MESSAGE = 500  # letters of an error in an untrusted document
READ_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    OSError,
    TruthflError,
)


def last_offer(home: Path) -> Offer | None:
    """The newest offer in the participant's folder `home`; None if there is none."""
    offers = participant_folder.offers(home)
    return offers[-1] if offers else None


def offer_in_force(home: Path) -> Offer | None:
    """The newest offer; None if there is none, if it was declined, or if it cannot be read."""
    try:
        offer = last_offer(home)
        if (
            offer is None
            or answer_to(home, offer) == "refusal"
            or not all(isinstance(name, str) for name in offer.job.classes)
        ):
            return None
        return offer
    except READ_ERRORS:
        return None


def answer_to(home: Path, offer: Offer) -> str | None:
    """The participant's answer: "acceptance", "refusal", or None."""
    signed_answer = participant_folder.read_answer(home, offer)
    document = None if signed_answer is None else signed_answer.get("document")
    return str(document.get("kind")) if isinstance(document, dict) else None


def last_receipt(home: Path) -> dict[str, Any] | None:
    """The newest signed receipt; None if there is none."""
    receipts = participant_folder.receipts(home)
    return receipts[-1] if receipts else None


def worth_view(home: Path) -> dict[str, Any]:
    """What a label is expected to earn under the accepted offer; `worth` is None if there is none."""
    try:
        offer = last_offer(home)
        if offer is None or answer_to(home, offer) != "acceptance":
            return {"worth": None}
        require_sound_offer(offer)
        return {"worth": labels_worth(offer)}
    except READ_ERRORS:
        return {"worth": None}


def offer_view(
    home: Path,
    key: PrivateKey | None,
    labeling: float | None,
    computing: float | None,
    pace: float | None = None,
) -> dict[str, Any]:
    """The newest offer with expected pay and costs; `offer` is None while there is none.

    labeling, computing   costs that the participant entered; None for the offer's assumptions
    pace                  seconds that the participant takes for a label; None if unknown
    """
    offer = last_offer(home)
    if offer is None:
        return {"offer": None}
    try:
        with overflow_allowed():
            view = _offer_view(home, offer, key, own_costs(offer, labeling, computing), pace)
        json.dumps(view, allow_nan=False)  # a ValueError where a number is not finite
    except TruthflError:
        raise
    except READ_ERRORS as error:
        raise MessageError("error.offer_unreadable", reason=shown(error_sentence(error))) from None
    return view


def _offer_view(home: Path, offer: Offer, key: PrivateKey | None, costs: Costs, pace: float | None) -> dict[str, Any]:
    """The values of `offer_view` for this offer."""
    require_sound_offer(offer)
    expected, of_pay, obstacle = outlooks(offer, costs), spread(offer), _signing_obstacle(offer, key)
    computed = {
        "spread": asdict(of_pay) | {"zero_loss": of_pay.zero_loss if math.isfinite(of_pay.zero_loss) else None},
        "summary": asdict(pay_summary(offer, of_pay, pace)),
        "explanation": explanation(offer),
        "outlooks": [asdict(outlook) | {"said": lie_form(outlook.words)} for outlook in expected],
        "audition": audition_view(offer),
        "privacy": privacy_view(offer),
        "terms": signed_terms_view(offer),
        "plot": offer_plot(offer),
    }
    return computed | {
        "offer": _offer_terms(offer),
        "noun": sample_noun(offer),
        "several": offer.job.several_labels,
        "hash": offer.hash,
        "answer": answer_to(home, offer),
        "costs": asdict(costs),
        "cannot_sign": None if obstacle is None else asdict(obstacle),
        "fingerprints": {
            "yours": fingerprint(offer.client.public_key),
            "operator": fingerprint(offer.job.operator_key),
        },
    }


def receipt_view(home: Path) -> dict[str, Any]:
    """The newest receipt; `receipt` is None while there is none; `trouble` says why it cannot be shown.

    `warning` says how it contradicts what the participant's computer kept; None if it does not. It needs no request
    for a check.
    """
    receipt = last_receipt(home)
    if receipt is None:
        return {"receipt": None}
    try:
        with overflow_allowed():
            warning = contradiction(home, receipt)
            told = {} if warning is None else {"warning_message": shown(warning)}
            view = _receipt_view(receipt["document"]) | {"warning": warning} | told
        json.dumps(view, allow_nan=False)  # a ValueError where a number is not finite
    except READ_ERRORS as error:
        sentence = error_sentence(error)
        return {"receipt": digest(receipt), "trouble": sentence, "trouble_message": shown(sentence)}
    return {"receipt": digest(receipt)} | view


def _receipt_view(document: dict[str, Any]) -> dict[str, Any]:
    """The values of `receipt_view` for this document."""
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    require_sound_offer(offer)
    evidence = evidence_in(offer, settlement)
    stopped = evidence is not None and settlement["passed"] is not True
    rounds = None if stopped else (settlement["delivered"], settlement["asked"])
    counted = loss_in_receipt(document, offer, evidence)
    return {
        "offer": _offer_terms(offer),
        "offer_hash": offer.hash,
        "expected_pay": offer.expected_pay,
        "paid": settlement["pay"] / offer.job.minor_units,
        "why_nothing": why_nothing(offer, document, counted, evidence),
        "calculation": _calculation(offer, counted, settlement, evidence),
        "audition": result_view(offer, document, evidence),
        "plot": receipt_plot(offer, counted, rounds, evidence),
        "loss": float(test["loss"]),
        "accuracy": None if test["accuracy"] is None else float(test["accuracy"]),
        "test": {name: test[name] for name in ("test_set", "samples", "secret")},
        "settlement": {name: settlement[name] + 0 for name in ("pay", "delivered", "asked")},
        **_proof_view(document),
        "operator": fingerprint(str(document["public_key"])),
    }


def _proof_view(document: dict[str, Any]) -> dict[str, Any]:
    """The number of ledger entries that a receipt's proof covers, and the hash that covers them all."""
    proof = document["proof"]
    return {"proved_entries": 1 + proof["last"] - proof["first"], "common_hash": str(proof["root"])}


def receipt_check(home: Path, key: PrivateKey | None) -> dict[str, Any]:
    """The first fault of the newest receipt, by itself and compared with the participant's folder and key."""
    receipt = last_receipt(home)
    if receipt is None:
        raise MessageError("error.no_receipt")
    fault = own_receipt_fault(home, receipt, key)
    return {"receipt": digest(receipt), "fault": fault, "fault_message": None if fault is None else shown(fault)}


def fingerprint(public_key: str) -> str:
    """A short form of a public key, as ssh-keygen shows it."""
    parts = public_key.split()
    try:
        raw = sha256(b64decode(parts[1])).digest()
    except (IndexError, ValueError):
        return "—"
    return "SHA256:" + b64encode(raw).decode().rstrip("=")


def _signing_obstacle(offer: Offer, key: PrivateKey | None) -> Message | None:
    """The reason why this page cannot sign an answer; None if it can."""
    if key is None:
        return Message("offer.no_key")
    if public_line(key) != offer.client.public_key:
        return Message("offer.other_key")
    return None


def require_sound_offer(offer: Offer) -> None:
    """Raise `InputError` unless the offer is signed, can be paid and, if it has an audition, its terms make sense."""
    try:
        with overflow_allowed():
            offer.require_payable()
            fault = offer_fault(offer)
            if fault is not None:
                raise MessageError("error.offer_does_not_hold", fault=shown(fault))
            if offer.job.has_solo_models:
                require_sound_audition(offer)
    except TruthflError:
        raise
    except READ_ERRORS as error:
        raise MessageError("error.offer_unreadable", reason=shown(error_sentence(error))) from None


def _offer_terms(offer: Offer) -> dict[str, Any]:
    """The job's and the client's terms as one flat object, without the lies that were tried."""
    client = {name: value for name, value in asdict(offer.client).items() if name != "lies"}
    return {**offer.job.document(), **client, "job": offer.job.name, "client": offer.client.name}


def _calculation(
    offer: Offer, loss: float, settlement: dict[str, Any], evidence: SoloEvidence | None
) -> list[dict[str, Any]]:
    """The calculation of pay step by step; the last result is the pay, before it is rounded."""
    observation = observation_of(loss, settlement["delivered"], settlement["asked"], evidence)
    steps = offer.contract.calculation(observation)
    return [
        {
            "formula": shown(step.formula),
            "numbers": [_calculation_term(term) for term in step.numbers],
            "result": _calculation_term(step.result),
        }
        for step in steps
    ]


def _calculation_term(term: float | int | str) -> dict[str, Any] | str:
    """A number, with more decimal places than a payment has, so that it can be checked; or words or an operator."""
    if isinstance(term, str):
        return term.form if isinstance(term, CodedText) else term
    return rounded(term, 0 if isinstance(term, int) else 7 if abs(term) < 10 else 4)


def error_sentence(error: BaseException) -> str:
    text = (str(error).strip() or type(error).__name__)[:LONGEST_MESSAGE]
    if isinstance(error, TruthflError):
        sentence = sentence_of(error)
        return sentence if len(sentence) <= LONGEST_MESSAGE else text
    return coded("error.form", "it does not have the form it should ({error}).", error=untranslated(text))


def documents_summary(home: Path) -> dict[str, Any]:
    """Hashes of the newest documents, which show the browser that there are new ones, and the state of the job.

    `job` is the state of the newest offer's job, if the offer was accepted; `trouble` is an error message.
    """
    summary = NO_DOCUMENTS | {"connection": connection_view(home)}
    try:
        state = _documents_state(home)
        offer = _newest_offer(home, state)
        if offer is not None:
            summary |= {"offer": offer.hash, "answer": answer_to(home, offer)}
        if offer is not None and summary["answer"] == "acceptance":
            summary["job"] = job_view(home, offer)
        news = news_in_force(home, summary["job"])
        if news is not None:
            summary |= {"news": str(news.sentence), "news_message": _message(news.sentence)}
        summary["receipt"] = _newest_receipt(home, state)
    except READ_ERRORS as error:
        summary["trouble"] = error_sentence(error)
    return summary


def _message(sentence: str) -> dict[str, Any] | None:
    """The form that the browser can write in its language; None if there is only the English sentence."""
    form = shown(sentence)
    return None if "english" in form else form


@lru_cache(maxsize=4)
def _newest_offer(home: Path, state: object) -> Offer | None:  # noqa: ARG001
    """The newest offer; it is read again only if `state`, the state of the files, has changed."""
    return last_offer(home)


@lru_cache(maxsize=4)
def _newest_receipt(home: Path, state: object) -> str | None:  # noqa: ARG001
    """The hash of the newest receipt; read again only if `state` has changed."""
    receipt = last_receipt(home)
    return None if receipt is None else digest(receipt)


def _documents_state(home: Path) -> tuple[tuple[str, int, int], ...]:
    """A value that changes when documents arrive or change."""
    files = (path for folder in ("offers", "answers", "receipts") for path in (home / folder).glob("*.json"))
    return tuple(sorted((str(path), (found := path.stat()).st_mtime_ns, found.st_size) for path in files))
