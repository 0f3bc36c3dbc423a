"""Rows of a ledger that an operator changed, with all hashes and signatures made anew."""

from copy import deepcopy
from dataclasses import replace

from ledgers import KEY
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import link_hash, payload_digest, row_key, sign_row


def rewritten(entries, kind, key, change):
    """A book in which a row was changed by an operator who recomputes all hashes behind it, and signs them."""
    made, previous = [], None
    for entry in entries:
        document = deepcopy(entry.document)
        if (entry.kind, entry.key) == (kind, key):
            change(document)
        payload = canonical_bytes(document).decode()
        before = entry.previous if previous is None else previous
        link = entry.link() | {"payload": payload_digest(payload, entry.salt), "previous": before}
        link.pop("hash")
        previous = link_hash(link)
        signature = sign_row(row_key(KEY), previous)
        made.append(replace(entry, payload=payload, previous=before, hash=previous, signature=signature))
    return made
