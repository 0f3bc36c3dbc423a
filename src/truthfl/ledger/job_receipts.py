"""`JobReceipts`: the receipts of a settled job, made from the ledger.

A receipt has all values that its client's pay depends on, and the proof that they stand in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes
from truthfl.ledger.documents import signed
from truthfl.ledger.early_end import commands_part, lost_part, receipt_commands
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView
from truthfl.ledger.receipt_proof import EntryTree, entry_tree
from truthfl.ledger.receipt_rounds import rounds_part
from truthfl.ledger.signing import PrivateKey, public_line, sign_bytes
from truthfl.ledger.terms import Offer

ROW_FIELDS = frozenset(("client", "digest", "signature", "root"))


@dataclass(frozen=True, eq=False)
class JobReceipts:
    """Receipts of one job.

    entries  of the ledger, in order: all, or those since the job began
    """

    view: JobView
    entries: Sequence[Entry]

    def document(self, offer: Offer, operator_key: str) -> dict[str, Any]:
        """The unsigned receipt; an error if the job is not settled.

        `salts` has those of the entries whose documents are in it, by sequence number, as text.
        """
        name, view = offer.client.name, self.view
        if view.test is None or name not in view.settlements:
            raise InputError(f"job {view.name} is not settled yet; there is no receipt.")
        commands = receipt_commands(offer, view, view.settlements[name].sequence)
        own = self._entries_of(offer, commands)
        audition = {"audition": _audition_part(offer, view)} if offer.job.has_audition else {}
        return (
            audition
            | {"salts": {str(entry.sequence): entry.salt for entry in own}}
            | commands_part(commands)
            | lost_part(view.ended)
            | rounds_part(offer, view)
            | self._proof_part(own)
            | {
                "kind": "receipt",
                "job": offer.job.name,
                "client": name,
                "offer": offer.envelope(),
                "acceptance": view.answer_to(offer).document,
                "test": view.test.document,
                "settlement": view.settlements[name].document,
                "public_key": operator_key,
            }
        )

    def row(self, offer: Offer, key: PrivateKey) -> dict[str, str]:
        """The ledger's row of a receipt: client, digest, signature with the operator's key, and the tree's root."""
        content = canonical_bytes(self.document(offer, public_line(key)))
        return {
            "client": offer.client.name,
            "digest": sha256(content).hexdigest(),
            "signature": sign_bytes(key, content),
            "root": self._tree.root,
        }

    def recorded(self, offer: Offer) -> dict[str, Any]:
        """The signed receipt that stands in the ledger; no key is needed."""
        entry = self.view.receipts.get(offer.client.name)
        if entry is None:
            raise InputError(
                f"job {self.view.name} has no receipt of {offer.client.name} yet; it is made when pay is settled."
            )
        document = self.document(offer, offer.job.operator_key)
        if sha256(canonical_bytes(document)).hexdigest() != entry.document["digest"]:
            raise InputError(
                f"the receipt of {offer.client.name} is not the one that was signed; truthfl ledger check says where."
            )
        return {"document": document, "signature": entry.document["signature"]}

    @property
    def root(self) -> str:
        """The root of the tree over the job's entries."""
        return self._tree.root

    @cached_property
    def _tree(self) -> EntryTree:
        return entry_tree(self.view, self.entries)

    def _proof_part(self, own: Sequence[Entry]) -> dict[str, Any]:
        """The field `proof`."""
        ended = self.view.end_command in own
        return {"proof": self._tree.proof([*own, *(self.view.rounds[-1:] if ended else ())])}

    def _entries_of(self, offer: Offer, commands: Sequence[Entry]) -> list[Entry]:
        """The entries whose documents are in her receipt."""
        name, view = offer.client.name, self.view
        entries = [
            view.entry_of(offer),
            view.answer_to(offer),
            view.commitments.get(name),
            view.holds.get(name),
            view.auditions.get(name),
            view.finals.get(name),
            view.test,
            view.settlements[name],
            view.ended if view.lost_round is not None else None,
            *commands,
        ]
        return [entry for entry in entries if entry is not None]


def signed_receipt(offer: Offer, view: JobView, entries: Sequence[Entry], key: PrivateKey) -> dict[str, Any]:
    """One client's receipt, signed with the operator's key; `entries` are all of the ledger."""
    return signed(key, JobReceipts(view, entries).document(offer, public_line(key)))


def _audition_part(offer: Offer, view: JobView) -> dict[str, Document | None]:
    """Her commitment, that her model was held, and the result of her audition, as they stand in the ledger.

    None stands for no commitment, and for a model that was not held.
    """
    commitment_entry, held = (kind.get(offer.client.name) for kind in (view.commitments, view.holds))
    return {
        "commitment": None if commitment_entry is None else commitment_entry.document,
        "held": None if held is None else held.document,
        "result": view.auditions[offer.client.name].document,
    }
