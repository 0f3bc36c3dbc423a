"""Receipts: made from the ledger, with a proof that their documents are in it, and checked without it.

A receipt has all values on which its client's pay depends. It shows which of their reports were counted, and that the
tested model is the trained one.

The proof is the tree of RFC 6962, section 2.1, with SHA-256. Leaves and inner nodes are hashed with different first
bytes. If a level has an odd number of nodes, the last one is also a node of the next level. The tree covers the hashes
of all entries from the job's first to its last settlement, so equal roots mean equal jobs. A receipt has only the links
of the entries whose documents are in it, each with its path to the root. It names nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

from truthfl.amounts import minor_money
from truthfl.coded_text import amount, coded, untranslated
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes, commitment
from truthfl.ledger.documents import answer_fault, final_fault, offer_fault, signed
from truthfl.ledger.entry import Entry, link_fault, payload_digest
from truthfl.ledger.evidence import SoloEvidence
from truthfl.ledger.held_models import receipt_hold_fault
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import (
    commands_fault,
    commands_part,
    loss_in_receipt,
    lost_part,
    lost_round,
    receipt_commands,
    settled_for,
    settlement_document,
    trained_rounds,
    was_ended,
)
from truthfl.ledger.signing import PrivateKey, public_line, sign_bytes, signed_by
from truthfl.ledger.terms import Offer, loss_rise, offer_from

LEAF, NODE = b"\x00", b"\x01"


@dataclass(frozen=True, eq=False)
class MerkleTree:
    """A tree of at least one value.

    levels   hashes of the leaves, the nodes above them, …, the root alone
    """

    levels: tuple[tuple[bytes, ...], ...]

    @property
    def root(self) -> bytes:
        return self.levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """The hashes beside the path from the leaf at this index to the root, from below."""
        hashes = []
        for level in self.levels[:-1]:
            if index ^ 1 < len(level):
                hashes.append(level[index ^ 1])
            index //= 2
        return hashes


def merkle_tree(values: Sequence[bytes]) -> MerkleTree:
    """The tree over these values; there must be at least one."""
    level = tuple(sha256(LEAF + value).digest() for value in values)
    levels = [level]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = (*(sha256(NODE + left + right).digest() for left, right in pairs), *level[len(level) & ~1 :])
        levels.append(level)
    return MerkleTree(tuple(levels))


def root_by_path(value: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root of a tree of `count` values with this one at `index`; None if the path has another length."""
    node, last, rest = sha256(LEAF + value).digest(), count - 1, list(path)
    while last > 0:
        if index ^ 1 <= last:
            if not rest:
                return None
            beside = rest.pop(0)
            left, right = (beside, node) if index & 1 else (node, beside)
            node = sha256(NODE + left + right).digest()
        index, last = index // 2, last // 2
    return None if rest else node


PROOF_FIELDS = frozenset(("first", "last", "root", "links", "paths"))
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
    """The bytes of a row's hash; an unsigned row may have anything in its place."""
    try:
        return bytes.fromhex(row_hash)
    except ValueError:
        return sha256(row_hash.encode("utf-8", "surrogateescape")).digest()


def links_fault(document: Document) -> str | None:
    """The first fault of a receipt's links: of their contents, order, and places in the tree."""
    proof = document["proof"]
    if not isinstance(proof, Mapping) or set(proof) != PROOF_FIELDS:
        parts = ", ".join(sorted(PROOF_FIELDS))
        return coded(
            "fault.proof_parts", "its proof must have the parts {parts} and no others", parts=untranslated(parts)
        )
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
            return coded("fault.proof_link", "a link of its proof does not hold: {fault}", fault=untranslated(fault))
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


FROM_THE_LEDGER = ("round", "previous", "model", "refused")  # fields of a round's entry in a receipt
ROUND_FIELDS = frozenset((*FROM_THE_LEDGER, "taken", "reason", "missing"))


def rounds_part(offer: Offer, view: JobView) -> dict[str, Any]:
    """The fields `rounds` and `final` of a receipt.

    rounds   the rounds in which the client was asked, each with whether the report was taken, or the reason why not;
             for a masked sum, with the digest of the list of missing participants that the client's computer signed
    final    the client's confirmation of the final model; None if there is none
    """
    name = offer.client.name
    rounds = []
    for number, (entry, asked, missing) in enumerate(view.round_sets):
        if name not in asked:
            continue
        one = {field: entry.document[field] for field in FROM_THE_LEDGER if field in entry.document}
        one["taken"] = name not in missing
        if offer.job.masked and "refused" not in one:
            one["missing"] = view.missing_digests[number]
        if name in missing:
            one["reason"] = view.round_refusals.get((name, entry.document["round"]), "no reason is recorded")
        rounds.append(one)
    final = view.finals.get(name)
    return {"rounds": rounds, "final": None if final is None else final.document}


def rounds_fault(document: Document, offer: Offer) -> str | None:
    """The first fault of a receipt's rounds and confirmation of the final model; None if they fit the rest."""
    rounds, settlement, tested = document["rounds"], document["settlement"], document["test"]["model"]
    if not all(_is_round(one) for one in rounds):
        return coded("fault.rounds_parts", "its rounds do not have the parts of rounds")
    trained = trained_rounds(document) if was_ended(document) else offer.job.rounds
    numbers = [one["round"] for one in rounds]
    if numbers != sorted(set(numbers)) or (numbers and not 1 <= numbers[0] <= numbers[-1] <= trained):
        return coded("fault.rounds_order", "its rounds are not those of the offer, in order")
    counted = sum(one["taken"] for one in rounds)
    if (len(rounds), counted) != (_listed_rounds(document, offer, trained), settlement["delivered"]):
        return coded(
            "fault.rounds_counted",
            "its settlement counts other rounds than the {counted} of {listed} that it lists",
            counted=counted,
            listed=len(rounds),
        )
    if offer.job.loss_by_rounds and len(rounds) == trained:
        changed = sum(one["previous"] != one["model"] for one in rounds)
        if settlement["loss_rise"] != loss_rise(offer.job.loss_by_rounds, offer.job.rounds, changed):
            return coded(
                "fault.loss_rise",
                "its settlement expects another loss than of {number} rounds that changed the model",
                number=changed,
            )
    return _model_fault(rounds, tested, trained, lost_round(document)) or _final_word_fault(
        document["final"], tested, offer
    )


def had_no_rounds(document: Document, offer: Offer) -> bool:
    """Whether a receipt says that too few passed the audition for masked rounds, and none took place.

    The operator's statement is enough: the client's computer knows whether it sent a report.
    """
    return offer.job.masked and offer.job.has_solo_models and document["settlement"]["asked"] == 0


def _listed_rounds(document: Document, offer: Offer, trained: int) -> int:
    """How many rounds a receipt must list: those in which the client was asked, or fewer in an ended job."""
    settlement = document["settlement"]
    asked = int(settlement["asked"])
    if not was_ended(document) or settlement.get("passed") is False:
        return asked
    return trained if offer.client.participation == 1 else min(len(document["rounds"]), asked)


def _is_round(one: Document) -> bool:
    required = {"round", "previous", "model", "taken"} | (set() if one["taken"] is True else {"reason"})
    return required <= set(one) <= ROUND_FIELDS and type(one["round"]) is int and type(one["taken"]) is bool


def _model_fault(rounds: Sequence[Document], tested: str, trained: int, lost: int | None) -> str | None:
    """Fault of the models: each round starts from the model before it, and the last existing one is tested."""
    for before, after in pairwise(rounds):
        if after["round"] == before["round"] + 1 and after["previous"] != before["model"]:
            return coded(
                "fault.round_start",
                "round {round} starts from another model than the one after the round before",
                round=after["round"],
            )
    if lost is not None:
        last = [one["previous"] for one in rounds if one["round"] == lost]
        last += [one["model"] for one in rounds if one["round"] == lost - 1]
        if last and {*last} != {tested}:
            return coded("fault.tested_other_lost", "another model was tested than the last one that was not lost")
    elif rounds and rounds[-1]["round"] == trained and rounds[-1]["model"] != tested:
        return coded("fault.tested_other", "another model was tested than the last round's")
    return None


def _final_word_fault(word: Document | None, tested: str, offer: Offer) -> str | None:
    if word is None:
        return None
    fault = final_fault(word, offer)
    if fault is not None:
        return coded(
            "fault.final_word", "their word on the final model does not hold: {fault}", fault=untranslated(fault)
        )
    if word["document"]["model"] == tested:
        return None
    return coded("fault.tested_unsigned", "another model was tested than the one they signed for")


FIELDS = frozenset(
    (
        "kind",
        "job",
        "client",
        "offer",
        "acceptance",
        "rounds",
        "final",
        "test",
        "settlement",
        "public_key",
        "salts",
        "proof",
    )
)
OPTIONAL_FIELDS = frozenset(("audition", "commands", "lost"))
ENTRY_NAMES = {
    "offer": coded("entry.offer", "offer"),
    "answer": coded("entry.answer", "answer"),
    "test": coded("entry.test", "test"),
    "settlement": coded("entry.settlement", "settlement"),
    "commitment": coded("entry.commitment", "commitment"),
    "audition": coded("entry.audition", "audition"),
    "final": coded("entry.final", "final"),
    "command": coded("entry.command", "command"),
    "ended": coded("entry.ended", "end of the job"),
    "hold": coded("entry.hold", "held model"),
}


def receipt_fault(receipt: Document) -> str | None:
    """The first fault in a signed receipt's signatures, commitment, pay or proof; None if it is valid."""
    try:
        return _fault(receipt)
    except Exception as error:  # it may contain anything, and so may values computed from it
        details = untranslated(f"{type(error).__name__}: {error}")
        return coded("fault.no_receipt", "it is not a receipt ({error})", error=details)


def _fault(receipt: Document) -> str | None:
    document = receipt.get("document")
    if set(receipt) != {"document", "signature"} or not isinstance(document, Mapping):
        return coded("fault.unsigned", "it is no signed document")
    if document.get("kind") != "receipt" or not FIELDS <= set(document) <= FIELDS | OPTIONAL_FIELDS:
        return coded("fault.parts", "it does not have the parts of a receipt")
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    if ("audition" in document) != offer.job.has_solo_models:
        return coded("fault.audition_or_none", "it has an audition and its offer none, or the other way round")
    if document["public_key"] != offer.job.operator_key:
        return coded("fault.operator_key", "it is signed with another key than the one that the offer names")
    if not signed_by(offer.job.operator_key, document, str(receipt["signature"])):
        return coded("fault.signature", "its signature is not of the operator's key, or something in it was changed")
    if (document["job"], document["client"]) != (offer.job.name, offer.client.name):
        return coded("fault.other_job", "it is for another job or client than its offer")
    fault = offer_fault(offer)
    if fault is not None:
        return coded("fault.offer", "its offer does not hold: {fault}", fault=untranslated(fault))
    fault = answer_fault(document["acceptance"], offer)
    if fault is not None:
        return coded("fault.acceptance", "its acceptance does not hold: {fault}", fault=untranslated(fault))
    if commitment(test["test_set"], test["samples"], test["secret"]) != offer.job.commitment:
        return coded(
            "fault.commitment",
            "test set, number of draws and secret are not those the server committed itself to in the offer",
        )
    asked, stopped = settlement["asked"], settlement.get("passed") is False
    stopped = stopped or had_no_rounds(document, offer)
    expected = 0 if stopped else offer.job.rounds if offer.client.participation == 1 else asked
    if (settlement["client"], asked) != (offer.client.name, expected):
        return coded("fault.settlement", "its settlement is for other rounds or another client than the offer")
    fault = commands_fault(document, offer) or rounds_fault(document, offer)
    if fault is not None:
        return fault
    evidence, rise = None, settlement.get("loss_rise", 0.0)
    if offer.job.has_solo_models:
        fault = receipt_hold_fault(document, offer) or _audition_fault(document["audition"], settlement, offer)
        if fault is not None:
            return fault
        result = document["audition"]["result"]
        evidence = SoloEvidence(result["solo_loss"], result["level_shift"], settlement["present_labels"], rise)
    loss = loss_in_receipt(document, offer, evidence)
    recomputed = settled_for(offer, loss, settlement["delivered"], asked, evidence, rise)
    if dict(settlement) != settlement_document(recomputed):
        units, currency = offer.job.minor_units, offer.job.currency
        paid, owed = (
            amount(minor_money(pay, units, currency), pay / units, units, currency)
            for pay in (int(settlement["pay"]), recomputed.pay)
        )
        return coded("fault.pay", "the pay is {paid}; by the offer's formula it is {owed}", paid=paid, owed=owed)
    return links_fault(document) or _documents_fault(document, offer)


def _audition_fault(audition: Document, settlement: Document, offer: Offer) -> str | None:
    """Fault of the receipt's audition: it must be of this offer, and the settlement must be computed from it."""
    committed, result = audition["commitment"], audition["result"]
    for part in (committed, result):
        if part is not None and (part["client"], part["offer"]) != (offer.client.name, offer.hash):
            return coded("fault.audition_other", "its audition is of another client or offer")
    if result["model"] is not None and committed is None:
        return coded("fault.audition_uncommitted", "its audition was not committed to")
    for name in ("solo_loss", "level_shift", "passed"):
        if settlement[name] != result[name]:
            return coded(
                "fault.audition_differs",
                "the settlement's {name} is {settled}; that of the audition is {tested}",
                name=untranslated(name),
                settled=untranslated(str(settlement[name])),
                tested=untranslated(str(result[name])),
            )
    if not offer.client.samples <= settlement["present_labels"]:
        return coded("fault.fewer_labels", "its settlement counts fewer labels than the participant's own")
    return None


def _documents_fault(document: Document, offer: Offer) -> str | None:
    """Fault of the receipt's documents: each must belong to one of its links, which are valid."""
    links = document["proof"]["links"]
    expected = [
        ("offer", offer.key, document["offer"]),
        ("answer", offer.key, document["acceptance"]),
        ("test", "test", document["test"]),
        ("settlement", offer.client.name, document["settlement"]),
    ]
    if "audition" in document:
        committed, result = document["audition"]["commitment"], document["audition"]["result"]
        expected += [("commitment", offer.client.name, committed)] if committed is not None else []
        expected += [("audition", offer.client.name, result)]
        held = document["audition"]["held"]
        expected += [("hold", offer.client.name, held)] if held is not None else []
    if document["final"] is not None:
        expected.append(("final", offer.client.name, document["final"]))
    if "lost" in document:
        expected.append(("ended", "ended", document["lost"]))
    expected += [("command", key, command) for key, command in document.get("commands", {}).items()]
    for kind, key, payload in expected:
        matching = [link for link in links if (link["job"], link["kind"], link["key"]) == (offer.job.name, kind, key)]
        if len(matching) != 1:
            return coded(
                "fault.not_in_ledger", "its {kind} is not in the ledger by its proof, or twice", kind=ENTRY_NAMES[kind]
            )
        salt = document["salts"][str(matching[0]["sequence"])]
        if matching[0]["payload"] != payload_digest(canonical_bytes(payload).decode(), salt):
            return coded("fault.other_in_ledger", "its {kind} is not the one in the ledger", kind=ENTRY_NAMES[kind])
    return None


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
        audition = {"audition": _audition_part(offer, view)} if offer.job.has_solo_models else {}
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
        """The signed receipt in the ledger; no key is needed."""
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
        """The entries whose documents are in the client's receipt."""
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
    """The client's commitment, hold and audition result from the ledger.

    None means that there is no commitment, or that the model was not held.
    """
    commitment_entry, held = (kind.get(offer.client.name) for kind in (view.commitments, view.holds))
    return {
        "commitment": None if commitment_entry is None else commitment_entry.document,
        "held": None if held is None else held.document,
        "result": view.auditions[offer.client.name].document,
    }
