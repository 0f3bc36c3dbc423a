"""What pages ask for every second: the documents, the state of the job, the connection."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from truthfl.ledger.canonical import digest
from truthfl.ledger.terms import Offer
from truthfl.page.document_names import NO_DOCUMENTS
from truthfl.page.document_views import READ_ERRORS, answer_to, error_sentence, last_offer, last_receipt
from truthfl.page.job_state import connection_view, job_view, news_in_force
from truthfl.page.shown_text import shown


def documents_summary(home: Path) -> dict[str, Any]:
    """Hashes of the newest documents, by which the browser notices new ones, and the state of the job.

    `job` is that of the newest offer, if she accepted it; `trouble` is an error message
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
    """What the browser can write in its language; None if it is the sentence alone."""
    form = shown(sentence)
    return None if "english" in form else form


@lru_cache(maxsize=4)
def _newest_offer(home: Path, state: object) -> Offer | None:  # noqa: ARG001
    """The newest offer; it is read again only if `state`, that of the files, has changed."""
    return last_offer(home)


@lru_cache(maxsize=4)
def _newest_receipt(home: Path, state: object) -> str | None:  # noqa: ARG001
    """The hash of the newest receipt, likewise."""
    receipt = last_receipt(home)
    return None if receipt is None else digest(receipt)


def _documents_state(home: Path) -> tuple[tuple[str, int, int], ...]:
    """What tells whether documents have come or been changed."""
    files = (path for folder in ("offers", "answers", "receipts") for path in (home / folder).glob("*.json"))
    return tuple(sorted((str(path), (found := path.stat()).st_mtime_ns, found.st_size) for path in files))
