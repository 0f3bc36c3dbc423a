"""What a training message says of its round, and the ledger's entries about starts and rounds.

A server that was stopped asks again for the round that it had asked for, from the same model: each round has a
checkpoint before the next one is asked for. Participants answer with the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from truthfl.federation.protocol.record_digests import MARK_LENGTH
from truthfl.ledger.book import Ledger
from truthfl.ledger.terms import Agreement, Offer


@dataclass(frozen=True)
class RoundCall:
    """One round as the server asks for it.

    round      counted from 0
    unchanged  the number of rounds directly before this one after which the model was still the same
    changed    the number of all earlier rounds that changed the model
    """

    round: int
    unchanged: int = 0
    changed: int = 0

    def fields(self, offer: Offer) -> dict[str, str | int]:
        """The fields of the training message to the client with this offer."""
        return {"offer": offer.hash, "round": self.round, "unchanged": self.unchanged, "changed": self.changed}

    def next(self, *, changed: bool) -> RoundCall:
        """The call of the next round; `changed`: whether this one changed the model."""
        return RoundCall(self.round + 1, 0 if changed else self.unchanged + 1, self.changed + int(changed))


def begin_rounds(ledger: Ledger, job: str, finished: int) -> RoundCall:
    """Record that the server begins or goes on to train after these finished rounds; return its first round."""
    starts = len(ledger.entries(job, "start"))
    ledger.append(job, "start", str(starts), {"start": starts, "round": finished + 1})
    rows = {entry.document["round"]: entry.document for entry in ledger.entries(job, "round")}
    changed = [
        number
        for number in range(1, finished + 1)
        if number not in rows or rows[number]["model"] != rows[number].get("previous")
    ]
    return RoundCall(finished, finished - max(changed, default=0), len(changed))


def round_document(
    call: RoundCall,
    taking_part: Agreement,
    offers: tuple[Offer, ...],
    taken: Collection[str],
    models: tuple[str, str],
    marks: Mapping[str, str],
) -> dict[str, object]:
    """The ledger's document of a round.

    offers  of the clients who were asked
    taken   the names of those whose reports were taken
    models  digests of the model from which the round started, and of the one after it
    marks   by name: what tells a report from another (`report_mark`); kept of rounds that changed the model
    """
    delivered = frozenset(taken)
    missing = [offer.client.name for offer in offers if offer.client.name not in delivered]
    document: dict[str, object] = {"round": call.round + 1, "missing": missing}
    document |= {"previous": models[0], "model": models[1]} | asked_field(taking_part, offers)
    if models[0] != models[1]:
        document["reports"] = "".join(marks[name] for name in names_of(offers) if name in delivered)
    return document


def marks_in(row: Mapping[str, Any], offers: tuple[Offer, ...]) -> dict[str, str]:
    """By name: the marks of the reports that were taken, from the document of a round that changed the model."""
    names, marks = [name for name in names_of(offers) if name not in row["missing"]], row["reports"]
    return {name: marks[at * MARK_LENGTH : (at + 1) * MARK_LENGTH] for at, name in enumerate(names)}


def names_of(offers: tuple[Offer, ...]) -> list[str]:
    return [offer.client.name for offer in offers]


def asked_field(taking_part: Agreement, offers: tuple[Offer, ...]) -> dict[str, object]:
    """The field `asked` of a round's document: the names of the clients asked; no field if all who take part were."""
    return {} if len(offers) == len(taking_part.offers) else {"asked": [offer.client.name for offer in offers]}
