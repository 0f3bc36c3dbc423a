"""`ReceiptTexts`: the canonical text of a job's receipts; the links, which its clients share, are written down once.

A receipt has the links from the client's offer to her settlement, so those of a large job have most links in common.
Imports `canonical`, `entry`, `job_view`, `receipts`, `signing`, `terms`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView
from truthfl.ledger.receipts import chain_range, receipt_without_chain
from truthfl.ledger.signing import PrivateKey, public_line, sign_bytes
from truthfl.ledger.terms import Offer


@dataclass(frozen=True, eq=False)
class ReceiptTexts:
    """Receipts of one job, as text.

    entries  all entries of the ledger, in order
    """

    view: JobView
    entries: Sequence[Entry]

    def document(self, offer: Offer, operator_key: str) -> bytes:
        """The canonical bytes of `receipt_document`."""
        first, last = chain_range(offer, self.view)
        start, end = bisect_left(self._sequences, first), bisect_right(self._sequences, last)
        links = b",".join(self._links[start:end])
        parts = receipt_without_chain(offer, self.view, operator_key)
        before = canonical_bytes({name: part for name, part in parts.items() if name < "chain"})
        after = canonical_bytes({name: part for name, part in parts.items() if name > "chain"})
        return b"".join((before[:-1], b',"chain":[', links, b"],", after[1:]))

    def row(self, offer: Offer, key: PrivateKey) -> dict[str, str]:
        """What the ledger has of a receipt: the client, the digest and the signature with the operator's key."""
        content = self.document(offer, public_line(key))
        return {
            "client": offer.client.name,
            "digest": sha256(content).hexdigest(),
            "signature": sign_bytes(key, content),
        }

    def signed(self, offer: Offer, signature: str) -> str:
        """The canonical text of the receipt with this signature of the operator's key that the offer names."""
        signed_with = canonical_bytes({"signature": signature})
        return b"".join((b'{"document":', self.document(offer, offer.job.operator_key), b",", signed_with[1:])).decode()

    def has_salts(self, offer: Offer) -> bool:
        """Whether the receipt has salts; those of truthfl 0.1 have none."""
        return "salts" in receipt_without_chain(offer, self.view, offer.job.operator_key)

    @cached_property
    def most_links(self) -> int:
        """The number of links of the receipt that has most of them; at least 1."""
        offers = () if self.view.agreement is None else self.view.agreement.offers
        ranges = (chain_range(offer, self.view) for offer in offers)
        return max((1 + last - first for first, last in ranges), default=1)

    @cached_property
    def _sequences(self) -> list[int]:
        return [entry.sequence for entry in self.entries]

    @cached_property
    def _links(self) -> list[bytes]:
        return [canonical_bytes(entry.link()) for entry in self.entries]
