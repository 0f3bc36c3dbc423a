"""A participant's papers, in a folder of hers: offers, answers she signed, receipts, news. Looks at the ledger.

Whatever talks to her (a prompt, a page) and the node that talks to the server meet here, in files: the node puts an
offer down and waits until an answer lies beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.documents import answer, answer_fault
from truthfl.ledger.signing import PrivateKey
from truthfl.ledger.terms import Offer, offer_from

NEWS = "news.json"
LONGEST_NEWS = 1000


def put_offer(desk: Path, offer: Offer) -> None:
    _write(desk / "offers" / f"{offer.hash}.json", offer.document())


def offers(desk: Path) -> list[Offer]:
    """All offers she ever got, oldest first."""
    found = sorted((desk / "offers").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [offer_from(_read(path)) for path in found]


def read_offer(desk: Path, offer_hash: str) -> Offer | None:
    paper = _read_if_there(desk / "offers" / f"{_safe(offer_hash)}.json")
    return None if paper is None else offer_from(paper)


def give_answer(desk: Path, offer: Offer, key: PrivateKey, *, accepted: bool) -> dict[str, Any]:
    """Sign an answer and put it down; the first answer to an offer is the one that counts."""
    there = read_answer(desk, offer)
    if there is not None:
        return there
    paper = answer(offer, key, accepted=accepted)
    fault = answer_fault(paper, offer)
    if fault is not None:
        raise InputError(f"this key cannot answer the offer to {offer.client.name}: {fault}.")
    _write(desk / "answers" / f"{offer.hash}.json", paper, first=True)
    return read_answer(desk, offer) or paper


def read_answer(desk: Path, offer: Offer) -> dict[str, Any] | None:
    return _read_if_there(desk / "answers" / f"{offer.hash}.json")


def has_accepted(desk: Path, offer: Offer) -> bool:
    paper = read_answer(desk, offer)
    return paper is not None and paper.get("document", {}).get("kind") == "acceptance"


def put_receipt(desk: Path, paper: dict[str, Any], job: str) -> Path:
    path = desk / "receipts" / f"{_safe(job)}.json"
    _write(path, paper)
    return path


def receipts(desk: Path) -> list[dict[str, Any]]:
    """All receipts she ever got, oldest first."""
    found = sorted((desk / "receipts").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [_read(path) for path in found]


def put_news(desk: Path, sentence: str, *, over: bool) -> None:
    """What the server told her last; `over`: nothing more will come to her in this job."""
    _write(desk / NEWS, {"sentence": sentence[:LONGEST_NEWS], "over": over})


def news(desk: Path) -> tuple[str, bool] | None:
    """The last sentence the server told her, and whether it is over for her; None if there is none."""
    found = _read_if_there(desk / NEWS)
    return None if found is None else (str(found.get("sentence", "")), found.get("over") is True)


def clear_news(desk: Path) -> None:
    """What was told in another attempt is no news."""
    (desk / NEWS).unlink(missing_ok=True)


def _safe(name: str) -> str:
    """A server's words become a file's name only if they are letters, digits and hyphens."""
    if (
        not name
        or len(name) > 100
        or not all((letter.isalnum() and letter.isascii()) or letter == "-" for letter in name)
    ):
        raise InputError(f"{name[:100]!r} is no name of a paper.")
    return name


def _write(path: Path, document: dict[str, Any], *, first: bool = False) -> None:
    """`first` leaves what is there already. Not waited for on the disk: a simulation writes very many."""
    write_file(path, canonical_bytes(document), keep_existing=first, sync=False)


def _read(path: Path) -> dict[str, Any]:
    found = _read_if_there(path)
    if found is None:
        raise ServiceError(f"{path} is gone.")
    return found


def _read_if_there(path: Path) -> dict[str, Any] | None:
    try:
        return read_document(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
