"""Tell all participants the digest of the final model before its test; each signs that she was told.

The test's secret is not known before, so nobody can choose a model that does well on the test, or test another one than
was trained, without its being found.
"""

from __future__ import annotations

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.messages import FINAL, query_message, reply_in
from truthfl.ledger.documents import final_fault
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import job_view
from truthfl.ledger.terms import Agreement, Offer
from truthfl.texts import plain

LATE, AWAY = "no word on the final model in time", "not connected when the final model was told"


def tell_final_model(roster: Roster, agreement: Agreement, model: str) -> None:
    """Send the digest of the final model to all clients; write their signed words, or why there is none, to the ledger.

    Clients of whom the ledger has either are not asked again.
    """
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    noted = {entry.document["client"] for entry in view.rejections if entry.document["stage"] == "final"}
    known = {*view.finals, *noted}
    waiting = {offer.client.name: offer for offer in agreement.offers if offer.client.name not in known}
    if any(name not in roster.node_of for name in waiting):
        roster.refresh()
    offer_at = {roster.node_of[name]: offer for name, offer in waiting.items() if name in roster.node_of}
    reasons = {name: LATE if name in roster.node_of else AWAY for name in waiting}
    items: list[Item] = []
    messages = [query_message(FINAL, node, {"offer": offer.hash, "model": model}) for node, offer in offer_at.items()]
    for node, reply in roster.ask(messages, timeout=min(REPLY_TIMEOUT, agreement.terms.round_seconds)):
        offer = offer_at.get(node)
        if offer is None or offer.client.name not in waiting:
            continue
        name = offer.client.name
        word = _word_or_reason(reply, offer, model)
        if isinstance(word, str):
            reasons[name] = word
            continue
        items.append(Item(roster.job_name, "final", name, word))
        del waiting[name]
    roster.ledger.append_all([*items, *(_absence(roster.job_name, name, reasons[name]) for name in waiting)])


def _word_or_reason(reply: Message, offer: Offer, model: str) -> dict[str, object] | str:
    """The client's signed word on the final model, or the reason why the reply is none."""
    if reply.has_error():
        return plain(f"error: {str(reply.error.reason).strip()}")
    try:
        word = reply_in(reply).get("word")
    except InputError as error:
        return plain(str(error).rstrip("."))
    if not isinstance(word, dict):
        return "its word on the final model is no document"
    fault = final_fault(word, offer)
    if fault is None and word["document"]["model"] != model:
        fault = "it is of another model than the final one"
    return word if fault is None else fault


def _absence(job: str, client: str, reason: str) -> Item:
    document = {"stage": "final", "round": None, "client": client, "node": None, "reason": reason}
    return Item(job, "rejection", f"final/{client}", document)
