"""Her offer and her receipt as her page shows them: plain values.

Looks at the ledger, `offer_outlook`, `document_names`.

What lies on her desk came from others: what cannot be read becomes a sentence, never a crash.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, TruthflError
from truthfl.ledger import participant_folder
from truthfl.ledger.canonical import digest
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.terms import Offer, offer_from
from truthfl.page.document_names import EMPTY
from truthfl.page.numbers import in_calculation, money
from truthfl.page.offer_outlook import outlooks, own_costs, pay_curve, spread

CANNOT_BE_READ = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, TruthflError)


def last_offer(home: Path) -> Offer | None:
    found = participant_folder.offers(home)
    return found[-1] if found else None


def offer_in_force(home: Path) -> Offer | None:
    """The last offer that she has not declined; None also where it cannot be read."""
    try:
        offer = last_offer(home)
        if (
            offer is None
            or answer_to(home, offer) == "refusal"
            or not all(isinstance(c, str) for c in offer.job.classes)
        ):
            return None
        return offer
    except CANNOT_BE_READ:
        return None


def answer_to(home: Path, offer: Offer) -> str | None:
    """What she answered: "acceptance", "refusal", or None."""
    paper = participant_folder.read_answer(home, offer)
    document = None if paper is None else paper.get("document")
    return str(document.get("kind")) if isinstance(document, dict) else None


def last_receipt(home: Path) -> dict[str, Any] | None:
    found = participant_folder.receipts(home)
    return found[-1] if found else None


def what_lies_there(home: Path) -> dict[str, Any]:
    """Enough to see whether something new has come."""
    told = EMPTY.copy()
    try:
        heard = participant_folder.news(home)
        told["news"] = None if heard is None else heard[0]
        offer = last_offer(home)
        if offer is not None:
            told |= {"offer": offer.hash, "answer": answer_to(home, offer)}
        receipt = last_receipt(home)
        if receipt is not None:
            told["receipt"] = digest(receipt)
    except CANNOT_BE_READ as error:
        told["trouble"] = _sentence(error)
    return told


def offer_shown(home: Path, key: PrivateKey | None, labeling: float | None, computing: float | None) -> dict[str, Any]:
    """The last offer with what it comes to; `offer` is None while there is none."""
    offer = last_offer(home)
    if offer is None:
        return {"offer": None}
    try:
        costs = own_costs(offer, labeling, computing)
        ways = outlooks(offer, costs)
        comes_to = {
            "spread": {name: _finite(value) for name, value in asdict(spread(offer)).items()},
            "explanation": offer.mechanism.explanation(lambda amount: _money(offer, amount)),
            "outlooks": [asdict(one) for one in ways],
            "plot": _plotted(offer, [one.loss for one in ways]),
        }
    except TruthflError:
        raise
    except CANNOT_BE_READ as error:
        raise InputError(f"the offer cannot be read: {_sentence(error)}") from None
    return comes_to | {
        "offer": _view(offer),
        "hash": offer.hash,
        "answer": answer_to(home, offer),
        "costs": asdict(costs),
        "cannot_sign": _why_not(offer, key),
        "fingerprints": {
            "yours": fingerprint(offer.client.public_key),
            "operator": fingerprint(offer.job.operator_key),
        },
    }


def receipt_shown(home: Path) -> dict[str, Any]:
    """The last receipt; `receipt` is None while there is none, and `trouble` says why it cannot be shown."""
    paper = last_receipt(home)
    if paper is None:
        return {"receipt": None}
    try:
        document = paper["document"]
        offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
        shown = {
            "offer": _view(offer),
            "offer_hash": offer.hash,
            "expected_pay": offer.expected_pay,
            "paid": _money(offer, settlement["pay"] / offer.job.minor_units),
            "calculation": _calculation(offer, test["loss"], settlement),
            "plot": _plotted(offer, [offer.job.expected_loss, test["loss"]]),
            "loss": float(test["loss"]),
            "accuracy": None if test["accuracy"] is None else float(test["accuracy"]),
            "test": {name: test[name] for name in ("test_set", "samples", "secret")},
            "settlement": {name: settlement[name] + 0 for name in ("pay", "delivered", "asked")},
            "links": len(document["chain"]),
            "last_link": str(document["chain"][-1]["hash"]),
            "operator": fingerprint(str(document["public_key"])),
        }
    except CANNOT_BE_READ as error:
        return {"receipt": digest(paper), "trouble": _sentence(error)}
    return {"receipt": digest(paper)} | shown


def receipt_checked(home: Path, key: PrivateKey | None) -> dict[str, Any]:
    """Everything computed again: by itself, and that it is about an offer on this desk, answered with her key."""
    from truthfl.ledger.receipts import receipt_fault

    paper = last_receipt(home)
    if paper is None:
        raise InputError("there is no receipt to check yet.")
    fault = receipt_fault(paper) or _not_hers(home, paper, key)
    return {"receipt": digest(paper), "fault": fault}


def fingerprint(public_key: str) -> str:
    """A short form of a public key, as ssh-keygen shows it."""
    parts = public_key.split()
    try:
        raw = sha256(b64decode(parts[1])).digest()
    except (IndexError, ValueError):
        return "no public key"
    return "SHA256:" + b64encode(raw).decode().rstrip("=")


def _not_hers(home: Path, paper: dict[str, Any], key: PrivateKey | None) -> str | None:
    offer = offer_from(paper["document"]["offer"])
    if participant_folder.read_offer(home, offer.hash) is None:
        return "its offer is not one that lies on your desk"
    if not participant_folder.has_accepted(home, offer):
        return "its offer is not one that you accepted"
    if key is not None and public_line(key) != offer.client.public_key:
        return "its offer is to another key than yours"
    return None


def _why_not(offer: Offer, key: PrivateKey | None) -> str | None:
    """Why she cannot answer it from here."""
    if key is None:
        return "There is no key here to sign with. Start the page with --key and the file of your private key."
    if public_line(key) != offer.client.public_key:
        return "This offer is to another key than the one that this page was started with."
    return None


def _view(offer: Offer) -> dict[str, Any]:
    """The offer's terms side by side, for the page."""
    named = {"job": offer.job.name, "client": offer.client.name}
    return {**offer.job.document(), **asdict(offer.client), **named}


def _money(offer: Offer, amount: float) -> str:
    return money(amount, offer.job.minor_units, offer.job.currency)


def _plotted(offer: Offer, losses: list[float]) -> dict[str, Any]:
    """The line of pay by test loss, pay at these losses, and where 19 of 20 honest jobs end."""
    job = offer.job
    band = [job.expected_loss - 2 * job.loss_error, job.expected_loss + 2 * job.loss_error]
    points = [{"loss": loss, "pay": offer.amount(loss)} for loss in losses]
    return {"curve": pay_curve(offer, [*losses, *band]), "band": band, "points": points}


def _calculation(offer: Offer, loss: float, settlement: dict[str, Any]) -> list[dict[str, str]]:
    """How the pay came about, step by step; the last result is what is paid."""
    from truthfl.mechanism.observation import Observation

    seen = Observation(loss, delivered=settlement["delivered"], asked=settlement["asked"])
    steps = offer.mechanism.calculation(seen)
    units = offer.job.minor_units
    lines = [
        {
            "formula": step.formula,
            "numbers": " ".join(map(in_calculation, step.numbers)),
            "result": in_calculation(step.result),
        }
        for step in steps
    ]
    lines[-1]["formula"] += ", rounded" if units == 1 else f", rounded to whole {units}ths"
    lines[-1]["result"] = _money(offer, settlement["pay"] / units)
    return lines


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, TruthflError) else f"it does not have the form it should ({text})."
