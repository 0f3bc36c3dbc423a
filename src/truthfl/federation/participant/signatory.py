"""Who signs: a participant as the protocol knows her, whatever she trains.

Looks at the ledger (`participant_folder`, papers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger import participant_folder
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.terms import Offer, offer_from

Decision = Callable[[Offer], bool | None]


@dataclass(eq=False, kw_only=True)
class Signatory:
    """One client with a key and a participant_folder.

    samples  how many she holds
    key      signs her answers
    folder   her desk: offers, answers, receipts
    decide   says yes or no to an offer; None leaves it to whoever else puts an answer on her desk
    labeling_cost, sample_cost    what she states, if anything
    """

    name: str
    samples: int
    key: PrivateKey
    folder: Path
    decide: Decision
    labeling_cost: float | None = None
    sample_cost: float | None = None

    def describe(self) -> dict[str, Any]:
        """What she tells the server when she enrols."""
        told: dict[str, Any] = {"name": self.name, "samples": self.samples, "public_key": public_line(self.key)}
        costs = {"labeling_cost": self.labeling_cost, "sample_cost": self.sample_cost}
        return told | {name: cost for name, cost in costs.items() if cost is not None}

    def consider(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Her signed answer to an offer; None while she has not made up her mind."""
        offer = offer_from(document)
        if offer.client.public_key != public_line(self.key) or offer.client.name != self.name:
            raise InputError(f"the offer is to {offer.client.name}, with another key than {self.name}'s.")
        if offer.client.samples > self.samples:
            raise InputError(f"the offer asks for {offer.client.samples} samples; {self.name} has {self.samples}.")
        if participant_folder.read_offer(self.folder, offer.hash) is None:
            participant_folder.clear_news(self.folder)
        participant_folder.put_offer(self.folder, offer)
        given = participant_folder.read_answer(self.folder, offer)
        if given is None:
            decided = self.decide(offer)
            given = (
                None
                if decided is None
                else participant_folder.put_answer(self.folder, offer, self.key, accepted=decided)
            )
        return given

    def labeled(self, offer_hash: str) -> bool:
        """Whether all labels are there that the offer asks for."""
        return self.accepted_offer(offer_hash) is not None

    def accepted_offer(self, offer_hash: str) -> Offer:
        """The offer with this hash, which she must have accepted."""
        offer = participant_folder.read_offer(self.folder, offer_hash)
        if offer is None or not participant_folder.has_accepted(self.folder, offer):
            raise InputError("this offer was not accepted here.")
        return offer

    def hear(self, document: dict[str, Any]) -> None:
        """What the server tells her beside papers."""
        participant_folder.put_news(self.folder, str(document.get("sentence", "")), over=document.get("over") is True)

    def keep_receipt(self, paper: dict[str, Any]) -> None:
        document = paper.get("document")
        if not isinstance(document, dict):
            raise InputError("the receipt is no signed paper.")
        participant_folder.put_receipt(self.folder, paper, str(document.get("job")))
