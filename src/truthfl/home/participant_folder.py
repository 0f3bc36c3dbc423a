"""Files in a participant's folder: offers, signed answers, keys, receipts, the server's last message.

The node talks to the server; the page or prompt talks to the participant. They exchange documents through these files:
the node writes an offer and waits for the file with the answer. Examples of an offer's classes are written before the
offer (`samples.example_files`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truthfl.coded_text import CodedText, from_form
from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.documents import answer, answer_fault
from truthfl.ledger.signing import AgreementKey, PrivateKey, kept_agreement_key, read_agreement_key
from truthfl.ledger.terms import Offer, offer_from

NEWS = "news.json"
MAX_NEWS_LENGTH = 1000
MOST_RECEIPTS = 20  # different ones of one job


@dataclass(frozen=True)
class News:
    """The server's last message.

    sentence  in English; a `CodedText` if the page can write it in another language
    over   whether the participant gets no more messages in this job
    about  its subject, if the server names one: see `federation.protocol.news`
    at     when it came, in seconds since 1970
    """

    sentence: str
    over: bool
    about: str = ""
    at: float = 0.0


def put_offer(home: Path, offer: Offer) -> None:
    """Write an offer; `home` is the participant's folder, here and below."""
    _write(home / "offers" / f"{offer.hash}.json", offer.envelope())


def offers(home: Path, known: Collection[str] = ()) -> list[Offer]:
    """All offers in the folder, oldest first; without those with the hashes `known`, which are not read."""
    return [offer_from(_read(path)) for path in _oldest_first(home / "offers") if path.stem not in known]


def read_offer(home: Path, offer_hash: str) -> Offer | None:
    """The offer with this hash; None if it is not in the folder."""
    document = _read_if_exists(home / "offers" / f"{_checked_file_name(offer_hash)}.json")
    return None if document is None else offer_from(document)


def put_answer(home: Path, offer: Offer, key: PrivateKey, *, accepted: bool) -> dict[str, Any]:
    """Sign and write an answer, unless the offer has been answered; return the answer in the folder."""
    existing = read_answer(home, offer)
    if existing is not None:
        return existing
    agreement = kept_agreement_key(_agreement_file(home, offer)) if accepted else None
    signed_answer = answer(offer, key, accepted=accepted, agreement=agreement)
    fault = answer_fault(signed_answer, offer)
    if fault is not None:
        raise InputError(f"this key cannot answer the offer to {offer.client.name}: {fault}.")
    _write(home / "answers" / f"{offer.hash}.json", signed_answer, keep_existing=True)
    return read_answer(home, offer) or signed_answer


def agreement_key(home: Path, offer: Offer) -> AgreementKey:
    """The private agreement key that belongs to the acceptance of this offer."""
    return read_agreement_key(_agreement_file(home, offer))


def read_answer(home: Path, offer: Offer) -> dict[str, Any] | None:
    """The signed answer to this offer; None if there is none."""
    return _read_if_exists(home / "answers" / f"{offer.hash}.json")


def last_accepted_offer(home: Path) -> Offer | None:
    """The newest accepted offer in the folder; None if there is none."""
    return next((offer for offer in reversed(offers(home)) if has_accepted(home, offer)), None)


def has_accepted(home: Path, offer: Offer) -> bool:
    signed_answer = read_answer(home, offer)
    return signed_answer is not None and signed_answer.get("document", {}).get("kind") == "acceptance"


def put_final(home: Path, offer: Offer, word: dict[str, Any]) -> dict[str, Any]:
    """Write the signed confirmation of the final model unless this offer has one; return the one in the folder."""
    _write(home / "finals" / f"{offer.hash}.json", word, keep_existing=True)
    return read_final(home, offer) or word


def read_final(home: Path, offer: Offer) -> dict[str, Any] | None:
    """The signed confirmation of the final model; None if there is none."""
    return _read_if_exists(home / "finals" / f"{offer.hash}.json")


def has_final(home: Path, offer: Offer) -> bool:
    """Whether there is a signed confirmation of the final model."""
    path = f"{home}/finals/{offer.hash}.json"  # used in every round, so it is not a Path
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return True


def put_receipt(home: Path, receipt: dict[str, Any], job: str, content: bytes | None = None) -> Path:
    """Write the signed receipt of this job beside different receipts of the same job; return the file's path.

    Two different receipts show that the operator contradicts themselves, so none replaces another.

    content  the receipt as it was received; by default it is written in canonical form
    """
    content = canonical_bytes(receipt) if content is None else content
    for number in range(1, MOST_RECEIPTS + 1):
        path = home / "receipts" / f"{_checked_file_name(job)}{f'.{number}' if number > 1 else ''}.json"
        written = write_file(path, content, keep_existing=True)
        if written or _read(path) == receipt:
            return path
    raise InputError(f"there are {MOST_RECEIPTS} different receipts of job {job} already; no more are kept.")


def receipt_files(home: Path, job: str) -> list[Path]:
    """The files with receipts of this job, oldest first; more than one if they differ."""
    name = _checked_file_name(job)
    return _oldest_first(home / "receipts", f"{name}.json") + _oldest_first(home / "receipts", f"{name}.*.json")


def receipts(home: Path, after: int = 0) -> list[dict[str, Any]]:
    """All signed receipts in the folder, oldest first; without the first `after`, which are not read."""
    return [_read(path) for path in _oldest_first(home / "receipts")[after:]]


def put_current_job(home: Path, job: str) -> None:
    """Write the name of the job whose server asks the participant to enrol."""
    _write(home / "jobs" / "current.json", {"job": job})


def current_job(home: Path) -> str | None:
    """The name of the job whose server last asked the participant to enrol; None if there was none."""
    document = _read_if_exists(home / "jobs" / "current.json")
    return None if document is None else str(document.get("job"))


def put_news(home: Path, sentence: str, *, over: bool, about: str = "") -> None:
    """Write the server's message; the arguments are as in `News`."""
    document = {"sentence": str(sentence)[:MAX_NEWS_LENGTH], "over": over, "about": about, "at": time.time()}
    _write(home / NEWS, document | ({"message": sentence.form} if isinstance(sentence, CodedText) else {}))


def last_news(home: Path) -> News | None:
    """The server's last message; None if there is none."""
    document = _read_if_exists(home / NEWS)
    if document is None:
        return None
    about, at = str(document.get("about", "")), document.get("at", 0.0)
    sentence, over = from_form(str(document.get("sentence", "")), document.get("message")), document.get("over") is True
    return News(sentence, over, about, at if isinstance(at, float) else 0.0)


def news(home: Path) -> tuple[str, bool] | None:
    """The sentence of the last message, and whether the job is over for the participant; None if there is none."""
    found = last_news(home)
    return None if found is None else (found.sentence, found.over)


def clear_news(home: Path) -> None:
    """Delete the message of an earlier attempt."""
    (home / NEWS).unlink(missing_ok=True)


def _agreement_file(home: Path, offer: Offer) -> Path:
    return home / "agreements" / f"{offer.hash}.key"


def _oldest_first(folder: Path, pattern: str = "*.json") -> list[Path]:
    return sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def _checked_file_name(name: str) -> str:
    """The name itself if it has only letters, digits and hyphens. It comes from the untrusted server."""
    if (
        not name
        or len(name) > 100
        or not all((letter.isalnum() and letter.isascii()) or letter == "-" for letter in name)
    ):
        raise InputError(f"{name[:100]!r} is no name of a document.")
    return name


def _write(path: Path, document: dict[str, Any], *, keep_existing: bool = False) -> None:
    write_file(path, canonical_bytes(document), keep_existing=keep_existing)


def _read(path: Path) -> dict[str, Any]:
    document = _read_if_exists(path)
    if document is None:
        raise ServiceError(f"{path} is gone.")
    return document


def _read_if_exists(path: Path) -> dict[str, Any] | None:
    try:
        return read_document(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
