"""The proof in a receipt that its documents stand in the ledger: links of her own entries, and a hash tree.

The tree is over the hashes of all entries from the job's first to its last settlement, and so the same in all receipts
of a job: who compares two roots compares the whole job. A receipt has the links of those entries alone whose documents
are in it, each with its path to the root, so its length hardly grows with the number of clients, and it names nobody
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import coded, english
from truthfl.ledger.canonical import Document
from truthfl.ledger.chain import link_fault
from truthfl.ledger.entry import Entry
from truthfl.ledger.merkle_tree import MerkleTree, merkle_tree, root_by_path

if TYPE_CHECKING:
    from truthfl.ledger.job_view import JobView

FIELDS = frozenset(("first", "last", "root", "links", "paths"))
MOST_LINKS = 1000  # in a proof; honest ones have about ten


@dataclass(frozen=True, eq=False)
class EntryTree:
    """The tree over the hashes of a job's entries, from `first` to `last`, both sequence numbers."""

    first: int
    last: int
    tree: MerkleTree

    @property
    def root(self) -> str:
        return self.tree.root.hex()

    def proof(self, entries: Iterable[Entry]) -> dict[str, Any]:
        """The field `proof` of a receipt: the tree's range and root, and these entries' links and paths, in order."""
        ordered = sorted(entries, key=lambda entry: entry.sequence)
        paths = (self.tree.path(entry.sequence - self.first) for entry in ordered)
        return {
            "first": self.first,
            "last": self.last,
            "root": self.root,
            "links": [entry.link() for entry in ordered],
            "paths": [[one.hex() for one in path] for path in paths],
        }


def entry_tree(view: JobView, entries: Sequence[Entry]) -> EntryTree:
    """The tree of a job that is settled.

    entries   all entries of the ledger, in order
    """
    assert view.job is not None
    return tree_of(entries, view.job.sequence, max(entry.sequence for entry in view.settlements.values()))


def tree_of(entries: Sequence[Entry], first: int, last: int) -> EntryTree:
    """The tree over the entries with these sequence numbers."""
    hashes = [_leaf(entry.hash) for entry in entries if first <= entry.sequence <= last]
    return EntryTree(first, last, merkle_tree(hashes))


def _leaf(row_hash: str) -> bytes:
    """The bytes of a row's hash; among rows that nobody signed, anything may stand in its place."""
    try:
        return bytes.fromhex(row_hash)
    except ValueError:
        return sha256(row_hash.encode("utf-8", "surrogateescape")).digest()


def links_fault(document: Document) -> str | None:
    """The first fault of a receipt's links: of their contents, order, and places in the tree."""
    proof = document["proof"]
    if not isinstance(proof, Mapping) or set(proof) != FIELDS:
        parts = ", ".join(sorted(FIELDS))
        return coded("fault.proof_parts", "its proof must have the parts {parts} and no others", parts=english(parts))
    first, last, links, paths = (proof[name] for name in ("first", "last", "links", "paths"))
    if type(first) is not int or type(last) is not int or not 1 <= first <= last:
        return coded("fault.proof_range", "its proof is of no range of entries")
    if not 0 < len(links) <= MOST_LINKS or len(links) != len(paths):
        return coded(
            "fault.proof_links",
            "its proof has {links} links and {paths} paths; there must be as many, at most {most}",
            links=len(links),
            paths=len(paths),
            most=MOST_LINKS,
        )
    before = first - 1
    for link, path in zip(links, paths, strict=True):
        fault = link_fault(link)
        if fault is not None:
            return coded("fault.proof_link", "a link of its proof does not hold: {fault}", fault=english(fault))
        if not before < link["sequence"] <= last:
            return coded(
                "fault.proof_order",
                "its proof has entry {entry} twice, out of order or out of its range",
                entry=link["sequence"],
            )
        before = link["sequence"]
        hashes = [bytes.fromhex(one) for one in path]
        root = root_by_path(bytes.fromhex(link["hash"]), link["sequence"] - first, last - first + 1, hashes)
        if root is None or root.hex() != proof["root"]:
            return coded(
                "fault.proof_root", "entry {entry} is not among those that its proof is of", entry=link["sequence"]
            )
    return None


def ledger_differs(document: Document, entries: Sequence[Entry]) -> str | None:
    """Where a valid receipt's entries are not those of the ledger; None if they are."""
    first, last = document["proof"]["first"], document["proof"]["last"]
    if last > len(entries):
        return f"the ledger ends at entry {len(entries)}, and the receipt has entry {last}; its last rows are gone"
    for link in document["proof"]["links"]:
        if entries[link["sequence"] - 1].link() != link:
            return f"entry {link['sequence']} of the ledger is not the one in the receipt; the ledger was written anew"
    if tree_of(entries, first, last).root != document["proof"]["root"]:
        return f"entries {first} to {last} of the ledger are not those of the receipt; the ledger was written anew"
    return None
