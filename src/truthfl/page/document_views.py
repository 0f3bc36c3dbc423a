"""Offers and receipts as JSON values for the page.

Documents come from the server and are untrusted: one that cannot be read gives an error message. Imports `ledger`,
`audition_result`, `audition_terms`, `document_names`, `numbers`, `offer_outlook`, `pay_plot`, `privacy_terms`,
`receipt_check`.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, TruthflError
from truthfl.ledger import participant_folder
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import recorded_offer_fault
from truthfl.ledger.early_end import counted_loss, was_ended
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.solo_evidence import SoloEvidence, observation_of
from truthfl.ledger.terms import Offer, offer_from
from truthfl.page.audition_result import evidence_in, result_view
from truthfl.page.audition_terms import audition_view, require_sound_audition
from truthfl.page.document_names import NO_DOCUMENTS
from truthfl.page.numbers import calculation_term, money, overflow_allowed
from truthfl.page.offer_outlook import outlooks, own_costs, spread
from truthfl.page.pay_plot import offer_plot, receipt_plot
from truthfl.page.privacy_terms import privacy_view, sample_noun
from truthfl.page.receipt_check import contradiction, own_receipt_fault

LONGEST_MESSAGE = 500  # of letters, of an error in an untrusted document
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
STATED_COST = (
    "You stated what a sample costs you. This is the offer of a menu in which the true cost is the best statement: "
    "with a higher or a lower one you would have been left with less."
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


def documents_summary(home: Path) -> dict[str, Any]:
    """Hashes of the newest documents, by which the browser notices new ones; `trouble` is an error message."""
    summary = NO_DOCUMENTS.copy()
    try:
        news = participant_folder.news(home)
        summary["news"] = None if news is None else news[0]
        offer = last_offer(home)
        if offer is not None:
            summary |= {"offer": offer.hash, "answer": answer_to(home, offer)}
        receipt = last_receipt(home)
        if receipt is not None:
            summary["receipt"] = digest(receipt)
    except READ_ERRORS as error:
        summary["trouble"] = _message(error)
    return summary


def offer_view(home: Path, key: PrivateKey | None, labeling: float | None, computing: float | None) -> dict[str, Any]:
    """The newest offer with expected pay and costs; `offer` is None while there is none.

    labeling, computing   costs that the participant entered; None for the offer's assumptions
    """
    offer = last_offer(home)
    if offer is None:
        return {"offer": None}
    try:
        with overflow_allowed():
            view = _offer_view(home, offer, key, labeling, computing)
        json.dumps(view, allow_nan=False)  # a ValueError where a number is not finite
    except TruthflError:
        raise
    except READ_ERRORS as error:
        raise InputError(f"the offer cannot be read: {_message(error)}") from None
    return view


def _explanation(offer: Offer) -> list[str]:
    """Sentences that say how her pay is determined."""
    sentences = offer.mechanism.explanation(lambda amount: _money(offer, amount))
    if offer.client.stated:
        sentences.append(STATED_COST)
    return sentences


def _offer_view(
    home: Path, offer: Offer, key: PrivateKey | None, labeling: float | None, computing: float | None
) -> dict[str, Any]:
    """The values of `offer_view` for this offer."""
    require_sound_offer(offer)
    costs = own_costs(offer, labeling, computing)
    expected, of_pay = outlooks(offer, costs), spread(offer)
    computed = {
        "spread": asdict(of_pay) | {"zero_loss": of_pay.zero_loss if math.isfinite(of_pay.zero_loss) else None},
        "explanation": _explanation(offer),
        "outlooks": [asdict(outlook) for outlook in expected],
        "audition": audition_view(offer),
        "privacy": privacy_view(offer),
        "plot": offer_plot(offer),
    }
    return computed | {
        "offer": _offer_terms(offer),
        "noun": sample_noun(offer),
        "hash": offer.hash,
        "answer": answer_to(home, offer),
        "costs": asdict(costs),
        "cannot_sign": _signing_obstacle(offer, key),
        "fingerprints": {
            "yours": fingerprint(offer.client.public_key),
            "operator": fingerprint(offer.job.operator_key),
        },
    }


def receipt_view(home: Path) -> dict[str, Any]:
    """The newest receipt; `receipt` is None while there is none, `trouble` is the reason why it cannot be shown.

    `warning` is how it contradicts what her computer kept, without being asked for a check; None if it does not.
    """
    receipt = last_receipt(home)
    if receipt is None:
        return {"receipt": None}
    try:
        with overflow_allowed():
            view = _receipt_view(receipt["document"]) | {"warning": contradiction(home, receipt)}
        json.dumps(view, allow_nan=False)  # a ValueError where a number is not finite
    except READ_ERRORS as error:
        return {"receipt": digest(receipt), "trouble": _message(error)}
    return {"receipt": digest(receipt)} | view


def _receipt_view(document: dict[str, Any]) -> dict[str, Any]:
    """The values of `receipt_view` for this document."""
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    require_sound_offer(offer)
    evidence = evidence_in(offer, settlement)
    stopped = evidence is not None and settlement["passed"] is not True
    rounds = None if stopped else (settlement["delivered"], settlement["asked"])
    counted = counted_loss(offer, test["loss"], ended=was_ended(document))
    return {
        "offer": _offer_terms(offer),
        "offer_hash": offer.hash,
        "expected_pay": offer.expected_pay,
        "paid": _money(offer, settlement["pay"] / offer.job.minor_units),
        "calculation": _calculation(offer, counted, settlement, evidence),
        "audition": result_view(offer, document, evidence),
        "plot": receipt_plot(offer, counted, rounds, evidence),
        "loss": float(test["loss"]),
        "accuracy": None if test["accuracy"] is None else float(test["accuracy"]),
        "test": {name: test[name] for name in ("test_set", "samples", "secret")},
        "settlement": {name: settlement[name] + 0 for name in ("pay", "delivered", "asked")},
        "links": len(document["chain"]),
        "last_link": str(document["chain"][-1]["hash"]),
        "operator": fingerprint(str(document["public_key"])),
    }


def receipt_check(home: Path, key: PrivateKey | None) -> dict[str, Any]:
    """The first fault of the newest receipt, by itself and compared with the participant's folder and key."""
    receipt = last_receipt(home)
    if receipt is None:
        raise InputError("there is no receipt to check yet.")
    return {"receipt": digest(receipt), "fault": own_receipt_fault(home, receipt, key)}


def fingerprint(public_key: str) -> str:
    """A short form of a public key, as ssh-keygen shows it."""
    parts = public_key.split()
    try:
        raw = sha256(b64decode(parts[1])).digest()
    except (IndexError, ValueError):
        return "no public key"
    return "SHA256:" + b64encode(raw).decode().rstrip("=")


def _signing_obstacle(offer: Offer, key: PrivateKey | None) -> str | None:
    """The reason why this page cannot sign an answer; None if it can."""
    if key is None:
        return "There is no key here to sign with. Start the page with --key and the file of your private key."
    if public_line(key) != offer.client.public_key:
        return "This offer is to another key than the one that this page was started with."
    return None


def require_sound_offer(offer: Offer) -> None:
    """Raise `InputError` unless the offer is signed, can be paid and, if it has an audition, its terms make sense."""
    try:
        with overflow_allowed():
            offer.require_payable()
            fault = recorded_offer_fault(offer)
            if fault is not None:
                raise InputError(f"the offer does not hold: {fault}.")
            if offer.job.has_audition:
                require_sound_audition(offer)
    except TruthflError:
        raise
    except READ_ERRORS as error:
        raise InputError(f"the offer cannot be read: {_message(error)}") from None


def _offer_terms(offer: Offer) -> dict[str, Any]:
    """The job's and the client's terms in one flat object, without the lies that were tried."""
    client = {name: value for name, value in asdict(offer.client).items() if name != "lies"}
    return {**offer.job.document(), **client, "job": offer.job.name, "client": offer.client.name}


def _money(offer: Offer, amount: float) -> str:
    return money(amount, offer.job.minor_units, offer.job.currency)


def _calculation(
    offer: Offer, loss: float, settlement: dict[str, Any], evidence: SoloEvidence | None
) -> list[dict[str, str]]:
    """The calculation of pay step by step; the last result is the pay."""
    observation = observation_of(loss, settlement["delivered"], settlement["asked"], evidence)
    steps = offer.mechanism.calculation(observation)
    units = offer.job.minor_units
    lines = [
        {
            "formula": step.formula,
            "numbers": " ".join(map(calculation_term, step.numbers)),
            "result": calculation_term(step.result),
        }
        for step in steps
    ]
    lines[-1]["formula"] += ", rounded" if units == 1 else f", rounded to whole {units}ths"
    lines[-1]["result"] = _money(offer, settlement["pay"] / units)
    return lines


def _message(error: BaseException) -> str:
    text = (str(error).strip() or type(error).__name__)[:LONGEST_MESSAGE]
    return text if isinstance(error, TruthflError) else f"it does not have the form it should ({text})."
