"""What a participant's computer sent and heard in the audition of an offer, in a file of their folder.

An operator who has the model may not say later that it never came: their signed words on what arrived are kept here,
and the receipt is held against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from truthfl.coded_text import coded, english
from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.ledger.canonical import Document, canonical_bytes, read_document
from truthfl.ledger.documents import signed
from truthfl.ledger.signing import PrivateKey, signed_by
from truthfl.ledger.terms import Offer

AUDITIONS = "auditions"
COMMITTED, OPENED = "committed", "opened"  # what the operator's words are on
LONGEST_REASON = 200


@dataclass(frozen=True)
class AuditionRecord:
    """What was sent under an offer.

    commitment  as it was sent
    model       the digest of the model that was sent; None if none was
    committed, opened   the operator's signed words that the commitment, and the model, arrived; None if none came
    """

    commitment: str
    model: str | None = None
    committed: Mapping[str, Any] | None = None
    opened: Mapping[str, Any] | None = None


def arrival_word(offer: Offer, stage: str, digest: str, key: PrivateKey) -> dict[str, Any]:
    """The operator's signed word that the commitment, or the model, with this digest arrived."""
    return signed(key, _arrival(offer, stage, digest))


def note_commitment(home: Path, offer_hash: str, commitment: str) -> None:
    """Note a commitment before it is sent; the same one may be sent again."""
    if read_record(home, offer_hash) is None:
        _write(home, offer_hash, AuditionRecord(commitment))


def note_opening(home: Path, offer: Offer, model: str, word: object) -> None:
    """Note, before the model with this digest is sent, that it is, and the word that its commitment arrived.

    Raise InputError if there was no commitment, or the operator did not sign that it arrived.
    """
    record = read_record(home, offer.hash)
    if record is None:
        raise InputError("no model was committed to for this offer.")
    found = _required(word, offer, COMMITTED, record.commitment)
    _write(home, offer.hash, replace(record, model=model, committed=found))


def note_arrival(home: Path, offer: Offer, word: object) -> None:
    """Keep the operator's word that the model arrived; raise InputError if it is not on the one that was sent."""
    record = read_record(home, offer.hash)
    if record is None or record.model is None:
        raise InputError("no model was sent for this offer.")
    _write(home, offer.hash, replace(record, opened=_required(word, offer, OPENED, record.model)))


def read_record(home: Path, offer_hash: str) -> AuditionRecord | None:
    """What is noted of this offer's audition; None if nothing is."""
    path = _path(home, offer_hash)
    try:
        return AuditionRecord(**read_document(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    except TypeError:
        raise InputError(f"{path} is no record of an audition; it should not be edited.") from None


def audition_record_fault(home: Path, offer: Offer, document: Document) -> str | None:
    """How the audition in a receipt differs from what was sent from here; None if it does not."""
    audition, record = document.get("audition"), read_record(home, offer.hash)
    if audition is None or record is None:
        return None
    committed, result = audition["commitment"], audition["result"]
    reason = english(str(result["reason"])[:LONGEST_REASON])
    if committed is None:
        words = "your computer sent the commitment to your model, and by the receipt none came ({reason}){word}"
        return coded("fault.commitment_struck", words, reason=reason, word=_signed_words(record.committed))
    if committed["commitment"] != record.commitment:
        return coded("fault.commitment_other", "it has another commitment than the one that your computer sent")
    if result["model"] == record.model:
        return None
    if result["model"] is not None:
        return coded("fault.own_model", "its audition is of another model than the one that your computer sent")
    words = "your computer sent the model that it trained alone, and by the receipt none was taken ({reason}){word}"
    return coded("fault.model_struck", words, reason=reason, word=_signed_words(record.opened))


def _signed_words(word: Mapping[str, Any] | None) -> str:
    if word is None:
        return ""
    return coded("fault.signed_arrival", "; THE OPERATOR SIGNED THAT IT ARRIVED, and your folder has that")


def _arrival(offer: Offer, stage: str, digest: str) -> dict[str, str]:
    names = {"job": offer.job.name, "client": offer.client.name, "offer": offer.hash}
    return {"kind": "arrival", "stage": stage, **names, "digest": digest}


def _required(word: object, offer: Offer, stage: str, digest: str) -> dict[str, Any]:
    """This word, if it is the operator's on this digest."""
    expected = _arrival(offer, stage, digest)
    if (
        not isinstance(word, Mapping)
        or set(word) != {"document", "signature"}
        or word["document"] != expected
        or not signed_by(str(offer.job.operator_key), expected, str(word["signature"]))
    ):
        what = "the commitment" if stage == COMMITTED else "the model"
        raise InputError(f"the operator did not sign that {what} of this audition arrived; nothing more is sent.")
    return dict(word)


def _write(home: Path, offer_hash: str, record: AuditionRecord) -> None:
    write_file(_path(home, offer_hash), canonical_bytes(asdict(record)), private=True)


def _path(home: Path, offer_hash: str) -> Path:
    """The file of this offer; the hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / AUDITIONS / f"{offer_hash}.json"
