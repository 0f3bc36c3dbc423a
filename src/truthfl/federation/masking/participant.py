"""A participant's part in secure aggregation: signed terms, masked reports, and the answers that open a sum.

In a round the node signs lists of who is missing, each longer than the one before. It reveals nothing until every
remaining participant has signed the same list. Then it reveals the masks shared with the missing, and last its shares
of the others' own masks. After that it signs no other list in this round. `RoundRecord` keeps both, so a restart does
not undo them. The node helps to open only a few sums from one model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.federation.masking.shares import (
    MOST_INDEX,
    Masked,
    MaskTerms,
    in_fixed_point,
    locked_share,
    mask_stream,
    mask_sum,
    mask_terms_from,
    own_mask,
    own_seed,
    pair_key,
    round_context,
    round_key,
    shares_of,
    survivors_text,
    threshold,
    unlocked_share,
)
from truthfl.federation.participant.round_guard import AskedRound
from truthfl.files import write_file
from truthfl.home.record import RoundFile, RoundRecord, open_rounds
from truthfl.learning.models.model import Params
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.signing import AgreementKey, agreement_line, list_key, list_line, list_signed_by, own_secret
from truthfl.ledger.terms import MOST_OF_SUM, Offer, sums_fault, weights_fault

MASKS = "masks"


@dataclass(eq=False)
class MaskingClient:
    """One participant's masks under one accepted offer.

    key     the participant's agreement key
    home    the participant's folder
    stream  computes a mask; simulations share them
    """

    offer: Offer
    key: AgreementKey
    home: Path
    stream: Callable[[bytes, int], bytes] = mask_stream
    known_terms: MaskTerms | None = None
    pair_keys: dict[int, bytes] = field(default_factory=dict)

    @cached_property
    def line(self) -> str:
        """The public agreement key."""
        return agreement_line(self.key)

    def keep_terms(self, envelope: object) -> None:
        """Check and keep the signed terms; raise InputError if they are not sound, or others were kept before."""
        terms = mask_terms_from(envelope, self.offer, (self.line, list_line(self.key)))
        content = canonical_bytes(envelope)  # type: ignore[arg-type]
        if not write_file(self._terms_file, content, keep_existing=True) and self.terms != terms:
            raise InputError("other terms of the masks were signed for this offer before.")
        self.known_terms = terms

    @property
    def terms(self) -> MaskTerms:
        """The terms that were kept; raise InputError if there are none."""
        if self.known_terms is None:
            if not self._terms_file.exists():
                raise InputError("reports under this offer are masked, and no terms of the masks came.")
            kept = read_document(self._terms_file.read_bytes(), str(self._terms_file))
            self.known_terms = mask_terms_from(kept, self.offer, (self.line, list_line(self.key)))
        return self.known_terms

    def masked(self, change: Params, asked: AskedRound) -> tuple[Masked, str]:
        """The masked report of a round and, in hexadecimal, the locked shares of its own mask, by the peers' order."""
        terms, own = self.terms, self.terms.own.index
        peers = sorted(terms.peers_in(asked.round))
        needed = threshold(len(peers) + 1)
        if needed > len(peers) + 1:
            raise InputError(f"in round {asked.round + 1} fewer than three share masks; no report is sent.")
        context = round_context(terms.group, asked.round, asked.changed, asked.received)
        secret = self._secret
        keys = {terms.peers[peer].agreement_key: round_key(self._pair(peer), context) for peer in peers}
        total = in_fixed_point(change, terms.own.weight, self.offer.job.bound_of_round(asked.changed))
        total += mask_sum(keys, self.line, len(change), self.stream)
        total += own_mask(own_seed(secret, context), len(change))
        shares = shares_of(secret, context, peers, needed)
        locked = b"".join(locked_share(shares[peer], self._pair(peer), context, own, peer) for peer in peers)
        return total, locked.hex()

    def sound_list(self, round_: int, missing: object) -> tuple[int, ...]:
        """The first list of a round, as the training message has it; raise InputError if it may not be signed."""
        if not isinstance(missing, list) or not all(type(index) is int for index in missing):
            raise InputError("the message does not say who is missing in this round.")
        self._require_sound(round_, missing)
        return tuple(sorted(set(missing)))

    def signed_list(self, round_: int, missing: Collection[int]) -> dict[str, Any]:
        """Sign that these participants and those on an earlier list are missing in a round.

        Once the round's shares were revealed, or a later round was answered, the answer is always the last signed list.
        """
        with open_rounds(self.home, self.offer.hash) as rounds:
            last = self._answered(rounds, round_)
            wanted = tuple(sorted({*last.missing, *missing}))
            if last.opened or last is not rounds.last:
                wanted = last.missing
            self._require_sound(round_, wanted)
            if wanted != last.missing:
                rounds.append(replace(last, missing=wanted))
        return self.list_signature(last, wanted)

    def list_signature(self, record: RoundRecord, missing: tuple[int, ...]) -> dict[str, Any]:
        """The signature of a list, without regard to what was signed before."""
        text = survivors_text(self._context(record), missing)
        return {"missing": list(missing), "signature": list_key(self.key).sign(text).hex()}

    def keys_of_missing(self, round_: int, missing: Collection[int], signatures: object) -> dict[int, str]:
        """The masks that the participant shares with the missing peers, as keys in hexadecimal.

        signatures  by index: of this list, by all peers who are not on it
        """
        with open_rounds(self.home, self.offer.hash) as rounds:
            last = self._signed(rounds, round_, missing, signatures)
        context = self._context(last)
        peers = self.terms.peers_in(round_)
        return {peer: round_key(self._pair(peer), context).hex() for peer in missing if peer in peers}

    def shares(self, round_: int, missing: Collection[int], signatures: object, locked: object) -> dict[str, Any]:
        """The participant's shares of the own masks of those who are not missing, their own included.

        signatures  as in `keys_of_missing`
        locked      by index: the locked shares of the peers who are not missing

        If a share does not fit, the answer names it instead and has the other shares.
        """
        own = self.terms.own.index
        if not isinstance(locked, Mapping):
            raise InputError("the message has no shares.")
        with open_rounds(self.home, self.offer.hash) as rounds:
            last = self._signed(rounds, round_, missing, signatures)
            if not last.opened:
                if last is not rounds.last:
                    raise InputError(f"round {round_ + 1} is over; its sum is not opened any more.")
                fault = sums_fault(last.lists, last.missing)
                if fault is not None:
                    raise InputError(f"{fault}; the sum of round {round_ + 1} is not opened.")
            present = set(self.terms.peers_in(round_)) - set(missing)
            context = self._context(last)
            told, unfit = {str(own): self._own_share(round_, context)}, []
            for peer in sorted(present):
                try:
                    share = unlocked_share(
                        bytes.fromhex(str(locked.get(str(peer)))), self._pair(peer), context, peer, own
                    )
                    told[str(peer)] = f"{share:x}"
                except (InputError, ValueError):
                    unfit.append(peer)
            if not last.opened:
                rounds.append(replace(last, opened=True))
        return {"shares": told} | ({"unfit": unfit} if unfit else {})

    def _own_share(self, round_: int, context: bytes) -> str:
        own, peers = self.terms.own.index, self.terms.peers_in(round_)
        return f"{shares_of(self._secret, context, [own], threshold(len(peers) + 1))[own]:x}"

    @property
    def _terms_file(self) -> Path:
        return self.home / MASKS / f"{self.offer.hash}.json"

    @cached_property
    def _secret(self) -> bytes:
        return own_secret(self.key, "masks")

    def _context(self, record: RoundRecord) -> bytes:
        return round_context(self.terms.group, record.round, record.changed, record.received)

    def _pair(self, peer: int) -> bytes:
        if peer not in self.pair_keys:
            self.pair_keys[peer] = pair_key(self.key, self.terms.peers[peer].agreement_key, self.terms.group)
        return self.pair_keys[peer]

    def _answered(self, rounds: RoundFile, round_: int) -> RoundRecord:
        record = rounds.record_of(round_)
        if record is None:
            raise InputError(f"round {round_ + 1} was not answered; nothing is told of it.")
        return record

    def _signed(self, rounds: RoundFile, round_: int, missing: Collection[int], signatures: object) -> RoundRecord:
        """The record of a round; raise InputError unless this list was signed here and by all peers not on it."""
        record = self._answered(rounds, round_)
        if tuple(sorted(missing)) != record.missing:
            raise InputError(f"another list of who is missing in round {round_ + 1} was signed here.")
        self._require_sound(round_, record.missing)
        present = {index: peer for index, peer in self.terms.peers_in(round_).items() if index not in record.missing}
        if not isinstance(signatures, Mapping) or set(signatures) != set(map(str, present)):
            raise InputError(f"the list of who is missing in round {round_ + 1} is not signed by all who are not.")
        text = survivors_text(self._context(record), record.missing)
        for index, peer in present.items():
            if not list_signed_by(peer.list_key, text, str(signatures[str(index)])):
                raise InputError(f"participant {index} did not sign this list of who is missing in round {round_ + 1}.")
        return record

    def _require_sound(self, round_: int, missing: Collection[int]) -> None:
        """Raise InputError if a list names strangers or this participant, or leaves too few."""
        peers = self.terms.peers_in(round_)
        if len(missing) >= self.terms.members or not all(0 <= index <= MOST_INDEX for index in missing):
            raise InputError("the list of who is missing names more people than take part, or numbers of nobody.")
        if self.terms.own.index in missing:
            raise InputError("the list of who is missing names this participant, who is not.")
        if self.terms.knows_everybody and not set(missing) <= set(peers):
            raise InputError("the list of who is missing names somebody who is not asked in this round.")
        left = len(set(peers) - set(missing)) + 1
        if left < threshold(len(peers) + 1):
            raise InputError(
                f"{left} reports would be in the sum; by the signed terms it needs {threshold(len(peers) + 1)}."
            )
        present = [self.terms.own, *(peer for index, peer in peers.items() if index not in missing)]
        fault = weights_fault([member.weight for member in present], MOST_OF_SUM)
        if fault is not None:
            raise InputError(f"of those who would be in the sum of round {round_ + 1} {fault}.")
